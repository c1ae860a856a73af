"""Decoded values of a column, and what can be wrong with one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, null_array
from pgwire_codec.types import ColumnType


@dataclass(slots=True)
class Decoded:
    """A decoded column.

    Attributes
    ----------
    array : ArrowBuffers
        One row a row; null where the state is not 1.
    invalid : numpy.ndarray of int64
        Rows, ascending, whose value the type cannot hold and ``unrepresentable`` made null or
        clamped.
    """

    array: ArrowBuffers
    invalid: npt.NDArray[np.int64]


def null_column(
    kind: ColumnType, rows: int, viewed: Sequence[npt.NDArray[np.uint8]] = ()
) -> ArrowBuffers:
    """Return a column of a type that has no values; ``viewed`` is what views point into."""
    # Without values in binary form, an unknown type is a string.
    form = kind.format.replace("z", "u") if kind.pg.family == "unknown" else kind.format
    child = None if kind.child is None or form != "+l" else null_column(kind.child, 0)
    array = null_array(form, rows, child=child, viewed=viewed)
    array.extension, array.numeric = kind.extension, kind.numeric
    return array


class ValueProblem(Exception):
    """A value whose bytes are malformed, or that its column cannot hold.

    Attributes
    ----------
    code : str
        One of :class:`pgwire_codec.errors.ErrorCode`.
    row : int
        The row, -1 until the column's loop knows it.
    offset : int
        Byte offset in the value: of the first wrong byte in text that is not UTF-8 and in a
        structure (an array, a binary form); of the scalar that cannot be read otherwise.
    expected : str
        What the type requires there.
    hint : str or None
        Advice, such as the session setting that is the likely cause.
    """

    def __init__(
        self, code: str, offset: int, expected: str, row: int = -1, hint: str | None = None
    ) -> None:
        super().__init__(code, offset, expected, row, hint)
        self.code = code
        self.row = row
        self.offset = offset
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code}: row {self.row}, byte {self.offset} of the value: {self.expected}"


class Unrepresentable(Exception):
    """A good value that the column's Arrow type cannot hold.

    Attributes
    ----------
    what : str
        The value and the type.
    nearest : object
        The nearest value that the type holds, or None.
    """

    def __init__(self, what: str, nearest: object = None) -> None:
        super().__init__(what)
        self.what = what
        self.nearest = nearest
