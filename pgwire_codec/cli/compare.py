"""``pgwire-codec compare``: compare the tables of a lakehouse with those of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pgwire_codec.cli import DIFFERENT, EXCEPT, RETRY
from pgwire_codec.cli.arguments import DsnCommand
from pgwire_codec.cli.compare_report import print_lines, print_table
from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.lake_options import (
    conf_option,
    json_option,
    log_option,
    opened_runner,
    runner_option,
    tables_option,
    to_option,
)
from pgwire_codec.comparing.comparison_run import ComparisonOptions, ComparisonRun
from pgwire_codec.format import format_count
from pgwire_codec.log import Log

if TYPE_CHECKING:
    from pgwire_codec.comparing.result import TableComparison

_EQUAL_EXCEPT: Final = "equal, except: "

#: States that can become equal by themselves.
_PASSING: Final = ("behind", "changing")

_EPILOG: Final = """\b
Examples:
  pgwire-codec compare --log shop.log --to delta:/lake/shop --dsn "host=db dbname=shop"
  pgwire-codec compare --log shop.log --to delta:/lake/shop --dsn "host=db dbname=shop" \\
      --tables 'public.*' --wait 300 --json
  pgwire-codec compare --runner local --log shop.log --to delta:/lake/shop --dsn "dbname=shop"

Neither writes nor the mirror need to stop, and the mirror may have another runner. The exit status
is 0 if all tables are equal, and 1 if one differs, is missing or was not compared. Without such a
table, it is 3 if a target did not get the server's last changes in time. Otherwise it is 5 if
tables are equal except for columns that cannot be compared, such as those with a mask.
"""


@click.command(cls=DsnCommand, epilog=_EPILOG)
@log_option
@to_option("delta:DIR, the folder of the tables, as path or URI; or iceberg:CATALOG[.NAMESPACE].")
@runner_option
@click.option("--dsn", default="", help="libpq connection string or URI. Default: PGHOST etc.")
@tables_option
@click.option(
    "--publication",
    multiple=True,
    help="Name of a publication of the log (repeatable). Default: those of its last session.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for the log and the target to get the server's last changes.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of connections that read a table at once, at most.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of rows of a table that are shown.",
)
@conf_option
@json_option
def compare(
    log: str,
    target: str,
    runner: str,
    dsn: str,
    conf: dict[str, str],
    as_json: bool,
    **options: Any,
) -> None:
    """Compare the tables of a mirror with those of the server, with Spark or without it.

    A row that differs is looked up in the log. If the target lacks its last change, it is compared
    again. All columns are compared that the log has of a table.
    """
    chosen = ComparisonOptions(**options)
    source = Log(log)  # an error that needs no Spark
    with opened_runner(runner, target, conf, "compare") as (lake, workers):
        found = ComparisonRun(workers, source, lake, dsn, chosen).run()
    console = Console()
    if console.is_terminal and not as_json:
        print_table(found.tables, console)
    else:
        print_lines(found.tables)
    raise_unequal(found.tables)


def raise_unequal(tables: tuple[TableComparison, ...]) -> None:
    """Raise ``Failure`` with the tables that are not equal, if there are some."""
    passing = [each.table for each in tables if each.state in _PASSING]
    partly = [each for each in tables if each.state.startswith(_EQUAL_EXCEPT)]
    known = {"equal", *_PASSING, *(each.state for each in partly)}
    other = [each.table for each in tables if each.state not in known]
    if other:
        raise Failure(f"{format_count(len(other), 'table')} not equal: {_names(other)}", DIFFERENT)
    if passing:
        raise Failure(
            f"{format_count(len(passing), 'table')} not up to date: {_names(passing)}", RETRY
        )
    if partly:
        columns = [f"{each.table}.{name}" for each in partly for name in each.uncompared]
        raise Failure(
            f"{format_count(len(columns), 'column')} not compared: {_names(columns)}", EXCEPT
        )


def _names(tables: list[str]) -> str:
    return ", ".join(tables)
