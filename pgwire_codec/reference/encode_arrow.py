"""Arrow columns to be encoded: which ones a PostgreSQL type is written from, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from pgwire_codec.arrow.layout import DTYPES
from pgwire_codec.types import ColumnType

STRINGS: Final = ("u", "U", "vu")
BINARIES: Final = ("z", "Z", "vz")
LISTS: Final = ("+l", "+L", "+w")
INTEGERS: Final = ("c", "C", "s", "S", "i", "I", "l", "L")
_INTEGER_FAMILIES: Final = ("int2", "int4", "int8", "uint4", "uint8", "reg", "pg_lsn")


def wanted_arrow(column: ColumnType) -> str:
    """Say, for an error, which Arrow types a column is written from."""
    family = column.pg.family
    if family == "array":
        assert column.child is not None
        return f"a list of {wanted_arrow(column.child)}, or string (the server's text)"
    native = "an integer" if family in _INTEGER_FAMILIES else _ARROW_NAMES.get(family)
    return "string (the server's text)" if native is None else f"{native}, or string"


_ARROW_NAMES: Final = {
    "bool": "bool",
    "float4": "float32",
    "float8": "float32 or float64",
    "numeric": "decimal or an integer",
    "bytea": "binary",
    "unknown": "binary (its binary form)",
    "uuid": "fixed_size_binary(16)",
    "date": "date32",
    "time": "time32 or time64",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "interval": "month_day_nano_interval",
}


def is_written_from(column: ColumnType, formats: Sequence[str]) -> bool:
    """Say whether a column is written from an Arrow type: its format, then its elements'."""
    arrow, *elements = formats
    family = column.pg.family
    if arrow in STRINGS:
        return True
    if family == "array":
        assert column.child is not None
        return (
            arrow.split(":")[0] in LISTS
            and column.child.pg.family != "unknown"
            and is_written_from(column.child, elements)
        )
    if family in _INTEGER_FAMILIES:
        return arrow in INTEGERS
    if family == "numeric":
        return arrow.startswith("d:") or arrow in INTEGERS
    if family in ("bytea", "unknown"):
        return arrow in BINARIES or (arrow.startswith("w:") and family == "bytea")
    if family == "timestamptz":
        return arrow[:2] == "ts" and len(arrow) > 4
    return arrow in _FORMATS.get(family, ())


_FORMATS: Final = {
    "bool": ("b",),
    "float4": ("f",),
    "float8": ("f", "g"),
    "uuid": ("w:16",),
    "date": ("tdD",),
    "time": ("tts", "ttm", "ttu", "ttn"),
    "timestamp": ("tss:", "tsm:", "tsu:", "tsn:"),
    "interval": ("tin",),
}


def stored_values(array: Any, start: int, length: int) -> list[Any]:
    """Give rows of a nanoarrow.c_array.CArray as stored values, None for null."""
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
    """Give what the values' buffer holds: of floats their bits, so that a NaN keeps its payload."""
    bits = {"f": "<u4", "g": "<u8", "c": "i1", "C": "u1", "S": "<u2", "tts": "<i4", "ttm": "<i4"}
    if arrow in bits:
        return np.dtype(bits[arrow])
    return DTYPES[arrow] if arrow in DTYPES else np.dtype("<i8")


def _viewed(view: Any, raw: Any, row: int) -> bytes:
    size, _, buffer, offset = raw[16 * row : 16 * row + 16].view("<i4").tolist()
    if size <= 12:
        return bytes(raw[16 * row + 4 : 16 * row + 4 + size])
    return bytes(np.frombuffer(view.buffer(2 + buffer), np.uint8)[offset : offset + size])
