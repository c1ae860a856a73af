"""The command ``pgwire-codec demo``, which runs :mod:`pgwire_codec.demo`."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgwire_codec.cli.arguments import DsnCommand
from pgwire_codec.cli.compare import raise_unequal
from pgwire_codec.cli.compare_report import print_table
from pgwire_codec.cli.lake_options import spark_module
from pgwire_codec.demo import shop
from pgwire_codec.errors import missing_extra

_EPILOG = """\b
Examples:
  pgwire-codec demo
  pgwire-codec demo --output shop
  pgwire-codec demo --runner spark
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
@click.option(
    "--runner",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Program that mirrors and compares: this process, or Spark on this machine.",
)
def demo(dsn: str | None, output: Path | None, keep: bool, runner: str) -> None:
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
    if runner == "spark":
        spark_module("local", "the demo")
    console = Console()
    started = time.monotonic()
    found = run.run(dsn=dsn, output=output, keep=keep, on_spark=runner == "spark", console=console)
    tables = found.comparison.tables
    print_table(tables, console)
    raise_unequal(tables)
    console.print(f"0 differences, {time.monotonic() - started:.0f} s\n", style="green")
    rows = Table("an order", *shop.ORDER, box=None)
    for place, row in found.order.items():
        rows.add_row(place, *row)
    console.print(rows)
    log, lake = found.folder / "log", found.folder / "lake"
    path = lake / shop.SCHEMA / "orders"
    _say(
        console,
        f"""
The last of these rows, from Python:

  from deltalake import DeltaTable, QueryBuilder
  orders = DeltaTable("{path}")
  print(QueryBuilder().register("orders", orders).execute("{run.QUERY}").read_all())

The log of all changes: pgwire-codec log info {log}

The same with a database of yours, whose tables it copies first:

  pgwire-codec init --dsn DSN shop.toml
  pgwire-codec run shop.toml
  pgwire-codec status shop.toml""",
    )


def _say(console: Console, text: str) -> None:
    """Print lines as they are: commands and paths are to be copied."""
    console.print(Text(text), soft_wrap=True)
