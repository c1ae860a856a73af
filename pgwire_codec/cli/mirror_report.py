"""Reports of a mirror: a table on a terminal, or JSON lines."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgwire_codec.cli.arguments import name_options
from pgwire_codec.format import format_count, format_duration, format_number, printable
from pgwire_codec.lake.status import INCOMPLETE, MODIFIED, RETRYING
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    from pgwire_codec.lake.mirror_options import MirroredBatch
    from pgwire_codec.lake.status import TableStatus


class MirrorReport(Protocol):
    """Report of the micro-batches of a mirror. A context manager."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: object) -> None: ...
    def show(self, batch: MirroredBatch) -> None:
        """Show the tables after a micro-batch."""


def lag_seconds(table: TableStatus, now: datetime) -> float | None:
    """Return the time from a table's last commit on the server; None if that is not known."""
    return None if table.commit_time is None else (now - table.commit_time).total_seconds()


def summary(batch: MirroredBatch) -> str:
    """Return the result of a micro-batch in a line of text."""
    aside = [each.table for each in batch.tables if each.state == "set aside"]
    text = f"applied micro-batch {batch.batch}, up to {format_lsn(batch.until)}, to "
    text += format_count(len(batch.tables), "table")
    text += f"; set aside: {', '.join(aside)}" if aside else ""
    for state in (RETRYING, INCOMPLETE, MODIFIED):
        names = [each.table for each in batch.tables if each.state == state]
        text += f"; {state}: {', '.join(names)}" if names else ""
    lacking = sum(each.dead_letters for each in batch.tables)
    return f"{text}; left out: {format_count(lacking, 'change')}" if lacking else text


def plain_table(table: TableStatus, now: datetime, command: click.Command) -> dict[str, Any]:
    """Return the status of a table for JSON, with hints for a command."""
    lag = lag_seconds(table, now)
    return {
        "table": table.table,
        "state": table.state,
        "changes": table.changes,
        "commit_lsn": None if table.commit_lsn is None else format_lsn(table.commit_lsn),
        "lag_seconds": None if lag is None else round(lag, 3),
        "error": table.error,
        "hint": None if table.hint is None else name_options(table.hint, command),
        "dead_letters": table.dead_letters,
        "incomplete": {name: format_lsn(lsn) for name, lsn in table.incomplete_columns.items()},
    }


class JsonLines:
    """A line for each table with changes, with hints for a command. See :class:`MirrorReport`."""

    def __init__(self, command: click.Command) -> None:
        self._command = command

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, batch: MirroredBatch) -> None:
        now = datetime.now(timezone.utc)
        for table in batch.changed:
            line = {
                "time": now.isoformat(timespec="milliseconds"),
                "batch": batch.batch,
                "until_lsn": format_lsn(batch.until),
            }
            click.echo(json.dumps(line | plain_table(table, now, self._command)))


class TerminalTable:
    """A table that is updated in place. See :class:`MirrorReport`."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._live = Live(console=console, auto_refresh=False)
        self._changes: dict[str, int] = {}

    def __enter__(self) -> TerminalTable:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def show(self, batch: MirroredBatch) -> None:
        for table in batch.changed:
            self._changes[table.table] = self._changes.get(table.table, 0) + table.changes
        self._live.update(self._table(batch), refresh=True)

    def _table(self, batch: MirroredBatch) -> Table:
        title = Text(printable(f"{self._title}: batch {batch.batch}, {format_lsn(batch.until)}"))
        shown = Table(title=title, title_justify="left", box=None)
        for name in ("table", "changes", "lag", "batch", "state"):
            shown.add_column(name, justify="left" if name in ("table", "state") else "right")
        now = datetime.now(timezone.utc)
        for table in batch.tables:
            lag = lag_seconds(table, now)
            reason = table.error or ", ".join(table.incomplete)
            state = f"{table.state}: {reason}" if reason else table.state
            if table.dead_letters:
                state = f"{state}; left out: {format_count(table.dead_letters, 'change')}"
            cells = (
                table.table,
                format_number(self._changes.get(table.table, 0)),
                "" if lag is None else format_duration(max(lag, 0) * 1e6),
                "" if table.batch is None else str(table.batch),
                state,
            )
            shown.add_row(*(Text(printable(each)) for each in cells))
        return shown
