"""``pgwire-codec capture``: a replication slot into a log."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.catalog.publications import ALL_TABLES
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.capture.status import Status
from pgwire_codec.cli.arguments import DsnCommand, name_options
from pgwire_codec.cli.capture_report import JsonReport, Report, TerminalReport
from pgwire_codec.protocol.lsn import parse_lsn

_POLL_SECONDS = 0.1
_NOW = "now"

_EPILOG = """\b
Examples:
  pgwire-codec capture --dsn "host=db dbname=shop" --slot s --publication p --log shop.log \\
      --create-slot --create-publication "all tables"
  pgwire-codec capture --dsn "host=db dbname=shop" --slot s --publication p --log shop.log \\
      --snapshot --streaming parallel --two-phase
  pgwire-codec capture --slot s --publication p --log shop.log --until-lsn now --json

The log has nothing twice and lacks nothing, however often the capture, the connection or the
server is interrupted. SIGTERM and SIGINT (Ctrl-C) end it with all that arrived safe: exit status 0.
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
@click.option("--dsn", default="", help="libpq connection string or URI; else PGHOST and the like.")
@click.option("--slot", required=True, help="Name of the replication slot.")
@click.option(
    "--publication", required=True, multiple=True, help="A publication; may be given again."
)
@click.option("--log", required=True, metavar="DIR", help="The log: a folder, or a URI.")
@click.option("--snapshot", is_flag=True, help="Begin a new log with the tables as they are.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="How many tables the snapshot copies at once.",
)
@click.option("--create-slot", is_flag=True, help="Create the slot where it is missing.")
@click.option(
    "--create-publication",
    multiple=True,
    metavar="TABLE",
    help=f'Create the publication where it is missing: "{ALL_TABLES}", or a table (repeatable).',
)
@click.option("--binary", is_flag=True, help="Values in their binary form. PostgreSQL 14 on.")
@click.option(
    "--streaming",
    type=click.Choice(["off", "on", "parallel"]),
    default="off",
    show_default=True,
    help="Have large transactions sent while they run. PostgreSQL 14, parallel: 16 on.",
)
@click.option("--two-phase", is_flag=True, help="Have transactions sent at PREPARE. 15 on.")
@click.option(
    "--messages/--no-messages", default=None, help="pg_logical_emit_message; else where it can be."
)
@click.option(
    "--origin", type=click.Choice(["any", "none"]), help="none: not what the server replicates. 16."
)
@click.option("--compression", type=click.Choice(["lz4", "zstd"]), help="Of the log's segments.")
@click.option(
    "--segment-bytes",
    type=click.IntRange(min=1),
    default=128 << 20,
    show_default=True,
    help="A segment is sealed when it is so large.",
)
@click.option(
    "--segment-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="A segment is sealed when it is so old.",
)
@click.option(
    "--file-mode",
    metavar="OCTAL",
    default="0600",
    show_default=True,
    callback=_mode,
    help="Permissions of the log's files, as 0640.",
)
@click.option(
    "--flush-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="What arrives is on disk, and confirmed, after so long.",
)
@click.option(
    "--max-retries",
    type=click.IntRange(min=0),
    help="How many attempts to connect may fail one after the other; else any number.",
)
@click.option(
    "--until-lsn",
    metavar="LSN",
    callback=_lsn,
    help="End when the log has all up to here; now: as of now.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="End when nothing arrived for so long.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, as where there is no terminal.")
@click.option(
    "--report-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Between two reports; else 0.5 on a terminal, 10 in JSON.",
)
def capture(
    dsn: str,
    slot: str,
    publication: tuple[str, ...],
    log: str,
    snapshot: bool,
    jobs: int,
    create_publication: tuple[str, ...],
    until_lsn: int | str | None,
    idle_seconds: float | None,
    as_json: bool,
    report_seconds: float | None,
    **options: Any,
) -> None:
    """Capture a replication slot of a running server into a durable log.

    Only what is on disk is confirmed to the server, which then may forget it. Started again, the
    capture goes on where the log ends.
    """
    running = LogCapture(
        dsn,
        log,
        slot=slot,
        publication=publication,
        snapshot=snapshot,
        snapshot_jobs=jobs,
        create_publication=_tables(create_publication),
        **options,
    )
    console = Console()
    report: Report
    if as_json or not console.is_terminal:
        report = JsonReport(report_seconds or 10.0)
    else:
        report = TerminalReport(report_seconds or 0.5, f"{slot} → {log}", console)
    with _signals() as signalled, LagMeter(dsn) as meter, report:
        worker = _Worker(running, until_lsn=until_lsn, idle_seconds=idle_seconds)
        worker.start()
        due, shown = 0.0, None
        while worker.is_alive():
            if signalled:
                running.stop()
            status = _worded(running.status)
            # What changed is shown at once.
            if time.monotonic() >= due or (status.state, status.problem) != shown:
                report.show(status, meter.measure(status))
                due = time.monotonic() + report.interval
                shown = (status.state, status.problem)
            worker.join(_POLL_SECONDS)
        error = None if worker.error is None else _in_options(str(worker.error))
        report.end(_worded(running.status), meter.measure(running.status), error)
    if worker.error is not None:
        raise worker.error


def _worded(status: Status) -> Status:
    """Return a status whose texts name the command's options."""
    problem = None if status.problem is None else _in_options(status.problem)
    return replace(status, problem=problem, notes=tuple(map(_in_options, status.notes)))


def _in_options(text: str) -> str:
    return name_options(text, capture)


class _Worker(threading.Thread):
    """Runs the capture beside the main thread, which has the signals and the terminal."""

    def __init__(self, running: LogCapture, **limits: Any) -> None:
        super().__init__(name="capture")
        self._running = running
        self._limits = limits
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._running.run(**self._limits)
        except Exception as error:  # noqa: BLE001  (raised in the main thread)
            self.error = error


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Note SIGTERM and SIGINT in a list; a second one of the same ends the process at once."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(number, before[number])

    before: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)
    }
    for number in before:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tables(given: tuple[str, ...]) -> Any:
    if given == (ALL_TABLES,):
        return ALL_TABLES
    return list(given) or False
