"""``pgwire-codec inspect``: the messages of a capture, for a person or a program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import click
from rich.console import Console
from rich.text import Text

from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.files import BadEntry, StoredMessage, read_messages
from pgwire_codec.cli.follow import CLOSING, OPENING, Follower, TableFilter
from pgwire_codec.cli.jsonlines import problem_to_json, to_json
from pgwire_codec.cli.render import Line, render, render_problem
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol import messages as m
from pgwire_codec.protocol.lsn import format_lsn

#: Index, what the file holds there, and what that is or why it cannot be known.
_Item: TypeAlias = tuple[int, StoredMessage | BadEntry, m.LogicalMessage | DecodeError | str]

_EPILOG = """\b
Examples:
  pgwire-codec inspect capture.jsonl.gz
  pgwire-codec inspect --table public.orders --limit 20 log.parquet
  pgwire-codec inspect --json capture.arrow | jq 'select(.type == "Delete")'
"""


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message, for programs.")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after so many messages.")
@click.option("--table", help="Only this table's messages: NAME or SCHEMA.NAME.")
def inspect(file: Path, as_json: bool, limit: int | None, table: str | None) -> None:
    """Show the messages of a capture.

    FILE is JSON lines (plain or gzipped), Parquet, or Arrow IPC. A value is shown as 'text' or
    x'binary'; NULL, (unchanged) for TOAST that the server did not repeat, and (not sent) for a
    column outside the key have no quotes.

    The exit status is 4 when a message could not be decoded; the others are shown nevertheless.
    """
    follower = Follower()
    printer = _JsonPrinter(follower) if as_json else _Printer(follower)
    items = _decoded(file, follower)
    if table:
        items = _with_table(items, TableFilter(table, follower))
    bad = 0
    for index, entry, message in islice(items, limit):
        if isinstance(message, DecodeError | str):
            bad += 1
            printer.show_problem(index, entry, message)
        else:
            printer.show(index, entry, message)
    if bad:
        raise Failure(f"{file}: {bad} of the messages could not be decoded")


def _decoded(file: Path, follower: Follower) -> Iterator[_Item]:
    for index, entry in enumerate(read_messages(file)):
        message: m.LogicalMessage | DecodeError | str
        if isinstance(entry, BadEntry):
            message = entry.reason
        else:
            try:
                message = follower.decode(entry.data)
            except DecodeError as error:
                message = error
        yield index, entry, message


def _with_table(items: Iterator[_Item], table_filter: TableFilter) -> Iterator[_Item]:
    opening: _Item | None = None  # held back until the table occurs in what it opens
    for item in items:
        message = item[2]
        if isinstance(message, OPENING):
            opening = item
            table_filter.open(message)
        elif isinstance(message, DecodeError | str):
            yield item
        elif table_filter.wants(message):
            if opening is not None:
                yield opening
            opening = None
            yield item
        elif isinstance(message, CLOSING):
            opening = None


class _Printer:
    """Lines for a person: in colour on a terminal, plain elsewhere."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._console = Console(soft_wrap=True)
        self._inside = False  # between the message that opens a transaction and its end

    def show(self, index: int, entry: StoredMessage | BadEntry, message: m.LogicalMessage) -> None:
        if isinstance(message, CLOSING + OPENING):
            self._inside = False
        self._print(index, _lsn(entry), render(message, self._follower))
        if isinstance(message, OPENING):
            self._inside = True

    def show_problem(
        self, index: int, entry: StoredMessage | BadEntry, reason: DecodeError | str
    ) -> None:
        self._print(index, _lsn(entry), render_problem(f"{entry.place}: {reason}"))

    def _print(self, index: int, lsn: int | None, line: Line) -> None:
        place = f"{index:>7}  {'' if lsn is None else format_lsn(lsn):<11}  "
        parts = [(place, "dim"), ("  " if self._inside else "", ""), *line]
        if self._console.is_terminal:
            self._console.print(Text.assemble(*parts))
        else:
            click.echo("".join(text for text, _ in parts))


class _JsonPrinter(_Printer):
    """JSON lines for a program."""

    def show(self, index: int, entry: StoredMessage | BadEntry, message: m.LogicalMessage) -> None:
        click.echo(to_json(index, _lsn(entry), message, self._follower))

    def show_problem(
        self, index: int, entry: StoredMessage | BadEntry, reason: DecodeError | str
    ) -> None:
        data = entry.data if isinstance(entry, StoredMessage) else None
        click.echo(problem_to_json(index, _lsn(entry), entry.place, data, reason))


def _lsn(entry: StoredMessage | BadEntry) -> int | None:
    return entry.lsn if isinstance(entry, StoredMessage) else None
