"""A column as Arrow lays it out, in numpy buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: A month_day_nano interval as Arrow stores it.
INTERVAL_DTYPE: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])

#: Arrow format to the dtype of the values' buffer, of the types that have one.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "s": np.dtype("<i2"),
    "i": np.dtype("<i4"),
    "l": np.dtype("<i8"),
    "I": np.dtype("<u4"),
    "L": np.dtype("<u8"),
    "f": np.dtype("<f4"),
    "g": np.dtype("<f8"),
    "tdD": np.dtype("<i4"),
    "ttu": np.dtype("<i8"),
    "tsu:": np.dtype("<i8"),
    "tsu:UTC": np.dtype("<i8"),
    "tin": INTERVAL_DTYPE,
}


@dataclass(slots=True)
class ArrowBuffers:
    """One array in Arrow's layout.

    Attributes
    ----------
    format : str
        Arrow C data interface format.
    length, null_count : int
        Rows, and how many of them are null.
    validity : numpy.ndarray of uint8 or None
        Bitmap, least significant bit first, 1 for a value; None if nothing is null.
    buffers : list of numpy.ndarray
        The layout's buffers after the validity bitmap, with the dtype of what is in them: values;
        or offsets (int32) and bytes (uint8); or, of a view, views (int32, four a row) and each of
        the buffers that they point into.
    children : list of ArrowBuffers
        Fields of a struct, elements of a list.
    names : list of str
        Names of a struct's fields.
    extension : str or None
        Name of the Arrow extension type.
    numeric : bool
        Whether the strings are numerics, whose Python value is a Decimal.
    """

    format: str
    length: int
    null_count: int
    validity: npt.NDArray[np.uint8] | None
    buffers: list[npt.NDArray[Any]]
    children: list[ArrowBuffers] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    extension: str | None = None
    numeric: bool = False


def validity_bitmap(valid: npt.ArrayLike) -> tuple[int, npt.NDArray[np.uint8] | None]:
    """Return the null count and the bitmap of a boolean array, None if nothing is null."""
    flags = np.asarray(valid, dtype=bool)
    null_count = len(flags) - int(np.count_nonzero(flags))
    return null_count, np.packbits(flags, bitorder="little") if null_count else None


def valid_rows(array: ArrowBuffers) -> npt.NDArray[np.bool_]:
    """Return a boolean a row: whether it has a value."""
    if array.validity is None:
        return np.ones(array.length, dtype=bool)
    return np.unpackbits(array.validity, count=array.length, bitorder="little").astype(bool)


def is_view(array: ArrowBuffers) -> bool:
    """Return whether rows are views into other buffers."""
    return array.format in ("vu", "vz")


def value_bytes(array: ArrowBuffers, row: int) -> bytes:
    """Return the bytes of one row of strings or binaries, of either layout."""
    if is_view(array):
        views, *pool = array.buffers
        length, _, index, offset = (int(word) for word in views[4 * row : 4 * row + 4])
        if length <= 12:
            return views[4 * row + 1 : 4 * row + 4].tobytes()[:length]
        return bytes(pool[index][offset : offset + length].tobytes())
    offsets, data = array.buffers
    return bytes(data[offsets[row] : offsets[row + 1]].tobytes())


def without_views(array: ArrowBuffers) -> ArrowBuffers:
    """Return the array with its views copied into plain strings."""
    if not is_view(array):
        return array
    valid = valid_rows(array)
    values = [value_bytes(array, row) if valid[row] else b"" for row in range(array.length)]
    offsets = np.zeros(array.length + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join(values), np.uint8)
    return ArrowBuffers(
        array.format[1:],
        array.length,
        array.null_count,
        array.validity,
        [offsets, data],
        numeric=array.numeric,
    )
