"""decode_columns: the values of many columns of many tuples at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import UNCHANGED, DecodedColumns, TupleTable
from pgwire_codec.reference.tuples import tuples
from pgwire_codec.reference.values import decode_values
from pgwire_codec.types import ColumnType


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
