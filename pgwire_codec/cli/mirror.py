"""``pgwire-codec mirror``: keep the tables of a log as tables of a lakehouse."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from rich.console import Console

from pgwire_codec.cli.lake_options import (
    conf_option,
    engine_for,
    engine_option,
    json_option,
    log_option,
    spark_module,
    tables_option,
    to_option,
)
from pgwire_codec.cli.memory import settings_of_workers
from pgwire_codec.cli.metrics import metrics_option, mirror_endpoint
from pgwire_codec.cli.mirror_report import JsonLines, MirrorReport, TerminalTable, summary
from pgwire_codec.cli.service_manager import ServiceManager
from pgwire_codec.errors import TableError
from pgwire_codec.format import format_count
from pgwire_codec.log import Log
from pgwire_codec.spark.failures import failure_of

if TYPE_CHECKING:
    from pgwire_codec.spark.mirroring.batches import MirroredBatch
    from pgwire_codec.spark.mirroring.status import TableStatus

_POLL_SECONDS: Final = 0.2

_EPILOG: Final = """\b
Examples:
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint \\
      --tables 'public.*,sales.*' --every '10 seconds' --engine delta-spark
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint \\
      --once --resume public.orders
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint \\
      --once --dead-letters --unrepresentable null --replay public.orders
  pgwire-codec mirror --log shop.log --to parquet:/lake/history --checkpoint /lake/checkpoint \\
      --every '5 minutes'
  pgwire-codec mirror --log shop.log --to iceberg:lake --checkpoint /lake/checkpoint \\
      --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \\
      --conf spark.sql.catalog.lake.type=rest \\
      --conf spark.sql.catalog.lake.uri=http://localhost:8181

