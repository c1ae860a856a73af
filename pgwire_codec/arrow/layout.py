"""A column as Arrow lays it out, in numpy buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
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
    "tDu": np.dtype("<i8"),
}

_BYTE: Final = np.dtype(np.uint8)
_OFFSET: Final = np.dtype(np.int32)


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


# Memory of buffers that many arrays share; nobody writes to it, and what nobody reads takes none.
_ZEROS: Final = np.zeros(1 << 20, np.uint8)
_ZEROS.flags.writeable = False
#: Rows of the largest arrays that are kept to be shared.
MOST_SHARED: Final = 1 << 16


@cache
def _first_numbers() -> npt.NDArray[np.int32]:
    numbers = np.arange(MOST_SHARED, dtype=np.int32)
    numbers.flags.writeable = False
    return numbers


def zeros(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return zeros that must not be written to."""
    size = count * dtype.itemsize
    if size > len(_ZEROS):
        return np.zeros(count, dtype)
    return _ZEROS[:size].view(dtype)


def counting(count: int) -> npt.NDArray[np.int32]:
    """Return the numbers from 0 on, which must not be written to."""
    return _first_numbers()[:count] if count <= MOST_SHARED else np.arange(count, dtype=np.int32)


def null_array(
    form: str,
    length: int,
    *,
    child: ArrowBuffers | None = None,
    viewed: Sequence[npt.NDArray[np.uint8]] = (),
) -> ArrowBuffers:
    """Return an array of nulls.

    Parameters
    ----------
    form : str
        Arrow C data interface format.
    length : int
        Rows.
    child : ArrowBuffers, optional
        Elements of a list, without rows.
    viewed : sequence of numpy.ndarray
        The buffers that views point into.
    """
    buffers: list[npt.NDArray[Any]] = []
    if form in ("u", "z", "+l"):
        buffers = [zeros(length + 1, _OFFSET), zeros(0, _BYTE)][: 1 if form == "+l" else 2]
    elif form in ("vu", "vz"):
        buffers = [zeros(length * 4, _OFFSET), *viewed]
    elif form == "b":
        buffers = [zeros((length + 7) >> 3, _BYTE)]
    elif form.startswith("w:"):
        buffers = [zeros(length * int(form[2:]), _BYTE)]
    elif form.startswith("d:"):
        buffers = [zeros(length * (32 if form.endswith(",256") else 16), _BYTE)]
    elif form != "+s":
        buffers = [zeros(length, DTYPES[form])]
    validity = zeros((length + 7) >> 3, _BYTE) if length else None
    return ArrowBuffers(form, length, length, validity, buffers, [] if child is None else [child])


@lru_cache(maxsize=256)
def _shared_nulls(form: str, length: int) -> ArrowBuffers:
    child = null_array("u", 0) if form == "+l" else None
    return null_array(form, length, child=child)


def shared_nulls(form: str, length: int) -> ArrowBuffers:
    """Return nulls, of a list lists of strings, as an array that must not be changed."""
    if length > MOST_SHARED:  # too large to be kept
        return _shared_nulls.__wrapped__(form, length)
    return _shared_nulls(form, length)


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
