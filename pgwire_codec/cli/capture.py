"""``pgwire-codec capture``: capture a replication slot into a log."""

from __future__ import annotations

import threading
import time
from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.console import Console

from pgwire_codec.capture import LogCapture, PluginOptions, SegmentOptions, with_password_command
from pgwire_codec.capture.catalog.publications import ALL_TABLES
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.capture.options import (
    FLUSH_SECONDS,
    OBJECT_FLUSH_SECONDS,
    SNAPSHOT_JOBS,
    Origin,
    Streaming,
)
from pgwire_codec.capture.status import Status
from pgwire_codec.cli.arguments import (
    PASSWORD_COMMAND,
    DsnCommand,
    compression_option,
    min_free_option,
    name_options,
)
from pgwire_codec.cli.capture_report import JsonReport, StatusReport, TerminalReport, summary
from pgwire_codec.cli.metrics import capture_endpoint, metrics_option
from pgwire_codec.cli.retention import retention_of, retention_options
from pgwire_codec.cli.service_manager import ServiceManager
from pgwire_codec.cli.signals import recorded_signals
from pgwire_codec.metrics.health import STALLED_AFTER
from pgwire_codec.protocol.lsn import parse_lsn

if TYPE_CHECKING:
    from pgwire_codec.log import Consumer

_POLL_SECONDS = 0.1
_JSON_SECONDS = 10.0  # between reports
_TERMINAL_SECONDS = 0.5
_NOW = "now"
_ABOVE_ZERO = click.FloatRange(min=0, min_open=True)

_EPILOG = """\b
Examples:
  pgwire-codec capture --dsn "host=db dbname=shop" --slot s --publication p --log shop.log \\
      --create-slot --create-publication "all tables"
  pgwire-codec capture --dsn "host=db dbname=shop" --slot s --publication p --log shop.log \\
      --snapshot --streaming parallel --two-phase
  pgwire-codec capture --dsn "host=db dbname=shop" --slot s --publication p --log shop.log \\
      --keep 7d --consumer file:/lake/checkpoint/lsn
  pgwire-codec capture --slot s --publication p --log shop.log --until-lsn now --json

The log contains every change exactly once, however often the capture, the connection or the server
is interrupted. SIGTERM and SIGINT (Ctrl-C) end it with all that arrived safe: exit status 0.
"""


