"""A column's values, read one by one: the oracle of a compiled decoder.

A value is read in two steps. The reader of its form (text or binary) returns a plain Python value
or raises what is malformed; the family's `store` returns what the Arrow type holds of it, or raises
that it cannot.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.values import Decoded, Unrepresentable, ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.families import family_of
from pgwire_codec.reference.families.arrays import ArrayParts
from pgwire_codec.reference.families.family import Family, Read
from pgwire_codec.reference.families.forms import check_utf8
from pgwire_codec.reference.stored_values import Span, build
from pgwire_codec.types import ColumnType

_VALUE: Final = 1  # of the four states, the only one that has bytes
_BINARY_FORM: Final = 1
_REPRESENT_OTHERWISE: Final = 'To decode it all the same, use `unrepresentable="null"` or "clamp".'


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
        How to handle good values that the Arrow type cannot hold. ``"clamp"`` takes the
        nearest that it can, and null if there is no such value: NaN in a decimal, an array of
        two dimensions. So is text that is not UTF-8; ``"clamp"`` replaces the bytes by U+FFFD.

    Returns
    -------
    Decoded
        The array and the rows that were not kept as they are.

    Raises
    ------
    ValueProblem
        At the first row whose bytes are not a value of the type.
    """
    family = family_of(column)
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
            value, kept = _decode(column, family, raw, is_binary, unrepresentable)
        except ValueProblem as problem:
            problem.row = row
            raise
        if not kept:
            invalid.append(row)
        if column.format.startswith("v") and not is_binary and kept:
            value = Span(start, length)
        values.append(value)
    held = (state == _VALUE) & (formats == _BINARY_FORM)
    array = build(column, _final_format(column, bool(held.any())), values, data)
    return Decoded(array, np.array(invalid, np.int64))


def _final_format(column: ColumnType, any_binary: bool) -> str:
    """Return the format of the whole column: an unknown type is binary only if a value came so."""
    if column.pg.family == "unknown" and not any_binary:
        return column.format.replace("z", "u")
    return column.format


def _decode(
    column: ColumnType, family: Family, raw: bytes, is_binary: bool, policy: str
) -> tuple[Any, bool]:
    """Return one stored value, and whether it is the value that was sent."""
    if column.format in ("u", "vu"):
        try:
            return _decode_string(column, family, raw, is_binary), True
        except ValueProblem as problem:
            if policy == "raise" or problem.code != ErrorCode.INVALID_UTF8:
                raise
            # Of a database in SQL_ASCII, whose text may be in any encoding.
            return _nearest_text(column, family, raw, is_binary, policy), False
    # Text of an unknown type is passed through, as it is in a column of strings.
    read: Read | None = family.read_binary if is_binary else family.read_text or check_utf8
    assert read is not None
    try:
        value = read(raw)
        if family.element is not None:
            return _decode_elements(column, family.element, value, is_binary, policy)
        return family.store(column.format, value), True
    except Unrepresentable as problem:
        if policy == "raise":
            raise ValueProblem(
                ErrorCode.UNREPRESENTABLE, 0, problem.what, hint=_REPRESENT_OTHERWISE
            ) from None
        return problem.nearest if policy == "clamp" else None, False


def _decode_string(column: ColumnType, family: Family, raw: bytes, is_binary: bool) -> bytes:
    """Return the server's text; that of a numeric, which becomes a Decimal, is read."""
    if is_binary:
        return family.render(raw)
    if column.numeric:
        assert family.read_text is not None
        text: bytes = family.read_text(raw)
        return text
    return check_utf8(raw)


def _nearest_text(
    column: ColumnType, family: Family, raw: bytes, is_binary: bool, policy: str
) -> bytes | None:
    """Return text with U+FFFD in place of what is not UTF-8; None if nothing can be replaced."""
    replaced = raw.decode(errors="replace").encode()
    if policy == "clamp":
        with suppress(ValueProblem):  # lengths inside of a binary form
            return _decode_string(column, family, replaced, is_binary)
    return None


def _decode_elements(
    column: ColumnType, element: Family, parts: ArrayParts, is_binary: bool, policy: str
) -> tuple[list[Any], bool]:
    assert column.child is not None
    values: list[Any] = []
    all_kept = True
    for raw, at in parts.elements:
        if raw is None:
            values.append(None)
            continue
        try:
            value, kept = _decode(column.child, element, raw, is_binary, policy)
        except ValueProblem as problem:
            # An escaped element's own offsets are not those of the array.
            problem.offset = at + (problem.offset if is_binary else 0)
            raise
        values.append(value)
        all_kept = all_kept and kept
    if len(parts.bounds) > 1:
        raise Unrepresentable(f"an array of one dimension for a list, not of {len(parts.bounds)}")
    return values, all_kept
