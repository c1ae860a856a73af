"""``pgwire-codec demo``: the command; what it does is in pgwire_codec.demo."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from pgwire_codec.cli.arguments import DsnCommand
from pgwire_codec.cli.failure import Failure
from pgwire_codec.errors import MissingExtraError

_EPILOG = """\b
Examples:
  pgwire-codec demo
  pgwire-codec demo --output shop
  pgwire-codec demo --dsn "host=127.0.0.1 user=postgres dbname=test" --keep
"""


@click.command(cls=DsnCommand, epilog=_EPILOG)
@click.option("--dsn", help="A server to use (wal_level=logical); else an embedded one is started.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new or empty folder for log and tables; else a temporary one, which stays.",
)
@click.option(
    "--keep", is_flag=True, help="Leave schema, publication and slot on the server of --dsn."
)
def demo(dsn: str | None, output: Path | None, keep: bool) -> None:
    """Capture a small shop's changes into a log, decode it on Spark, and compare with the server.

    The exit status is 4 when a table differs from the server's.
    """
    try:
        run = import_module("pgwire_codec.demo.run")
    except ModuleNotFoundError as error:
        if (error.name or "pgwire_codec").partition(".")[0] == "pgwire_codec":
            raise
        raise MissingExtraError(
            f"the demo needs {error.name}: pip install 'pgwire-codec[demo]'"
        ) from error
    if run.main(dsn=dsn, output=output, keep=keep):
        raise Failure("a table that Spark decoded differs from the server's")