def _lsn(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == _NOW:
        return value
    try:
        return parse_lsn(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither an LSN, as 0/1718648, nor now") from None


def _mode(ctx: click.Context, param: click.Parameter, value: str) -> int:
    try:
        return int(value, 8)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an octal number, as 0640") from None


@click.command(cls=DsnCommand, epilog=_EPILOG)
@click.option("--dsn", default="", help="libpq connection string or URI. Default: PGHOST etc.")
@PASSWORD_COMMAND
@click.option("--slot", required=True, help="Name of the replication slot.")
@click.option(
    "--publication", required=True, multiple=True, help="Name of a publication (repeatable)."
)
@click.option("--log", required=True, metavar="DIR", help="Directory or URI of the log.")
@click.option("--snapshot", is_flag=True, help="Begin a new log with a copy of the tables.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=SNAPSHOT_JOBS,
    show_default=True,
    help="Number of connections that the snapshot copies over.",
)
@click.option(
    "--add-new-tables",
    is_flag=True,
    help="Copy each published table that the log has nothing of, also later ones.",
)
@click.option("--create-slot", is_flag=True, help="Create the slot if it does not exist.")
@click.option(
    "--failover",
    is_flag=True,
    help="Create a slot that standbys synchronize, so that it survives a failover (PostgreSQL "
    "17+).",
)
@click.option(
    "--create-publication",
    multiple=True,
    metavar="TABLE",
    help=f'Create the publication if it does not exist: "{ALL_TABLES}", or a table (repeatable).',
)
@click.option("--binary", is_flag=True, help="Send values in binary form (PostgreSQL 14+).")
@click.option(
    "--streaming",
    type=click.Choice(get_args(Streaming)),
    default=PluginOptions.streaming,
    show_default=True,
    help="Send large transactions while they run (PostgreSQL 14+; parallel: 16+).",
)
@click.option(
    "--two-phase", is_flag=True, help="Send transactions at PREPARE TRANSACTION (PostgreSQL 15+)."
)
@click.option(
    "--messages/--no-messages",
    default=PluginOptions.messages,
    help="Include pg_logical_emit_message() output (PostgreSQL 14+). Default: on if the server "
    "supports it.",
)
@click.option(
    "--origin",
    type=click.Choice(get_args(Origin)),
    default=PluginOptions.origin,
    help="none: omit changes that the server received by replication (PostgreSQL 16+).",
)
@compression_option
@click.option(
    "--segment-bytes",
    type=click.IntRange(min=1),
    default=SegmentOptions.segment_bytes,
    show_default=True,
    help="Seal a segment at this size.",
)
@click.option(
    "--segment-seconds",
    type=_ABOVE_ZERO,
    default=SegmentOptions.segment_seconds,
    show_default=True,
    help="Seal a segment at this age.",
)
@click.option(
    "--file-mode",
    metavar="OCTAL",
    default=f"{SegmentOptions.file_mode:04o}",
    show_default=True,
    callback=_mode,
    help="Permissions of the log's files, as 0640.",
)
@click.option(
    "--flush-seconds",
    type=_ABOVE_ZERO,
    help="Minimum time between two flushes, which make messages durable and confirm them. "
    f"Default: {FLUSH_SECONDS}, in an object store {OBJECT_FLUSH_SECONDS:.0f}.",
)
@retention_options
@min_free_option("Wait, and confirm nothing more, while less is free on the log's disk.")
@click.option(
    "--max-retries",
    type=click.IntRange(min=0),
    help="Maximum number of consecutive failed connections to retry. Default: any number.",
)
@click.option(
    "--until-lsn",
    metavar="LSN",
    callback=_lsn,
    help="End once the log has everything up to this LSN, or up to now.",
)
@click.option("--idle-seconds", type=_ABOVE_ZERO, help="End after this long without a message.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines. Default: only without a terminal."
)
@click.option(
    "--report-seconds",
    type=_ABOVE_ZERO,
    help=f"Seconds between two reports. Default: {_TERMINAL_SECONDS} on a terminal, "
    f"{_JSON_SECONDS:.0f} in JSON.",
)
@metrics_option()
def capture(
    until_lsn: int | str | None,
    idle_seconds: float | None,
    as_json: bool,
    report_seconds: float | None,
    address: str | None,
    **options: Any,
) -> None:
    """Capture a replication slot of a running server into a durable log.

    Changes are confirmed to the server, which may then discard them, once they are on disk. After
    an interruption, the capture resumes at the end of the log.
    """
    running = log_capture(**options)
    console = Console()
    report: StatusReport
    if as_json or not console.is_terminal:
        report = JsonReport(report_seconds or _JSON_SECONDS)
    else:
        report = TerminalReport(
            report_seconds or _TERMINAL_SECONDS, f"{running.slot} → {options['log']}", console
        )
    meter = running.lag_meter()
    with capture_endpoint(address, running, meter), recorded_signals() as signalled, meter, report:
        worker = _Worker(running, until_lsn=until_lsn, idle_seconds=idle_seconds)
        worker.start()
        _show_while_alive(worker, report, meter, signalled)
        error = None if worker.error is None else _in_options(str(worker.error))
        report.end(_worded(running.status), meter.measure(running.status), error)
    if worker.error is not None:
        raise worker.error


def log_capture(
    *,
    dsn: str,
    password_command: str | None,
    slot: str,
    log: str,
    jobs: int,
    create_publication: tuple[str, ...],
    keep: timedelta | None,
    max_bytes: int | None,
    consumers: tuple[Consumer, ...],
    **options: Any,
) -> LogCapture:
    """Return the capture of the command's options, which nothing is done for yet.

    Raises ``OptionError`` for an invalid one.
    """
    plugin = PluginOptions(**_fields_of(PluginOptions, options))
    segments = SegmentOptions(**_fields_of(SegmentOptions, options))
    return LogCapture(
        with_password_command(dsn, password_command),
        log,
        slot=slot,
        options=plugin,
        snapshot_jobs=jobs,
        create_publication=_tables(create_publication),
        segments=segments,
        retention=retention_of(keep, max_bytes, consumers),
        **options,
    )


def _fields_of(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of a dataclass from the options, and return them."""
    return {field.name: options.pop(field.name) for field in fields(kind)}


def _show_while_alive(
    worker: _Worker, report: StatusReport, meter: LagMeter, signalled: list[int]
) -> None:
    """Report the status until the capture ends; stop it at the first signal."""
    manager = ServiceManager()
    due, shown = 0.0, None
    while worker.is_alive():
        if signalled:
            manager.stopping()
            worker.running.stop()
        status = _worded(worker.running.status)
        slot = meter.slot_status
        if slot is not None and slot.waits_for is not None:
            status = replace(status, notes=(*status.notes, slot.waits_for))
        # A change of state, or of the notes, is reported at once.
        told = (status.state, status.problem, status.notes)
        if time.monotonic() >= due or told != shown:
            report.show(status, meter.measure(status))
            manager.status(summary(status))
            due = time.monotonic() + report.interval
            shown = told
        # A server that is down is waited for; one that refuses the capture ends the start.
        if status.state in ("streaming", "waiting") or status.snapshot_tables_expected:
            manager.ready()
        if worker.running.stalled_seconds < STALLED_AFTER:
            manager.alive()
        worker.join(_POLL_SECONDS)


def _worded(status: Status) -> Status:
    """Return the status with Python's arguments replaced by the command's options."""
    problem = None if status.problem is None else _in_options(status.problem)
    return replace(status, problem=problem, notes=tuple(map(_in_options, status.notes)))


def _in_options(text: str) -> str:
    return name_options(text, capture)


class _Worker(threading.Thread):
    """Thread that runs the capture; the main thread has the signals and the terminal."""

    def __init__(self, running: LogCapture, **limits: Any) -> None:
        super().__init__(name="capture")
        self.running = running
        self._limits = limits
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.running.run(**self._limits)
        except Exception as error:  # noqa: BLE001  (raised in the main thread)
            self.error = error


def _tables(given: tuple[str, ...]) -> Any:
    if given == (ALL_TABLES,):
        return ALL_TABLES
    return list(given) or False
