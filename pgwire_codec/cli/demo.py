"""The command ``pgwire-codec demo``, which runs :mod:`pgwire_codec.demo`."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console

from pgwire_codec.cli.arguments import DsnCommand
from pgwire_codec.cli.compare import raise_unequal
from pgwire_codec.cli.compare_report import print_table
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
    help="New or empty directory for log and lake. Default: a temporary one, which is kept.",
)
@click.option(
    "--keep", is_flag=True, help="Keep schema, publication and slot on the server of --dsn."
)
def demo(dsn: str | None, output: Path | None, keep: bool) -> None:
    """Mirror a small shop's tables into Delta, and compare them with the server.

    The tables change meanwhile: two get a column, and one more is published. The exit status is as
    for compare.
    """
    try:
        run = import_module("pgwire_codec.demo.run")
    except ModuleNotFoundError as error:
        if (error.name or "pgwire_codec").partition(".")[0] == "pgwire_codec":
            raise
        raise missing_extra(f"the demo needs {error.name}", "demo") from error
    console = Console()
    started = time.monotonic()
    found = run.run(dsn=dsn, output=output, keep=keep, console=console)
    tables = found.comparison.tables
    print_table(tables, console)
    console.print(f"Log:  {found.folder / 'log'} (see: pgwire-codec log info)")
    console.print(f"Lake: {found.folder / 'lake'} (Delta, a folder for each table)")
    raise_unequal(tables)
    console.print(f"0 differences, {time.monotonic() - started:.0f} s", style="green")
