"""``pgwire-codec mirror``: keep the tables of a log as tables of a lakehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from rich.console import Console

from pgwire_codec.cli.lake_options import (
    conf_option,
    json_option,
    log_option,
    opened_runner,
    runner_option,
    tables_option,
    to_option,
)
from pgwire_codec.cli.memory import settings_of_workers
from pgwire_codec.cli.metrics import metrics_option, mirror_endpoint
from pgwire_codec.cli.mirror_report import JsonLines, MirrorReport, TerminalTable, summary
from pgwire_codec.cli.service_manager import ServiceManager
from pgwire_codec.cli.signals import recorded_signals
from pgwire_codec.errors import TableError
from pgwire_codec.format import format_count
from pgwire_codec.lake.dead_letters import DeadLetters
from pgwire_codec.lake.evolution import Policy, TablePolicies
from pgwire_codec.lake.lakehouse import Lake, parse_target
from pgwire_codec.lake.masks import Masks
from pgwire_codec.lake.mirror_options import MirrorOptions
from pgwire_codec.lake.mirroring import TURN_BYTES, Mirror
from pgwire_codec.lake.requests import replay_table, resume_table
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.lake.status import REQUESTED, RETRYING, SET_ASIDE
from pgwire_codec.lake.tables.target import WRITE_MODES, WriteMode
from pgwire_codec.log import Log

if TYPE_CHECKING:
    from pgwire_codec.lake.mirror_options import MirroredBatch
    from pgwire_codec.lake.status import TableStatus
    from pgwire_codec.metrics.mirror_metrics import MirrorWatch

_EPILOG: Final = """\b
Examples:
  pgwire-codec mirror --log shop.log --to delta:/lake/shop
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --checkpoint /lake/checkpoint \\
      --tables 'public.*,sales.*' --every '10 seconds'
  pgwire-codec mirror --runner local --log shop.log --to delta:/lake/shop
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --once --resume public.orders
  pgwire-codec mirror --log shop.log --to delta:/lake/shop --once --dead-letters \\
      --unrepresentable null --replay public.orders
  pgwire-codec mirror --log shop.log --to parquet:/lake/history --every '5 minutes'
  pgwire-codec mirror --log shop.log --to iceberg:lake \\
      --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \\
      --conf spark.sql.catalog.lake.type=rest \\
      --conf spark.sql.catalog.lake.uri=http://localhost:8181

