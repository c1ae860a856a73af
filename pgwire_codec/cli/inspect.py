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
from pgwire_codec.cli.relation_tracker import RelationTracker
from pgwire_codec.cli.table_filter import CLOSING, OPENING, TableFilter
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol import messages as m
from pgwire_codec.protocol.lsn import format_lsn

#: Index, entry of the file, and its message or the reason why it cannot be decoded.
_Item: TypeAlias = tuple[int, StoredMessage | BadEntry, m.LogicalMessage | DecodeError | str]

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
        items = _with_table(items, TableFilter(table, tracker))
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


def _with_table(items: Iterator[_Item], table_filter: TableFilter) -> Iterator[_Item]:
    opening: _Item | None = None  # buffered until the table occurs in its group
    for item in items:
        message = item[2]
        if isinstance(message, OPENING):
            opening = item
            table_filter.open(message)
        elif isinstance(message, DecodeError | str):
            yield item
        elif table_filter.selects(message):
            if opening is not None:
                yield opening
            opening = None
            yield item
        elif isinstance(message, CLOSING):
            opening = None


class _Printer:
    """Printer of lines for people, in colour on a terminal."""

    def __init__(self, tracker: RelationTracker) -> None:
        self._tracker = tracker
        self._console = Console(soft_wrap=True)
        self._inside = False  # between the first message of a transaction and its end

    def show(self, index: int, entry: StoredMessage | BadEntry, message: m.LogicalMessage) -> None:
        if isinstance(message, CLOSING + OPENING):
            self._inside = False
        self._print(index, _lsn(entry), format_message(message, self._tracker))
        if isinstance(message, OPENING):
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
