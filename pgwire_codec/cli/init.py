"""``pgwire-codec init``: write the file of a capture and a mirror, for a server that is ready."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from pgwire_codec.capture.catalog.publications import ALL_TABLES
from pgwire_codec.cli import USAGE
from pgwire_codec.cli.arguments import PASSWORD_COMMAND, DsnCommand
from pgwire_codec.cli.check import require_ready, show_findings
from pgwire_codec.cli.failure import Failure, cannot_write
from pgwire_codec.cli.run_template import render
from pgwire_codec.format import printable

_MOST_CHARACTERS: Final = 63  # of the name of a slot

_EPILOG = """\b
Examples:
  pgwire-codec init --dsn "host=db dbname=shop" shop.toml
  pgwire-codec init --dsn service=shop --publication shop --to delta:s3://bucket/shop shop.toml

The file has all options of "pgwire-codec run", with comments. The findings of "pgwire-codec check"
are shown first. Nothing is changed on the server, and nothing is written if it is not ready: exit
status 4.
"""


@click.command(cls=DsnCommand, epilog=_EPILOG)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--dsn",
    default="",
    help="libpq connection string or URI, without a password. Default: PGHOST etc.",
)
@PASSWORD_COMMAND
@click.option("--slot", help="Name of the replication slot. Default: that of the file.")
@click.option("--publication", help="Name of the publication. Default: that of the file.")
@click.option("--log", metavar="DIR", help="Directory or URI of the log. Default: FILE.log.")
@click.option(
    "--to", "target", metavar="TARGET", help="Target of the mirror. Default: delta:FILE.lake."
)
def init(
    file: Path,
    dsn: str,
    password_command: str | None,
    slot: str | None,
    publication: str | None,
    log: str | None,
    target: str | None,
) -> None:
    """Check a server, and write the file of a capture and a mirror of it."""
    from pgwire_codec.capture import check_server, with_password_command
    from pgwire_codec.capture.connection.dsn import has_password

    if has_password(dsn):
        raise Failure(
            "the DSN contains a password, which does not belong in the file",
            USAGE,
            hint="Put it into a file that PGPASSFILE names, or use --password-command.",
        )
    name = re.sub(r"[^a-z0-9_]", "_", file.stem.lower())[:_MOST_CHARACTERS]
    slot, publication = slot or name, publication or name
    connecting = with_password_command(dsn, password_command)
    exists = _publication_exists(connecting, publication)
    found = check_server(connecting, publication=publication if exists else (), slot=slot)
    show_findings(found)
    require_ready(found)
    capture: dict[str, Any] = {
        "dsn": dsn,
        "slot": slot,
        "publication": publication,
        "snapshot": True,
        "keep": "7d",
        "consumer": [f"file:{file.stem}.checkpoint/lsn"],
    }
    if password_command is not None:
        capture["password-command"] = password_command
    if not exists:
        capture["create-publication"] = ALL_TABLES
    mirror = {
        "to": target or f"delta:{file.stem}.lake",
        "runner": "local",
        "checkpoint": f"{file.stem}.checkpoint",
        "every": "10 seconds",
    }
    sections = {"capture": capture, "mirror": mirror}
    _write(file, render(file.name, log or f"{file.stem}.log", sections))
    click.echo(f"wrote {printable(str(file))}")


def _publication_exists(dsn: str, name: str) -> bool:
    from pgwire_codec.capture.catalog.publications import publication_exists
    from pgwire_codec.capture.connection.connect import connect, load_psycopg2
    from pgwire_codec.capture.connection.error_hints import capture_error

    with closing(connect(dsn)) as connection, connection.cursor() as cursor:
        try:
            return publication_exists(cursor, name)
        except load_psycopg2().Error as error:
            raise capture_error(error, "") from error


def _write(file: Path, text: str) -> None:
    """Write a new file; raise ``Failure`` if it exists or cannot be written."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Failure(
            f"{file} exists", USAGE, hint="Remove it first, or write another file."
        ) from None
    except OSError as error:
        raise cannot_write(file, error) from error
