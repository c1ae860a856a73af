"""tuples and decode_columns: places, states and values of the columns of many tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import (
    BINARY,
    NULL,
    UNCHANGED,
    VALUE,
    DecodedColumns,
    TupleTable,
)
from pgwire_codec.reference.cursor import Cursor
from pgwire_codec.reference.values import decode_values
from pgwire_codec.types import ColumnType

_STATES = {b"n": NULL, b"u": UNCHANGED, b"t": VALUE, b"b": VALUE}


def tuples(
    messages: Messages,
    rows: npt.NDArray[np.int64],
    body: npt.NDArray[np.int64],
    columns: int,
) -> tuple[TupleTable, TupleTable]:
    """Tabulate the old and the new tuples of messages that ``scan`` accepted.

    Parameters
    ----------
    messages : Messages
        One input array.
    rows : numpy.ndarray of int64
        Indexes of the messages: of Insert, Update, Delete and Truncate.
    body : numpy.ndarray of int64
        ``MessageTable.body`` of these rows.
    columns : int
        Number of columns that the Relation has. Further columns of a tuple are skipped; missing
        ones are not sent.

    Returns
    -------
    old, new : TupleTable
        The tuples under markers ``K`` and ``O``, and those under ``N``.
    """
    old = TupleTable.empty(columns, len(rows))
    new = TupleTable.empty(columns, len(rows))
    for row, index in enumerate(rows.tolist()):
        if body[row] < 0:
            continue
        start = int(messages.offsets[index])
        cursor = Cursor(messages[index])
        cursor.pos = int(body[row]) - start
        while cursor.remaining:
            marker = cursor.read_bytes(1, "tuple's marker")
            _read_tuple(cursor, start, row, marker, new if marker == b"N" else old)
    return old, new


def _read_tuple(cursor: Cursor, start: int, row: int, marker: bytes, table: TupleTable) -> None:
    width = cursor.read_count("Int16", "number of columns")
    table.marker[row] = ord(marker)
    for column in range(width):
        kind = cursor.read_bytes(1, "column's kind")
        length = cursor.read_count("Int32", "column's length") if kind in b"tb" else 0
        if column < len(table.state):
            table.state[column, row] = _STATES[kind]
            if kind in b"tb":
                table.offset[column, row] = start + cursor.pos
                table.length[column, row] = length
                table.format[column, row] = BINARY if kind == b"b" else 0
        cursor.read_bytes(length, "column's value")


def decode_columns(
    messages: Messages,
    rows: npt.NDArray[np.int64],
    body: npt.NDArray[np.int64],
    columns: int,
    which: str,
    wanted: Sequence[tuple[int, ColumnType]],
    *,
    unrepresentable: str = "raise",
    threads: int = 1,
) -> DecodedColumns:
    """Decode columns of the old, the new or the current tuples of messages that ``scan`` accepted.

    Parameters
    ----------
    messages, rows, body, columns
        As for ``tuples``.
    which : {"old", "new", "current"}
        ``"current"`` are the new tuples, and of deletes the old ones.
    wanted : sequence of (int, ColumnType)
        The columns, by number, and the types that they are decoded as.
    unrepresentable : {"raise", "null", "clamp"}
        As for ``decode_values``.
    threads : int
        Number of threads that may decode at the same time; here always one.

    Raises
    ------
    ValueProblem
        For the first row of a column that does not decode: of the first such column in ``wanted``.
    """
    old, new = tuples(messages, rows, body, columns)
    table = {"old": old, "new": new}.get(which) or TupleTable.current(old, new)
    return DecodedColumns(
        [
            decode_values(
                column_type,
                messages.data,
                table.offset[number],
                table.length[number],
                table.state[number],
                table.format[number],
                unrepresentable=unrepresentable,
            )
            for number, column_type in wanted
        ],
        [np.flatnonzero(state == UNCHANGED) for state in table.state],
        table.marker != 0,
    )
