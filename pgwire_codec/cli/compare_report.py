"""Reports of a comparison: a table on a terminal, or JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.table import Table
from rich.text import Text

from pgwire_codec.format import format_number, printable
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    from rich.console import Console

    from pgwire_codec.comparing.result import RowDifference, TableComparison


def print_lines(tables: Iterable[TableComparison]) -> None:
    """Print a JSON line for each table."""
    for table in tables:
        line = asdict(table)
        for name in ("lsn", "target_lsn"):
            line[name] = None if line[name] is None else format_lsn(line[name])
        click.echo(json.dumps(_plain(line)))


def print_table(tables: Iterable[TableComparison], console: Console) -> None:
    """Print a table, and the rows that differ below it."""
    shown = Table(box=None)
    for name in ("table", "server rows", "target", "different", "LSN", "state"):
        justify: Literal["left", "right"] = "left" if name in ("table", "state") else "right"
        shown.add_column(name, justify=justify, overflow="fold")
    for each in tables:
        counts = (each.server_rows, each.target_rows, each.differing)
        cells = (
            each.table,
            *("" if count is None else format_number(count) for count in counts),
            "" if each.lsn is None else format_lsn(each.lsn),
            each.state if each.error is None else f"{each.state}: {each.error}",
        )
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(shown)
    for each in tables:
        for line in _lines(each):
            console.print(Text(printable(line)))


def _lines(table: TableComparison) -> Iterator[str]:
    for each in table.differences:
        yield f"{table.table} {_row(each)}: {_difference(each)}"
    more = (table.differing or table.unsettled) - len(table.differences)
    if more > 0:
        yield f"{table.table}: and {format_number(more)} more"
    if table.unsettled:
        yield f"{table.table}: unsettled: {format_number(table.unsettled)}"
    for name, reason in table.uncompared.items():
        yield f"{table.table}: column {name} was not compared: {reason}"
    if table.hint is not None:
        yield f"{table.table}: hint: {table.hint}"


def _row(each: RowDifference) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in each.row.items())


def _difference(each: RowDifference) -> str:
    if each.columns:
        return "; ".join(
            f"{name} is {_text(server)} on the server and {_text(target)} in the target"
            for name, (server, target) in each.columns.items()
        )
    return f"{each.server} on the server and {each.target} in the target have no counterpart"


def _text(value: Any) -> str:
    return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)


def _plain(value: Any) -> Any:
    """Return a value in the types of JSON."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
