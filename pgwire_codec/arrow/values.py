"""Values of a column in Arrow's layout, as numpy and Python have them, without pyarrow."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, valid_rows, value_bytes

#: An interval as numpy has it; ``us`` is microseconds.
NUMPY_INTERVAL: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("us", "<i8")])

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_UTC_EPOCH: Final = _EPOCH.replace(tzinfo=datetime.timezone.utc)
# The range of datetime.date and datetime.datetime, years 1 to 9999, from 1970.
_DATES: Final = range(-719_162, 2_932_897)
_TIMESTAMPS: Final = range(-62_135_596_800_000_000, 253_402_300_800_000_000)


class Interval(NamedTuple):
    """An interval's three parts, which no one unit holds: months, days and microseconds."""

    months: int
    days: int
    us: int


def to_numpy(array: ArrowBuffers) -> npt.NDArray[Any]:
    """Return a column as numpy has it.

    Returns
    -------
    numpy.ndarray
        Booleans, numbers, times (int64 microseconds), intervals (months, days, us) and uuids
        (``V16``) in their own dtype, a :class:`numpy.ma.MaskedArray` where rows are null; dates
        and timestamps as datetime64 in days and microseconds, and durations as timedelta64 in
        microseconds, null as NaT; everything else as objects, null as None.
    """
    kind = array.format
    valid = valid_rows(array)
    if kind in ("tdD", "tDu") or kind.startswith("tsu"):
        dtype = {"tdD": "datetime64[D]", "tDu": "timedelta64[us]"}.get(kind, "datetime64[us]")
        times = array.buffers[0].astype(np.int64).view(dtype)
        times[~valid] = "NaT"
        return times
    if kind == "b":
        plain: npt.NDArray[Any] = np.unpackbits(
            array.buffers[0], count=array.length, bitorder="little"
        ).astype(bool)
    elif kind == "tin":
        plain = np.zeros(array.length, NUMPY_INTERVAL)
        plain["months"] = array.buffers[0]["months"]
        plain["days"] = array.buffers[0]["days"]
        plain["us"] = array.buffers[0]["nanoseconds"] // 1000
    elif kind.startswith("w:"):
        plain = array.buffers[0].view(f"V{kind[2:]}")
    elif kind in _OBJECTS or kind.startswith("d:"):
        plain = np.empty(array.length, object)
        plain[:] = _object_column(array)
        return plain
    else:
        plain = array.buffers[0]
    if array.null_count == 0:
        return plain
    masked: npt.NDArray[Any] = np.ma.MaskedArray(plain, mask=~valid)  # type: ignore[no-untyped-call, unused-ignore]
    return masked


def to_pylist(array: ArrowBuffers) -> list[Any]:
    """Return a column as Python values, None for null.

    Integers, floats, booleans, str, bytes, :class:`~decimal.Decimal`, :class:`uuid.UUID`,
    :class:`datetime.date`, :class:`datetime.time`, :class:`datetime.datetime` (of a timestamptz
    with UTC), :class:`Interval`, :class:`datetime.timedelta`, lists and dicts. A date or timestamp
    outside the years 1 to 9999, which datetime does not have, is a :class:`numpy.datetime64`.
    """
    kind = array.format
    if kind in _OBJECTS or kind.startswith("d:"):
        return _object_column(array)
    if kind == "tin":
        values: list[Any] = [
            Interval(int(m), int(d), int(n) // 1000) for m, d, n in array.buffers[0].tolist()
        ]
    elif kind == "b":
        values = np.unpackbits(array.buffers[0], count=array.length, bitorder="little").tolist()
        values = [bool(value) for value in values]
    elif kind.startswith("w:"):
        values = _fixed_bytes(array, int(kind[2:]))
    else:
        values = array.buffers[0].tolist()
        if kind in _PYTHON:
            values = [_PYTHON[kind](value) for value in values]
    if array.null_count:
        valid = valid_rows(array)
        values = [value if ok else None for value, ok in zip(values, valid, strict=True)]
    return values


def _object_column(array: ArrowBuffers) -> list[Any]:
    valid = valid_rows(array).tolist()
    read = _OBJECTS.get(array.format, _decimals)
    return [value if ok else None for value, ok in zip(read(array), valid, strict=True)]


def _texts(array: ArrowBuffers) -> list[Any]:
    texts = [value.decode() for value in _binaries(array)]
    return [Decimal(text or 0) for text in texts] if array.numeric else texts


def _binaries(array: ArrowBuffers) -> list[bytes]:
    return [value_bytes(array, row) for row in range(array.length)]


def _lists(array: ArrowBuffers) -> list[Any]:
    elements = to_pylist(array.children[0])
    offsets = array.buffers[0].tolist()
    return [elements[offsets[row] : offsets[row + 1]] for row in range(array.length)]


def _structs(array: ArrowBuffers) -> list[Any]:
    columns = [to_pylist(child) for child in array.children]
    return [
        {name: column[row] for name, column in zip(array.names, columns, strict=True)}
        for row in range(array.length)
    ]


def _decimals(array: ArrowBuffers) -> list[Any]:
    scale = int(array.format[2:].split(",")[1])
    width = 32 if array.format.endswith(",256") else 16
    raw = array.buffers[0].tobytes()
    return [
        _decimal(int.from_bytes(raw[at : at + width], "little", signed=True), scale)
        for at in range(0, array.length * width, width)
    ]


def _decimal(unscaled: int, scale: int) -> Decimal:
    # By digits: Decimal's arithmetic would round to the context's precision.
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def _fixed_bytes(array: ArrowBuffers, width: int) -> list[Any]:
    raw = array.buffers[0].tobytes()
    values = [raw[at : at + width] for at in range(0, array.length * width, width)]
    if array.extension == "arrow.uuid":
        return [uuid.UUID(bytes=value) for value in values]
    return values


def _date(days: int) -> Any:
    if days in _DATES:
        return _EPOCH.date() + datetime.timedelta(days)
    return np.datetime64(days, "D")


def _timestamp(micros: int) -> Any:
    if micros in _TIMESTAMPS:
        return _EPOCH + datetime.timedelta(microseconds=micros)
    return np.datetime64(micros, "us")


def _timestamptz(micros: int) -> Any:
    if micros in _TIMESTAMPS:
        return _UTC_EPOCH + datetime.timedelta(microseconds=micros)
    return np.datetime64(micros, "us")


def _duration(micros: int) -> datetime.timedelta:
    return datetime.timedelta(microseconds=micros)


def _time(micros: int) -> datetime.time:
    return (_EPOCH + datetime.timedelta(microseconds=micros)).time()


_OBJECTS: Final = {
    "u": _texts,
    "vu": _texts,
    "z": _binaries,
    "vz": _binaries,
    "+l": _lists,
    "+s": _structs,
}
_PYTHON: Final = {
    "tdD": _date,
    "ttu": _time,
    "tDu": _duration,
    "tsu:": _timestamp,
    "tsu:UTC": _timestamptz,
}