Each change is applied once, also after a failure. SIGTERM and SIGINT (Ctrl-C) end the command after
the running micro-batch: exit status 0. A table that fails is set aside, and the others go on. A
table is incomplete if rows lack the values of a new column. The table _mirror in the target (for
Iceberg, _mirror.status) has the state of each.
"""


@click.command(epilog=_EPILOG)
@log_option
@to_option(
    "delta:DIR, the folder of the tables, as path or URI; iceberg:CATALOG[.NAMESPACE]; or "
    "parquet:DIR, for histories."
)
@click.option("--checkpoint", required=True, metavar="DIR", help="Folder of Spark's checkpoint.")
@tables_option
@click.option("--once", is_flag=True, help="End when the changes in the log are applied.")
@click.option(
    "--every",
    metavar="TIME",
    help="Time between two micro-batches, as '10 seconds'. Default: none.",
)
@click.option(
    "--on-schema-change",
    type=click.Choice(["evolve", "rename", "freeze", "fail"]),
    default="evolve",
    show_default=True,
    help="When a table's columns change: change the target's, also rename them, leave these as "
    "they are, or set the table aside.",
)
@engine_option(
    "Program that merges Delta tables: delta-rs, in one task a table, or Delta's own, in many "
    "tasks, with Delta's jars. Default: delta-rs."
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
    "--unrepresentable",
    type=click.Choice(["raise", "null", "clamp"]),
    help="For a value that its column's type cannot hold: an error, null, or the nearest value. "
    "Default: raise.",
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="COLUMN=MASK",
    callback=lambda _, __, values: _parsed_masks(values),
    help="Leave out (drop), hash, or replace (constant:TEXT) the values of a column, "
    "schema.table.column, or of those that match a pattern such as '*.email' (repeatable; the "
    "first that matches counts). keep: no mask.",
)
@click.option(
    "--mask-key-file",
    type=click.File("rb"),
    metavar="FILE",
    help="File with the key of the hashes, of at least 16 bytes.",
)
@click.option(
    "--soft-deletes",
    is_flag=True,
    help="Keep rows that are deleted, with true in the column _is_deleted.",
)
@click.option(
    "--commit-columns",
    is_flag=True,
    help="Add the columns _commit_lsn and _commit_time, of a row's last change.",
)
@click.option(
    "--history",
    is_flag=True,
    help="Append a row for each change, with its kind and commit, in place of the tables' rows. "
    "Default: only for parquet:DIR.",
)
@click.option(
    "--dead-letters",
    is_flag=True,
    help="Leave out a change that does not decode, and record it in the table _dead_letters, in "
    "place of setting its table aside.",
)
@click.option(
    "--resume",
    multiple=True,
    metavar="TABLE",
    help="Resume a table that is set aside (repeatable).",
)
@click.option(
    "--replay",
    multiple=True,
    metavar="TABLE",
    help="Apply the changes of a table again, from its first dead letter on (repeatable).",
)
@conf_option
@json_option
@metrics_option()
def mirror(
    log: str,
    target: str,
    conf: dict[str, str],
    engine: str | None,
    resume: tuple[str, ...],
    replay: tuple[str, ...],
    staging: str | None,
    unrepresentable: str | None,
    as_json: bool,
    once: bool,
    tables: str,
    address: str | None,
    masks: dict[str, str],
    mask_key_file: BinaryIO | None,
    soft_deletes: bool,
    commit_columns: bool,
    history: bool,
    dead_letters: bool,
    **options: Any,
) -> None:
    """Keep the tables of a log as Delta or Iceberg tables, with Spark on this machine.

    Or append their history to Parquet files.

    A table schema.table is in DIR/schema/table, or is CATALOG.schema.table. New tables are mirrored
    from their first change on.
    """
    query = spark_module("mirroring.query", "the mirror")
    requests = spark_module("mirroring.requests", "the mirror")
    lake = spark_module("mirroring.lake", "the mirror")
    local = spark_module("local", "the mirror")
    masking = spark_module("mirroring.masks", "the mirror")
    key = None if mask_key_file is None else mask_key_file.read().rstrip(b"\r\n")
    chosen_masks = masking.Masks.parse(masks, key)
    row_columns = spark_module("mirroring.row_columns", "the mirror")
    Log(log)  # an error that needs no Spark
    engine, lakehouse = engine_for(target, engine)
    console = Console()
    report: MirrorReport = JsonLines(mirror)
    if console.is_terminal and not as_json:
        report = TerminalTable(f"{log} → {target}", console)
    last: list[MirroredBatch] = []
    manager = ServiceManager()

    with (
        mirror_endpoint(address, log, target) as watch,
        local.local_spark(settings_of_workers() | conf, lakehouse) as spark,
        report,
    ):

        def show(batch: MirroredBatch) -> None:
            last[:] = [batch]
            report.show(batch)
            if watch is not None:
                watch.report(batch)

        source = {"stagingPath": staging, "unrepresentable": unrepresentable}
        chosen = query.MirrorOptions(
            engine=engine,
            once=once,
            report=show,
            masks=chosen_masks,
            row_columns=row_columns.RowColumns(commit_columns, soft_deletes, history),
            dead_letters=dead_letters,
            source={name: each for name, each in source.items() if each is not None},
            **options,
        )
        for table in resume:
            requests.resume_table(spark, target, table, engine=engine)
        for table in replay:
            requests.replay_table(spark, log, target, table, engine=engine)
        place = lake.Lake.of(spark, target, engine, None)
        if watch is not None:
            watch.known(place.status(spark).read().values())
        with _signals() as signalled:
            running = query.start_mirror(spark, log, target, tables, chosen)
            manager.ready()
            with nullcontext() if watch is None else watch.running(running.query):
                while running.query.isActive:
                    manager.alive()
                    if last:
                        manager.status(summary(last[0]))
                    if signalled:
                        manager.stopping()
                        running.stop()
                    time.sleep(_POLL_SECONDS)
            failure = running.failure
        if failure is None and once:
            letters = spark_module("mirroring.dead_letters", "the mirror")
            recorded = letters.DeadLetters(place.dead_letters(spark), hides_values=False)
            _check(list(place.status(spark).read().values()), recorded.unnamed)
    if failure is not None:
        raise failure_of(failure)


def _check(tables: Sequence[TableStatus], unnamed: int) -> None:
    """Raise ``TableError`` if a target lacks changes.

    ``unnamed`` is the number of messages that do not decode and belong to no known table.
    """
    aside = [each.table for each in tables if each.state == "set aside"]
    if aside:
        raise TableError(
            f"{format_count(len(aside), 'table')} set aside: {', '.join(aside)}",
            hint="Their errors are in the table _mirror of the target. Resume them with --resume.",
        )
    lacking = [f"{each.dead_letters} of {each.table}" for each in tables if each.dead_letters]
    if unnamed:
        lacking.append(f"{unnamed} of no known table")
    if lacking:
        raise TableError(
            f"changes that do not decode were left out: {', '.join(lacking)}",
            hint="Their errors are in the table _dead_letters of the target. Remove the cause, and "
            "apply them with --replay.",
        )


def _parsed_masks(texts: Sequence[str]) -> dict[str, str]:
    masks: dict[str, str] = {}
    for text in texts:
        name, separator, mask = text.partition("=")
        if not separator:
            raise click.BadParameter(f"{text!r} is not COLUMN=MASK")
        if name in masks:
            raise click.BadParameter(f"{name} has two masks")
        masks[name] = mask
    return masks


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
