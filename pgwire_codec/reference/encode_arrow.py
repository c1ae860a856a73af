"""Values of the Arrow columns that are encoded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from pgwire_codec.arrow.layout import DTYPES

STRINGS: Final = ("u", "U", "vu")
BINARIES: Final = ("z", "Z", "vz")
LISTS: Final = ("+l", "+L", "+w")


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
    if size <= 12:
        return bytes(raw[16 * row + 4 : 16 * row + 4 + size])
    return bytes(np.frombuffer(view.buffer(2 + buffer), np.uint8)[offset : offset + size])
