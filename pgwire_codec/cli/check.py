"""``pgwire-codec check``: check a server before anything is created on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pgwire_codec.cli.arguments import PASSWORD_COMMAND, DsnCommand, name_options
from pgwire_codec.cli.capture import capture
from pgwire_codec.cli.failure import Failure
from pgwire_codec.format import format_count, printable

if TYPE_CHECKING:
    from pgwire_codec.capture import Finding, ServerCheck

_SHOWN = 5  # lines of a remedy

_EPILOG = """\b
Examples:
  pgwire-codec check --dsn "host=db dbname=shop"
  pgwire-codec check --dsn "host=db dbname=shop" --slot s --publication p --json

Nothing is changed on the server. The exit status is 4 if a capture would fail, or would make other
statements fail; 3 if the server cannot be reached now.
"""


@click.command(cls=DsnCommand, epilog=_EPILOG)
@click.option("--dsn", default="", help="libpq connection string or URI. Default: PGHOST etc.")
@PASSWORD_COMMAND
@click.option(
    "--publication",
    multiple=True,
    help="Name of a publication (repeatable). Default: all tables are checked.",
)
@click.option("--slot", help="Name of the replication slot, which need not exist.")
@click.option(
    "--snapshot/--no-snapshot",
    default=True,
    show_default=True,
    help="Check that the tables can be read, too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(
    dsn: str,
    password_command: str | None,
    publication: tuple[str, ...],
    slot: str | None,
    snapshot: bool,
    as_json: bool,
) -> None:
    """Check that a server is ready for a capture.

    Each finding is shown with its remedy, which is SQL if possible.
    """
    from pgwire_codec.capture import check_server, with_password_command

    dsn = with_password_command(dsn, password_command)
    found = check_server(dsn, publication=publication, slot=slot, snapshot=snapshot)
    if as_json:
        click.echo(json.dumps(asdict(found) | {"is_ready": found.is_ready}))
    else:
        show_findings(found)
    require_ready(found)
    if not as_json:
        click.echo("The server is ready for a capture.")


def show_findings(found: ServerCheck) -> None:
    """Print each finding with its remedy."""
    for finding in found.findings:
        for line in _lines(finding):
            click.echo(line)


def require_ready(found: ServerCheck) -> None:
    """Raise ``Failure`` if there is an error among the findings."""
    errors = sum(each.level == "error" for each in found.findings)
    if errors:
        raise Failure(f"the server is not ready for a capture: {format_count(errors, 'error')}")


def _lines(finding: Finding) -> list[str]:
    def line(text: str) -> str:
        return printable(name_options(text, capture, "pgwire-codec capture"))

    remedy = [f"  {line(each)}" for each in finding.remedy[:_SHOWN]]
    more = len(finding.remedy) - _SHOWN
    if more > 0:
        remedy.append(f"  and {more} more, which --json has")
    return [f"{finding.level} ({finding.code}): {line(finding.text)}", *remedy]