Each change is applied once, also after a failure. SIGTERM and SIGINT (Ctrl-C) end the command after
the running micro-batch: exit status 0. A table that fails is set aside, and the others go on; after
an error that may pass, it is tried again. A table is incomplete if rows lack the values of a new
column, and modified if another program has changed its rows. The table _mirror in the target (for
Iceberg, _mirror.status) has the state of each.
"""


#: Seconds between two looks at signals and at the mirror's thread.
_LOOK_SECONDS: Final = 0.2


@click.command(epilog=_EPILOG)
@log_option
@to_option(
    "delta:DIR, the folder of the tables, as path or URI; iceberg:CATALOG[.NAMESPACE]; or "
    "parquet:DIR, for histories."
)
@runner_option
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Folder that records up to where no table needs the log any more, for log prune "
    "--consumer file:DIR/lsn.",
)
@tables_option
@click.option("--once", is_flag=True, help="End when the changes in the log are applied.")
@click.option(
    "--every",
    metavar="TIME",
    help="Shortest time between two micro-batches, as '10 seconds'; each writes files. Default: 1 "
    "second for a disk, 10 seconds for a store.",
)
@click.option(
    "--on-schema-change",
    type=click.Choice(["evolve", "rename", "freeze", "fail"]),
    default="evolve",
    show_default=True,
    help="When a table's columns change: change the target's, also rename them, leave these as "
    "they are, or set the table aside.",
)
@click.option(
    "--table-policy",
    "table_policies",
    multiple=True,
    metavar="TABLE=POLICY",
    callback=lambda _, __, values: _pairs(values, "TABLE=POLICY"),
    help="Another --on-schema-change of a table, or of tables that match a pattern such as "
    "'public.*' (repeatable; the first that matches counts).",
)
@click.option(
    "--write-mode",
    type=click.Choice(WRITE_MODES),
    default="merge-on-read",
    show_default=True,
    help="How rows of new tables are deleted: by deletion vectors, or by writing their files "
    "again, for readers without vectors.",
)
@click.option(
    "--keep",
    metavar="TIME",
    default="1 hour",
    show_default=True,
    help="Time for which old versions of new tables can be read; then the files are removed that "
    "only these have.",
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
    callback=lambda _, __, values: _pairs(values, "COLUMN=MASK"),
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
    "--hold",
    metavar="TIME",
    default="7 days",
    show_default=True,
    help="Time for which the LSN in --checkpoint waits for a table that is set aside. Afterwards, "
    "log prune may remove its changes.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Replace the tables of another log by those of this one, which should begin with a "
    "snapshot. Default: such a lake is an error.",
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
    runner: str,
    conf: dict[str, str],
    resume: tuple[str, ...],
    replay: tuple[str, ...],
    as_json: bool,
    once: bool,
    checkpoint: str | None,
    tables: str,
    write_mode: WriteMode,
    keep: str,
    address: str | None,
    **others: Any,
) -> None:
    """Keep the tables of a log as Delta or Iceberg tables, with Spark or without it.

    Or append their history to Parquet files.

    A table schema.table is in DIR/schema/table, or is CATALOG.schema.table. New tables are mirrored
    from their first change on.
    """
    valid = mirror_options(
        target=target, runner=runner, once=once, write_mode=write_mode, keep=keep, **others
    )
    Log(log)  # an error that needs no Spark
    console = Console()
    report: MirrorReport = JsonLines(mirror)
    if console.is_terminal and not as_json:
        report = TerminalTable(f"{log} → {target}", console)
    last: list[MirroredBatch] = []
    manager = ServiceManager()
    with mirror_endpoint(address, log, target) as watch:

        def show(batch: MirroredBatch) -> None:
            last[:] = [batch]
            report.show(batch)
            if watch is not None:
                watch.report(batch)

        def alive() -> None:
            manager.alive()
            if last:
                manager.status(summary(last[0]))

        options = with_fields(valid, report=show)
        with ExitStack() as context:
            settings = settings_of_workers() | conf
            lake, workers = context.enter_context(
                opened_runner(
                    runner, target, settings, "the mirror", write_mode=write_mode, keep=keep
                )
            )
            context.enter_context(report)
            for table in resume:
                resume_table(lake, table)
            for table in replay:
                replay_table(lake, log, table)
            if watch is not None:
                watch.known(lake.status().read().values())
            signalled = context.enter_context(recorded_signals())
            running = Mirror(log, lake, tables, workers, options, checkpoint)
            _run(running, signalled, manager, alive, watch)
            if once and not signalled:
                letters = DeadLetters(lake.dead_letters(), hides_values=False)
                _check(list(lake.status().read().values()), letters.unnamed)


def mirror_options(
    *,
    target: str,
    runner: str,
    once: bool,
    every: str | None,
    on_schema_change: Policy,
    table_policies: dict[str, Policy],
    write_mode: WriteMode,
    keep: str,
    masks: dict[str, str],
    mask_key_file: BinaryIO | None,
    soft_deletes: bool,
    commit_columns: bool,
    history: bool,
    dead_letters: bool,
    unrepresentable: str | None,
    hold: str,
    replace: bool = False,
) -> MirrorOptions:
    """Return the options of a mirror by those of the command.

    Raises ``OptionError`` for an invalid one.
    """
    if runner == "local":
        Lake.parse(target, None, None, write_mode, keep)
    else:
        parse_target(target)
    key = None if mask_key_file is None else mask_key_file.read().rstrip(b"\r\n")
    return MirrorOptions(
        once=once,
        every=every,
        policies=TablePolicies.parse(on_schema_change, table_policies),
        masks=Masks.parse(masks, key),
        row_columns=RowColumns(commit_columns, soft_deletes, history),
        dead_letters=dead_letters,
        unrepresentable=unrepresentable or "raise",
        hold=hold,
        replace=replace,
        max_bytes=TURN_BYTES if runner == "local" else None,
    )


def _run(
    running: Mirror,
    signalled: list[int],
    manager: ServiceManager,
    alive: Callable[[], None],
    watch: MirrorWatch | None,
) -> None:
    """Run a mirror in a thread until a signal."""
    manager.ready()
    with nullcontext() if watch is None else watch.running(running):
        running.start()
        while not running.awaitTermination(_LOOK_SECONDS):
            alive()
            if signalled:
                manager.stopping()
                running.stop()


def _check(tables: Sequence[TableStatus], unnamed: int) -> None:
    """Raise ``TableError`` if a target lacks changes.

    ``unnamed`` is the number of messages that do not decode and belong to no known table.
    """
    aside = [each.table for each in tables if each.state == SET_ASIDE]
    waiting = [each.table for each in tables if each.state in (RETRYING, *REQUESTED)]
    found = [
        f"{format_count(len(names), 'table')} {what}: {', '.join(names)}"
        for what, names in (("set aside", aside), ("not complete", waiting))
        if names
    ]
    if found:
        raise TableError(
            "; ".join(found),
            hint="Their errors are in the table _mirror of the target. Resume them with --resume, "
            "or those of `pgwire-codec run` with `pgwire-codec resume`.",
        )
    lacking = [f"{each.dead_letters} of {each.table}" for each in tables if each.dead_letters]
    if unnamed:
        lacking.append(f"{unnamed} of no known table")
    if lacking:
        raise TableError(
            f"changes that do not decode were left out: {', '.join(lacking)}",
            hint="Their errors are in the table _dead_letters of the target. Remove the cause, and "
            "apply them with --replay, or those of `pgwire-codec run` with `pgwire-codec resume`.",
        )


def _pairs(texts: Sequence[str], form: str) -> dict[str, str]:
    """Return the pairs of a repeatable option, whose values have a form like ``TABLE=POLICY``."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.BadParameter(f"{text!r} is not {form}")
        if name in pairs:
            raise click.BadParameter(f"{name} has two values")
        pairs[name] = value
    return pairs
