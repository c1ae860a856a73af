"""``pgwire-codec resume``: have the mirror of a file resume tables that failed."""

from __future__ import annotations

from pathlib import Path

import click

from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.lake_options import opened_lake
from pgwire_codec.cli.run_file import file_argument, inside, read_run_file
from pgwire_codec.format import printable
from pgwire_codec.lake.requests import replay_table, resume_table

_EPILOG = """\b
Examples:
  pgwire-codec resume shop.toml public.orders
  pgwire-codec resume --replay shop.toml public.orders

"pgwire-codec status" shows the tables and their errors. Remove the cause first.
"""


@click.command(epilog=_EPILOG)
@file_argument
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option(
    "--replay",
    is_flag=True,
    help="Apply the changes of a table again, from its first dead letter on.",
)
def resume(file: Path, tables: tuple[str, ...], replay: bool) -> None:
    """Have a mirror resume a table that failed.

    The running mirror of the file does so with its next micro-batch, or else the next one.
    """
    found = read_run_file(file)
    if "mirror" not in found.values:
        raise Failure(f"{file} has no section [mirror]")
    values = found.values["mirror"]
    with inside(found.folder), opened_lake(values["target"], values["conf"]) as lake:
        for table in tables:
            if replay:
                replay_table(lake, values["log"], table)
            else:
                resume_table(lake, table)
            click.echo(printable(f"requested {table}"))
