"""The command ``pgwire-codec demo``, which runs :mod:`pgwire_codec.demo`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from pgwire_codec.cli.arguments import DsnCommand
from pgwire_codec.cli.failure import Failure
from pgwire_codec.errors import missing_extra

_EPILOG = """\b
Examples:
  pgwire-codec demo
  pgwire-codec demo --output shop
  pgwire-codec demo --dsn "host=127.0.0.1 user=postgres dbname=test" --keep
"""


@click.command(cls=DsnCommand, epilog=_EPILOG)
@click.option("--dsn", help="Server to use (wal_level=logical). Default: start an embedded one.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="New or empty directory for log and tables. Default: a temporary one, which is kept.",
)
@click.option(
    "--keep", is_flag=True, help="Keep schema, publication and slot on the server of --dsn."
)
def demo(dsn: str | None, output: Path | None, keep: bool) -> None:
    """Capture a small shop's changes into a log, decode it on Spark, and compare with the server.

    The exit status is 4 if a table differs from the server's.
    """
    try:
        run = import_module("pgwire_codec.demo.run")
    except ModuleNotFoundError as error:
        if (error.name or "pgwire_codec").partition(".")[0] == "pgwire_codec":
            raise
        raise missing_extra(f"the demo needs {error.name}", "demo") from error
    if run.main(dsn=dsn, output=output, keep=keep):
        raise Failure("a table decoded on Spark differs from the server's")
