"""A column's values, read one by one: the oracle of what a compiled decoder must give.

Every family is read in two steps. The reader of its form (text or binary) gives a plain Python
value or says what is malformed; :func:`_store` gives what the Arrow type holds of it or says that
it cannot.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.values import Decoded, Unrepresentable, ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.binary import BINARY, read_array
from pgwire_codec.reference.render import element_oid, render
from pgwire_codec.reference.text import SCALARS, check_utf8, read_numeric
from pgwire_codec.reference.text_array import ArrayParts
from pgwire_codec.reference.text_array import read_array as read_text_array
from pgwire_codec.reference.text_time import TIMES
from pgwire_codec.reference.values_build import Span, build
from pgwire_codec.reference.values_store import store
from pgwire_codec.types import ColumnType

_TEXT: Final = SCALARS | TIMES
_VALUE: Final = 1  # of the four states, the only one that has bytes
_BINARY_FORM: Final = 1


def decode_values(
    column: ColumnType,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    state: npt.NDArray[np.uint8],
    formats: npt.NDArray[np.uint8],
    *,
    unrepresentable: str = "raise",
) -> Decoded:
    """Read a column's values into Arrow's layout.

    Parameters
    ----------
    column : ColumnType
        From :func:`pgwire_codec.types.column_type`.
    data : numpy.ndarray of uint8
        The bytes that `offsets` (int64) and `lengths` (int32) point into, one pair a row.
    state : numpy.ndarray of uint8
        0 NULL, 1 value, 2 unchanged TOAST, 3 not sent; only rows of state 1 are read.
    formats : numpy.ndarray of uint8
        0 for a value in text form, 1 in binary form; a column may have both.
    unrepresentable : {"raise", "null", "clamp"}
        What becomes of a good value that the Arrow type cannot hold. ``"clamp"`` takes the
        nearest that it can, and null where there is none: NaN in a decimal, an array of two
        dimensions.

    Returns
    -------
    Decoded
        The array and the rows that were not kept as they are.

    Raises
    ------
    ValueProblem
        At the first row whose bytes are not a value of the type.
    """
    values: list[Any] = []
    invalid: list[int] = []
    for row in range(len(state)):
        if state[row] != _VALUE:
            values.append(None)
            continue
        start, length = int(offsets[row]), int(lengths[row])
        raw = data[start : start + length].tobytes()
        is_binary = bool(formats[row] == _BINARY_FORM)
        try:
            value, kept = _decode(column, raw, is_binary, unrepresentable)
        except ValueProblem as problem:
            problem.row = row
            raise
        if not kept:
            invalid.append(row)
        if column.format.startswith("v") and not is_binary:
            value = Span(start, length)
        values.append(value)
    held = (state == _VALUE) & (formats == _BINARY_FORM)
    array = build(column, _final_format(column, bool(held.any())), values, data)
    return Decoded(array, np.array(invalid, np.int64))


def _final_format(column: ColumnType, any_binary: bool) -> str:
    """Give the format of the whole column: an unknown type is binary only if a value came so."""
    if column.pg.family == "unknown" and not any_binary:
        return column.format.replace("z", "u")
    return column.format


def _decode(column: ColumnType, raw: bytes, is_binary: bool, policy: str) -> tuple[Any, bool]:
    """Give one stored value, and whether it is the value that was sent."""
    if column.format in ("u", "vu"):
        if is_binary:
            return render(column, raw), True
        return read_numeric(raw) if column.numeric else check_utf8(raw), True
    if column.pg.family == "unknown":
        return raw if is_binary else check_utf8(raw), True
    try:
        if column.pg.family == "array":
            return _decode_array(column, raw, is_binary, policy)
        read = (BINARY if is_binary else _TEXT)[column.pg.family]
        return store(column.format, read(raw)), True
    except Unrepresentable as problem:
        if policy == "raise":
            advice = 'the option unrepresentable goes on with "null" or "clamp"'
            raise ValueProblem(ErrorCode.UNREPRESENTABLE, 0, f"{problem.what}; {advice}") from None
        return problem.nearest if policy == "clamp" else None, False


def _decode_array(
    column: ColumnType, raw: bytes, is_binary: bool, policy: str
) -> tuple[list[Any], bool]:
    parts: ArrayParts
    if is_binary:
        parts = read_array(raw, element_oid(column))
    else:
        parts = read_text_array(raw, column.pg.delimiter)
    assert column.child is not None
    elements: list[Any] = []
    all_kept = True
    for element, at in parts.elements:
        if element is None:
            elements.append(None)
            continue
        try:
            value, kept = _decode(column.child, element, is_binary, policy)
        except ValueProblem as problem:
            # An escaped element's own offsets are not those of the array.
            problem.offset = at + (problem.offset if is_binary else 0)
            raise
        elements.append(value)
        all_kept = all_kept and kept
    if len(parts.bounds) > 1:
        raise Unrepresentable(f"an array of one dimension for a list, not of {len(parts.bounds)}")
    return elements, all_kept
