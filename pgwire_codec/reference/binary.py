"""Binary forms to values, the counterpart of text: what the types' send functions write.

The values are those of :mod:`pgwire_codec.reference.text`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.text import check_utf8
from pgwire_codec.reference.text_array import MAX_DIMENSIONS, ArrayParts
from pgwire_codec.reference.values_calendar import (
    DAY,
    EPOCH,
    EPOCH_DAYS,
    MAX_DATE,
    MAX_TIMESTAMP,
    MIN_DATE,
    MIN_TIMESTAMP,
)

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_NUMERIC_SPECIAL: Final = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_MAX_DISPLAY_SCALE: Final = 0x3FFF


class Parts:
    """A cursor over one value; what does not fit is a BAD_LENGTH at the byte where it starts."""

    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, length: int, what: str) -> bytes:
        """Give the next bytes."""
        if length < 0 or length > len(self.raw) - self.at:
            raise ValueProblem(ErrorCode.BAD_LENGTH, self.at, f"{length} bytes of {what}")
        self.at += length
        return self.raw[self.at - length : self.at]

    def number(self, layout: str, what: str) -> int:
        """Give the next integer, big-endian, `layout` being struct's letter for it."""
        (value,) = struct.unpack(f">{layout}", self.take(struct.calcsize(f">{layout}"), what))
        return int(value)

    def count(self, layout: str, size: int, what: str) -> int:
        """Give a count of things that have at least `size` bytes each."""
        start = self.at
        count = self.number(layout, f"count of {what}")
        if count < 0 or count * size > len(self.raw) - self.at:
            raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"{count} {what} to be there")
        return count

    def text(self, what: str) -> bytes:
        """Give the UTF-8 up to the next zero byte, which is passed over."""
        start = self.at
        end = self.raw.find(b"\0", start)
        if end < 0:
            raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"{what} that a zero byte ends")
        self.at = end + 1
        try:
            return check_utf8(self.raw[start:end])
        except ValueProblem as problem:
            problem.offset += start
            raise

    def finish(self) -> None:
        """Insist that nothing is left."""
        if self.at != len(self.raw):
            raise ValueProblem(ErrorCode.BAD_LENGTH, self.at, "the end of the value")

    def refuse(self, offset: int, expected: str) -> ValueProblem:
        """Give the error for a value that is none of its type's."""
        return ValueProblem(ErrorCode.BAD_VALUE, offset, expected)


def one(layout: str, raw: bytes, name: str) -> int:
    """Read a value that is one integer and nothing else."""
    size = struct.calcsize(f">{layout}")
    if len(raw) != size:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"{size} bytes of {name}, not {len(raw)}")
    (value,) = struct.unpack(f">{layout}", raw)
    return int(value)


def _integer(layout: str, name: str) -> Callable[[bytes], int]:
    return lambda raw: one(layout, raw, name)


def read_bool(raw: bytes) -> bool:
    """Read a boolean's byte."""
    value = one("B", raw, "bool")
    if value > 1:
        raise ValueProblem(ErrorCode.BAD_VALUE, 0, "a boolean: byte 0 or 1")
    return value == 1


def read_numeric(raw: bytes) -> bytes:
    """Read numeric_send's base-10000 digits: the number's decimal text, as the server writes it."""
    parts = Parts(raw)
    count = parts.number("H", "numeric digit count")
    weight = parts.number("h", "numeric weight")
    sign = parts.number("H", "numeric sign")
    scale = parts.number("H", "numeric scale")
    if sign not in (0, 0x4000) and sign not in _NUMERIC_SPECIAL:
        raise parts.refuse(4, "a numeric's sign: 0000, 4000, C000, D000 or F000")
    if scale > _MAX_DISPLAY_SCALE:
        raise parts.refuse(6, "a numeric's scale up to 16383")
    if count * 2 != len(raw) - parts.at:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"a numeric of {count} base-10000 digits")
    groups = struct.unpack_from(f">{count}H", raw, parts.at)
    for index, group in enumerate(groups):
        if group > 9999:
            raise parts.refuse(parts.at + 2 * index, "a base-10000 digit")
    digits = b"".join(b"%04d" % group for group in groups)
    if sign in _NUMERIC_SPECIAL:
        return _NUMERIC_SPECIAL[sign]
    # The digits' point stands after (weight + 1) groups, which may be more or fewer than there are.
    point = (weight + 1) * 4
    whole = digits[: max(point, 0)].ljust(point, b"0").lstrip(b"0") or b"0"
    fraction = (b"0" * -point + digits[max(point, 0) :]).ljust(scale, b"0")[:scale]
    text = whole + b"." + fraction if scale else whole
    return b"-" + text if sign and text.strip(b"0.") else text


