"""``pgwire-codec mirror``: keep the tables of a log as tables of a lakehouse."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pgwire_codec.cli.mirror_report import JsonLines, MirrorReport, TerminalTable
from pgwire_codec.errors import PgwireError, TableError, missing_extra
from pgwire_codec.format import format_count
from pgwire_codec.log import Log

if TYPE_CHECKING:
    from pgwire_codec.spark.mirroring.batches import MirroredBatch

_POLL_SECONDS: Final = 0.2

#: Errors of this package in the text of Spark's.
_OURS: Final = re.compile(r"pgwire_codec\.errors\.\w+: (.*)")

_EPILOG: Final = """\b
Examples:
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint \\
      --tables 'public.*,sales.*' --every '10 seconds' --engine delta-spark
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint \\
      --once --resume public.orders

Each change is applied once, also after a failure. SIGTERM and SIGINT (Ctrl-C) end the command after
the running micro-batch: exit status 0. A table that fails is set aside, and the others go on. The
table _mirror in the target has the state of each.
"""


def _settings(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE")
        found[name] = value
    return found


@click.command(epilog=_EPILOG)
@click.option("--log", required=True, metavar="DIR", help="Directory or URI of the log.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="delta:DIR",
    help="Folder of the tables: a path or a URI.",
)
@click.option("--checkpoint", required=True, metavar="DIR", help="Folder of Spark's checkpoint.")
@click.option(
    "--tables",
    default="*",
    show_default=True,
    help="Names of tables and patterns, separated by commas.",
)
@click.option("--once", is_flag=True, help="End when the changes in the log are applied.")
@click.option(
    "--every",
    metavar="TIME",
    help="Time between two micro-batches, as '10 seconds'. Default: none.",
)
@click.option(
    "--on-schema-change",
    type=click.Choice(["evolve", "freeze", "fail"]),
    default="evolve",
    show_default=True,
    help="When a table's columns change: change the target's, leave these as they are, or set the "
    "table aside.",
)
@click.option(
    "--engine",
    type=click.Choice(["delta-rs", "delta-spark"]),
    default="delta-rs",
    show_default=True,
    help="Program that merges: in this process, or on Spark's executors, with Delta's jars.",
)
@click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of tables that are merged at once.",
)
@click.option(
    "--staging", metavar="DIR", help="Folder for decoded rows, for much data: a path or a URI."
)
@click.option(
    "--resume",
    multiple=True,
    metavar="TABLE",
    help="Resume a table that is set aside (repeatable).",
)
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="Setting of Spark (repeatable), as spark.driver.memory=4g.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines. Default: only without a terminal."
)
def mirror(
    log: str,
    target: str,
    conf: dict[str, str],
    engine: str,
    resume: tuple[str, ...],
    staging: str | None,
    as_json: bool,
    once: bool,
    **options: Any,
) -> None:
    """Keep the tables of a log as Delta tables, with Spark on this machine.

    A table schema.table is in DIR/schema/table. New tables are mirrored from their first change on.
    """
    try:
        query = import_module("pgwire_codec.spark.mirroring.query")
        lake = import_module("pgwire_codec.spark.mirroring.lake")
        local = import_module("pgwire_codec.spark.local")
    except ModuleNotFoundError as error:
        if (error.name or "pgwire_codec").partition(".")[0] == "pgwire_codec":
            raise
        raise missing_extra(f"the mirror needs {error.name}", "spark") from error
    Log(log)  # an error that needs no Spark
    lake.parse_target(target)
    console = Console()
    report: MirrorReport = JsonLines()
    if console.is_terminal and not as_json:
        report = TerminalTable(f"{log} → {target}", console)
    last: list[MirroredBatch] = []

    def show(batch: MirroredBatch) -> None:
        last[:] = [batch]
        report.show(batch)

    if staging is not None:
        options["stagingPath"] = staging
    with local.local_spark(conf, delta=engine == "delta-spark") as spark, report:
        for table in resume:
            query.resume_table(spark, target, table, engine=engine)
        with _signals() as signalled:
            running = query.start_mirror(
                spark, log, target, engine=engine, once=once, report=show, **options
            )
            while running.query.isActive:
                if signalled:
                    running.stop()
                time.sleep(_POLL_SECONDS)
            failure = running.failure
    if failure is not None:
        raise _failure(failure)
    aside = [each.table for batch in last for each in batch.tables if each.state == "set aside"]
    if once and aside:
        raise TableError(
            f"{format_count(len(aside), 'table')} set aside: {', '.join(aside)}",
            hint="Their errors are in the table _mirror of the target. Resume them with --resume.",
        )


def _failure(text: str) -> PgwireError:
    """Return the error for Spark's, which contains the stacks of all processes."""
    found = _OURS.findall(text)
    lines = [line for line in text.splitlines() if line.strip()]
    message = found[-1] if found else lines[0] if lines else "the query failed"
    primary, _, hint = message.partition(" — hint: ")
    return PgwireError(primary, hint=hint or None)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Record SIGTERM and SIGINT in a list; a repeated one has its usual effect."""
    received: list[int] = []
    usual: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }

    def note(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(number, usual[number])

    before = {number: signal.signal(number, note) for number in usual}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
