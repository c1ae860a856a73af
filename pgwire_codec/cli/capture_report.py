"""Reports of a capture's status: a panel on a terminal, or JSON lines."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final, Protocol

import click
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgwire_codec.capture.lag import Lag
from pgwire_codec.capture.status import Status
from pgwire_codec.format import format_count, format_size, printable
from pgwire_codec.protocol.lsn import format_lsn

_BAR_WIDTH: Final = 40


class StatusReport(Protocol):
    """Report of a capture's status. A context manager; ``interval`` is in seconds."""

    interval: float

    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: object) -> None: ...
    def show(self, status: Status, lag: Lag | None) -> None:
        """Show the current status."""

    def end(self, status: Status, lag: Lag | None, error: str | None) -> None:
        """Show the final status."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages and bytes per second."""

    messages: float = 0.0
    bytes: float = 0.0


class RateMeter:
    """Rates between one status and the next."""

    def __init__(self) -> None:
        self._before: tuple[float, Status] | None = None

    def measure(self, status: Status) -> Rates:
        now = time.monotonic()
        before, self._before = self._before, (now, status)
        if before is None or now <= before[0]:
            return Rates()
        seconds = now - before[0]
        return Rates(
            (status.messages - before[1].messages) / seconds,
            (status.bytes - before[1].bytes) / seconds,
        )


class JsonReport:
    """JSON lines. See :class:`StatusReport`."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._rates = RateMeter()

    def __enter__(self) -> JsonReport:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, status: Status, lag: Lag | None) -> None:
        self._print(status, lag, status.state, status.problem)

    def end(self, status: Status, lag: Lag | None, error: str | None) -> None:
        if error is None:
            self._print(status, lag, status.state, None)
        else:
            self._print(status, lag, "failed", error)

    def _print(self, status: Status, lag: Lag | None, state: str, problem: str | None) -> None:
        rates = self._rates.measure(status)
        line = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "state": state,
            "messages": status.messages,
            "bytes": status.bytes,
            "messages_per_second": round(rates.messages, 1),
            "bytes_per_second": round(rates.bytes, 1),
            "lag_bytes": None if lag is None else lag.bytes,
            "lag_seconds": None if lag is None else round(lag.seconds, 3),
            "segments": status.segments,
            "pruned_segments": status.pruned_segments,
            "log_bytes": status.log_bytes,
            "snapshot_rows": status.snapshot_rows,
            "snapshot_rows_expected": status.snapshot_rows_expected,
            "snapshot_tables": status.snapshot_tables,
            "snapshot_tables_expected": status.snapshot_tables_expected,
            "snapshot_bytes": status.snapshot_bytes,
            "snapshot_bytes_expected": status.snapshot_bytes_expected,
            "connections": status.connections,
            "confirmed_lsn": _position(status.confirmed_lsn),
            "received_lsn": format_lsn(status.received_lsn),
            "problem": problem,
            "notices": status.notices,
            "notes": status.notes,
        }
        click.echo(json.dumps(line))


class TerminalReport:
    """A panel that is updated in place. See :class:`StatusReport`."""

    def __init__(self, interval: float, title: str, console: Console) -> None:
        self.interval = interval
        self._title = title
        self._rates = RateMeter()
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> TerminalReport:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def show(self, status: Status, lag: Lag | None) -> None:
        self._live.update(self._table(status, lag), refresh=True)

    def end(self, status: Status, lag: Lag | None, error: str | None) -> None:
        self.show(status, lag)

    def _table(self, status: Status, lag: Lag | None) -> Table:
        rates = self._rates.measure(status)
        title = Text(printable(self._title))
        table = Table(title=title, title_justify="left", show_header=False, box=None)
        table.add_column(style="dim")
        table.add_column()
        for name, value in rows(status, rates, lag):
            table.add_row(name, Text(printable(value)))
        if status.state == "snapshot":
            total, copied = status.snapshot_rows_expected, status.snapshot_rows
            table.add_row("", ProgressBar(total=total, completed=copied, width=_BAR_WIDTH))
        return table


def rows(status: Status, rates: Rates, lag: Lag | None) -> list[tuple[str, str]]:
    """Return the names and values of the panel."""
    found = [
        ("state", status.state),
        ("messages", f"{status.messages:,} ({rates.messages:,.0f}/s)"),
        ("bytes", f"{format_size(status.bytes)} ({format_size(rates.bytes)}/s)"),
        ("behind", "unknown" if lag is None else f"{format_size(lag.bytes)}, {lag.seconds:.1f} s"),
        ("log", f"{format_size(status.log_bytes)} in {status.segments:,} segments"),
        ("confirmed", _position(status.confirmed_lsn) or "nothing yet"),
    ]
    if status.snapshot_tables_expected:
        found.insert(1, ("snapshot", _snapshot(status, rates)))
    if status.pruned_segments:
        found.append(("pruned", format_count(status.pruned_segments, "segment")))
    if status.connections > 1:
        found.append(("connections", f"{status.connections:,}"))
    if status.problem is not None:
        found.append(("problem", " ".join(status.problem.split())))
    return found + [("note", note) for note in status.notes]


def summary(status: Status) -> str:
    """Return the status in a line of text."""
    if status.problem is not None:
        return f"{status.state}: {status.problem}"
    if status.state != "streaming":
        known = status.state == "snapshot" and status.snapshot_tables_expected
        return f"{status.state}: {_snapshot(status, Rates())}" if known else status.state
    confirmed = _position(status.confirmed_lsn) or "nothing"
    return f"{status.state}: {format_count(status.messages, 'message')}, confirmed {confirmed}"


def _snapshot(status: Status, rates: Rates) -> str:
    """Return the snapshot's progress: rows, tables, bytes and the remaining time."""
    if status.state != "snapshot":
        return f"{status.snapshot_rows:,} rows of {status.snapshot_tables:,} tables"
    copied = (
        f"{status.snapshot_rows:,} of about {status.snapshot_rows_expected:,} rows, "
        f"{status.snapshot_tables:,} of {status.snapshot_tables_expected:,} tables, "
        f"{format_size(status.snapshot_bytes)} of {format_size(status.snapshot_bytes_expected)}"
    )
    rows_to_come = status.snapshot_rows_expected - status.snapshot_rows
    if not (rates.messages and rows_to_come):
        return copied
    return f"{copied}, about {timedelta(seconds=round(rows_to_come / rates.messages))} left"


def _position(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)
