"""Stored values, one Python object a row: building of Arrow's buffers, and reading of arrays.

A stored value is an int for every number, date and time (of a float its bits), bool, bytes, a tuple
of months, days and nanoseconds, a list of stored elements; None for null. In the buffers, a null is
zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import DTYPES, ArrowBuffers, validity_bitmap
from pgwire_codec.codec.value_buffers import INLINE, chunk_at, chunks_of, offsets_of
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.types import ColumnType

#: Arrow formats of strings, of binary values and of lists.
STRINGS: Final = ("u", "U", "vu")
BINARIES: Final = ("z", "Z", "vz")
LISTS: Final = ("+l", "+L", "+w")

_FLOAT_BITS: Final[dict[str, np.dtype[Any]]] = {"f": np.dtype("<u4"), "g": np.dtype("<u8")}


@dataclass(frozen=True, slots=True)
class Span:
    """Place of bytes in the messages, which a view points to."""

    start: int
    length: int


def build(
    column: ColumnType,
    arrow: str,
    values: Sequence[Any],
    data: npt.NDArray[np.uint8] | None = None,
) -> ArrowBuffers:
    """Build the array of a column's stored values.

    `data` has the bytes that a :class:`Span` points into.
    """
    null_count, validity = validity_bitmap([value is not None for value in values])
    array = ArrowBuffers(arrow, len(values), null_count, validity, [])
    array.extension = column.extension
    array.numeric = column.numeric
    if arrow == "+l":
        assert column.child is not None
        offsets = offsets_of([len(value or ()) for value in values])
        elements = [element for value in values for element in value or ()]
        array.buffers = [offsets]
        try:
            array.children = [build(column.child, column.child.format, elements)]
        except ValueProblem as problem:
            problem.row = int(np.searchsorted(offsets, problem.row, side="right")) - 1
            raise
    elif arrow in ("u", "z"):
        array.buffers = [
            offsets_of([len(value or b"") for value in values]),
            np.frombuffer(b"".join(value or b"" for value in values), np.uint8),
        ]
    elif arrow in ("vu", "vz"):
        assert data is not None
        array.buffers = _views(values, data)
    elif arrow == "b":
        flags = np.array([bool(value) for value in values], dtype=bool)
        array.buffers = [np.packbits(flags, bitorder="little")]
    elif arrow.startswith(("w:", "d:")):
        width = _width(arrow)
        array.buffers = [np.frombuffer(b"".join(_fixed(v, width) for v in values), np.uint8)]
    elif arrow in _FLOAT_BITS:
        bits = np.array([value or 0 for value in values], _FLOAT_BITS[arrow])
        array.buffers = [bits.view(DTYPES[arrow])]
    else:
        zero = (0, 0, 0) if arrow == "tin" else 0
        filled: list[Any] = [zero if value is None else value for value in values]
        array.buffers = [np.array(filled, DTYPES[arrow])]
    return array


def _width(arrow: str) -> int:
    if arrow.startswith("w:"):
        return int(arrow[2:])
    return 32 if arrow.endswith(",256") else 16


def _fixed(value: bytes | int | None, width: int) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value or 0).to_bytes(width, "little", signed=True)


def _views(values: Sequence[Any], data: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
    """Build views into the messages, and into one more buffer for values that are not in them."""
    chunks = chunks_of(data)
    views = np.zeros((len(values), 4), np.int32)
    pieces: list[bytes] = []
    size = 0
    for row, value in enumerate(values):
        if value is None:
            continue
        if isinstance(value, Span):
            index, offset = chunk_at(value.start)
            length = value.length
            head = data[value.start : value.start + min(length, INLINE)].tobytes()
        else:
            index, offset, length, head = len(chunks), size, len(value), value[:INLINE]
            if length > INLINE:
                pieces.append(value)
                size += length
        if length <= INLINE:
            views[row] = np.frombuffer(length.to_bytes(4, "little") + head.ljust(12, b"\0"), "<i4")
        else:
            views[row] = (length, int.from_bytes(head[:4], "little", signed=True), index, offset)
    rendered = b"".join(pieces)
    pool = chunks + ([np.frombuffer(rendered, np.uint8)] if rendered else [])
    return [views.reshape(-1), *pool]


def stored_values(array: Any, start: int, length: int) -> list[Any]:
    """Return rows of a nanoarrow.c_array.CArray as stored values, None for null."""
    view = array.view()
    start += array.offset
    values = _read(array, view, start, length)
    if array.null_count == 0:
        return values
    bitmap = np.frombuffer(view.buffer(0), np.uint8)
    if not len(bitmap):
        return values
    valid = np.unpackbits(bitmap, bitorder="little")[start : start + length]
    return [value if ok else None for value, ok in zip(values, valid, strict=True)]


def _read(array: Any, view: Any, start: int, length: int) -> list[Any]:
    arrow = array.schema.format
    if arrow in LISTS or arrow.startswith("+w"):
        if arrow.startswith("+w"):
            size = int(arrow[3:])
            bounds = [size * row for row in range(start, start + length + 1)]
        else:
            ends = np.frombuffer(view.buffer(1), "<i4" if arrow == "+l" else "<i8")
            bounds = ends[start : start + length + 1].tolist() if length else [0]
        elements = stored_values(array.child(0), bounds[0], bounds[-1] - bounds[0])
        return [elements[low - bounds[0] : high - bounds[0]] for low, high in pairwise(bounds)]
    raw = np.frombuffer(view.buffer(1), np.uint8)
    if arrow == "b":
        flags = np.unpackbits(raw, bitorder="little")[start : start + length]
        return [bool(flag) for flag in flags]
    if arrow in ("vu", "vz"):
        return [_viewed(view, raw, row) for row in range(start, start + length)]
    if arrow in STRINGS or arrow in BINARIES:
        ends = raw.view("<i4" if arrow in "uz" else "<i8")[start : start + length + 1]
        data = np.frombuffer(view.buffer(2), np.uint8)
        return [data[ends[row] : ends[row + 1]].tobytes() for row in range(length)]
    if arrow.startswith(("w:", "d:")):
        width = int(arrow[2:]) if arrow[0] == "w" else int((arrow + ",128").split(",")[2]) // 8
        rows = range(start, start + length)
        cells = [raw[width * row : width * (row + 1)].tobytes() for row in rows]
        if arrow[0] == "w":
            return cells
        return [int.from_bytes(cell, "little", signed=True) for cell in cells]
    dtype = _dtype(arrow)
    return list(raw.view(dtype)[start : start + length].tolist())


def _dtype(arrow: str) -> np.dtype[Any]:
    """Return the dtype of the values' buffer: floats are read as bits, to keep a NaN's payload."""
    bits = {"f": "<u4", "g": "<u8", "c": "i1", "C": "u1", "S": "<u2", "tts": "<i4", "ttm": "<i4"}
    if arrow in bits:
        return np.dtype(bits[arrow])
    return DTYPES[arrow] if arrow in DTYPES else np.dtype("<i8")


def _viewed(view: Any, raw: Any, row: int) -> bytes:
    size, _, buffer, offset = raw[16 * row : 16 * row + 16].view("<i4").tolist()
    if size <= INLINE:
        return bytes(raw[16 * row + 4 : 16 * row + 4 + size])
    return bytes(np.frombuffer(view.buffer(2 + buffer), np.uint8)[offset : offset + size])