def read_uuid(raw: bytes) -> bytes:
    """Read a uuid's 16 bytes."""
    if len(raw) != 16:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"16 bytes of uuid, not {len(raw)}")
    return raw


def read_date(raw: bytes) -> int | float:
    """Read days since 2000-01-01: days since 1970-01-01, or infinity."""
    days = one("i", raw, "date")
    if days in (INT32_MIN, INT32_MAX):
        return math.copysign(math.inf, days)
    if not MIN_DATE <= days + EPOCH_DAYS <= MAX_DATE:
        raise ValueProblem(ErrorCode.BAD_VALUE, 0, "a date from 4714-11-24 BC to 5874897-12-31")
    return days + EPOCH_DAYS


def read_time(raw: bytes) -> int:
    """Read microseconds since midnight."""
    micros = one("q", raw, "time")
    if not 0 <= micros <= DAY:
        raise ValueProblem(ErrorCode.BAD_VALUE, 0, "a time from 00:00:00 to 24:00:00")
    return micros


def read_timestamp(raw: bytes) -> int | float:
    """Read microseconds since 2000-01-01: microseconds since 1970-01-01, or infinity."""
    micros = one("q", raw, "timestamp")
    if micros in (INT64_MIN, INT64_MAX):
        return math.copysign(math.inf, micros)
    if not MIN_TIMESTAMP <= micros + EPOCH <= MAX_TIMESTAMP:
        raise ValueProblem(
            ErrorCode.BAD_VALUE, 0, "a timestamp from 4714-11-24 BC to the year 294276"
        )
    return micros + EPOCH


def read_interval(raw: bytes) -> tuple[int, int, int] | float:
    """Read microseconds, days, months: months, days and microseconds, or infinity."""
    if len(raw) != 16:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"16 bytes of interval, not {len(raw)}")
    micros, days, months = struct.unpack(">qii", raw)
    if (months, days, micros) == (INT32_MAX, INT32_MAX, INT64_MAX):
        return math.inf
    if (months, days, micros) == (INT32_MIN, INT32_MIN, INT64_MIN):
        return -math.inf
    return months, days, micros


def read_array(raw: bytes, element_oid: int | None) -> ArrayParts:
    """Take array_send's form apart.

    `element_oid` is the element type that must be told, None where it is not known: a domain's
    own OID stands there, or that of a user's type on another server.
    """
    parts = Parts(raw)
    dimensions = parts.number("i", "array dimension count")
    if not 0 <= dimensions <= MAX_DIMENSIONS:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"0 to {MAX_DIMENSIONS} dimensions")
    if parts.number("i", "array flags") not in (0, 1):
        raise parts.refuse(4, "an array's flags: 0 or 1")
    if parts.number("I", "array element type") != element_oid and element_oid is not None:
        raise parts.refuse(8, f"an array of elements of type {element_oid}")
    bounds = []
    size = min(dimensions, 1)
    for _ in range(dimensions):
        start = parts.at
        length = parts.number("i", "array dimension")
        first = parts.number("i", "array lower bound")
        size *= length
        if length < 0 or size * 4 > len(raw) or first + length - 1 > INT32_MAX:
            raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"a dimension of {length} elements")
        bounds.append((first, length))
    elements: list[tuple[bytes | None, int]] = []
    for _ in range(size):
        length = parts.number("i", "array element length")
        if length == -1:
            elements.append((None, parts.at))
        else:
            start = parts.at
            elements.append((parts.take(length, "array element"), start))
    parts.finish()
    return ArrayParts(tuple(bounds) if elements else (), elements)


#: Family to reader; an array needs its element's type and is not here.
BINARY: Final[dict[str, Callable[[bytes], Any]]] = {
    "bool": read_bool,
    "int2": _integer("h", "int2"),
    "int4": _integer("i", "int4"),
    "int8": _integer("q", "int8"),
    "uint4": _integer("I", "unsigned 32-bit number"),
    "uint8": _integer("Q", "unsigned 64-bit number"),
    "pg_lsn": _integer("Q", "pg_lsn"),
    # A float's bits: a NaN keeps its payload.
    "float4": _integer("I", "float4"),
    "float8": _integer("Q", "float8"),
    "numeric": read_numeric,
    "uuid": read_uuid,
    "bytea": lambda raw: raw,
    "date": read_date,
    "time": read_time,
    "timestamp": read_timestamp,
    "timestamptz": read_timestamp,
    "interval": read_interval,
}
