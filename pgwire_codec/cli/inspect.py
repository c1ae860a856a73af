"""The command ``pgwire-codec inspect``: the messages of a capture, for people or programs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import click
from rich.console import Console
from rich.text import Text

from pgwire_codec.cli.capture_file import BadEntry, StoredMessage, read_messages
from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.message_json import problem_to_json, to_json
from pgwire_codec.cli.message_line import Line, format_message, format_problem
from pgwire_codec.cli.relation_tracker import Change, RelationTracker, qualified_name
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol import messages as m
from pgwire_codec.protocol.lsn import format_lsn

#: Index, entry of the file, and its message or the reason why it cannot be decoded.
_Item: TypeAlias = tuple[int, StoredMessage | BadEntry, m.LogicalMessage | DecodeError | str]

#: Messages that open a group of others, and those that close one.
_OPENING = (m.Begin, m.BeginPrepare, m.StreamStart)
_CLOSING = (m.Commit, m.Prepare, m.StreamStop)
#: Messages about a whole transaction, outside of any group.
_ENDING = (m.StreamCommit, m.StreamAbort, m.StreamPrepare, m.CommitPrepared, m.RollbackPrepared)

_EPILOG = """\b
Examples:
  pgwire-codec inspect capture.jsonl.gz
  pgwire-codec inspect --table public.orders --limit 20 log.parquet
  pgwire-codec inspect --json capture.arrow | jq 'select(.type == "Delete")'
"""


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a message.")
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of messages to show.")
@click.option("--table", help="Show only this table's messages: NAME or SCHEMA.NAME.")
def inspect(file: Path, as_json: bool, limit: int | None, table: str | None) -> None:
    """Show the messages of a capture.

    FILE is JSON lines (plain or gzipped), Parquet or Arrow IPC. A value is shown as 'text' or
    x'binary'. NULL, (unchanged) for a TOAST value that the server did not repeat, and (not sent)
    for a column outside the key are not quoted.

    The exit status is 4 if a message cannot be decoded. The other messages are shown all the same.
    """
    tracker = RelationTracker()
    printer = _JsonPrinter(tracker) if as_json else _Printer(tracker)
    items = _decoded(file, tracker)
    if table:
        items = _of_table(items, _TableFilter(table, tracker))
    bad = 0
    for index, entry, message in islice(items, limit):
        if isinstance(message, DecodeError | str):
            bad += 1
            printer.show_problem(index, entry, message)
        else:
            printer.show(index, entry, message)
    if bad:
        raise Failure(f"could not decode {bad} of the messages in {file}")


def _decoded(file: Path, tracker: RelationTracker) -> Iterator[_Item]:
    for index, entry in enumerate(read_messages(file)):
        message: m.LogicalMessage | DecodeError | str
        if isinstance(entry, BadEntry):
            message = entry.reason
        else:
            try:
                message = tracker.decode(entry.data)
            except DecodeError as error:
                message = error
        yield index, entry, message


def _of_table(items: Iterator[_Item], table_filter: _TableFilter) -> Iterator[_Item]:
    opening: _Item | None = None  # buffered until the table occurs in its group
    for item in items:
        message = item[2]
        if isinstance(message, _OPENING):
            opening = item
            table_filter.open(message)
        elif isinstance(message, DecodeError | str):
            yield item
        elif table_filter.selects(message):
            if opening is not None:
                yield opening
            opening = None
            yield item
        elif isinstance(message, _CLOSING):
            opening = None


class _TableFilter:
    """Filter that selects a table's messages and the ends of their transactions."""

    def __init__(self, table: str, tracker: RelationTracker) -> None:
        self._table = table
        self._tracker = tracker
        self._xid = 0  # of the transaction that is open
        self._occurs = False  # in the group that is open
        self._xids: set[int] = set()  # of transactions in which it occurs

    def open(self, message: m.Begin | m.BeginPrepare | m.StreamStart) -> None:
        """Start a transaction, or a block of one."""
        self._xid = message.xid
        self._occurs = False

    def selects(self, message: m.LogicalMessage) -> bool:
        """Check whether a message, which is not an opening one, is to be shown."""
        if isinstance(message, _CLOSING):
            # A Prepare without Begin Prepare closes a transaction that nothing opened.
            occurs, self._occurs = self._occurs, False
            return occurs
        if isinstance(message, _ENDING):
            return message.xid in self._xids
        found = any(self._is_named(relation) for relation in self._relations_of(message))
        if found:
            self._occurs = True
            self._xids.add(self._xid)
        return found

    def _relations_of(self, message: m.LogicalMessage) -> list[m.Relation | None]:
        if isinstance(message, m.Relation):
            return [message]
        if isinstance(message, Change):
            return [self._tracker.relation(message.relation_oid)]
        if isinstance(message, m.Truncate):
            return [self._tracker.relation(oid) for oid in message.relation_oids]
        return []

    def _is_named(self, relation: m.Relation | None) -> bool:
        return relation is not None and self._table in (relation.name, qualified_name(relation))


class _Printer:
    """Printer of lines for people, in colour on a terminal."""

    def __init__(self, tracker: RelationTracker) -> None:
        self._tracker = tracker
        self._console = Console(soft_wrap=True)
        self._inside = False  # between the first message of a transaction and its end

    def show(self, index: int, entry: StoredMessage | BadEntry, message: m.LogicalMessage) -> None:
        if isinstance(message, _CLOSING + _OPENING):
            self._inside = False
        self._print(index, _lsn(entry), format_message(message, self._tracker))
        if isinstance(message, _OPENING):
            self._inside = True

    def show_problem(
        self, index: int, entry: StoredMessage | BadEntry, reason: DecodeError | str
    ) -> None:
        self._print(index, _lsn(entry), format_problem(f"{entry.place}: {reason}"))

    def _print(self, index: int, lsn: int | None, line: Line) -> None:
        place = f"{index:>7}  {'' if lsn is None else format_lsn(lsn):<11}  "
        parts = [(place, "dim"), ("  " if self._inside else "", ""), *line]
        if self._console.is_terminal:
            self._console.print(Text.assemble(*parts))
        else:
            click.echo("".join(text for text, _ in parts))


class _JsonPrinter(_Printer):
    """Printer of JSON lines for programs."""

    def show(self, index: int, entry: StoredMessage | BadEntry, message: m.LogicalMessage) -> None:
        click.echo(to_json(index, _lsn(entry), message, self._tracker))

    def show_problem(
        self, index: int, entry: StoredMessage | BadEntry, reason: DecodeError | str
    ) -> None:
        data = entry.data if isinstance(entry, StoredMessage) else None
        click.echo(problem_to_json(index, _lsn(entry), entry.place, data, reason))


def _lsn(entry: StoredMessage | BadEntry) -> int | None:
    return entry.lsn if isinstance(entry, StoredMessage) else None
