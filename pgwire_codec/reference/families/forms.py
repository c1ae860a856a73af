"""Parts that the families' codecs share: checks of values, and a cursor over binary forms."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NoReturn

from pgwire_codec.codec.values import Unrepresentable, ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.cursor import SET_UTF8

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_ANY_BYTES: Final = (
    "A database in SQL_ASCII has any bytes: to decode its other values, use "
    '`unrepresentable="null"` or "clamp".'
)


class Unwritable(Exception):
    """A value that its column cannot have; the text is what was wanted."""


class ValueReader:
    """Cursor over one value; what does not fit is a BAD_LENGTH at the byte where it starts."""

    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, length: int, what: str) -> bytes:
        """Return the next bytes."""
        if length < 0 or length > len(self.raw) - self.at:
            raise ValueProblem(ErrorCode.BAD_LENGTH, self.at, f"{length} bytes of {what}")
        self.at += length
        return self.raw[self.at - length : self.at]

    def number(self, layout: str, what: str) -> int:
        """Return the next integer, big-endian, `layout` being struct's letter for it."""
        (value,) = struct.unpack(f">{layout}", self.take(struct.calcsize(f">{layout}"), what))
        return int(value)

    def count(self, layout: str, size: int, what: str) -> int:
        """Return a count of things that have at least `size` bytes each."""
        start = self.at
        count = self.number(layout, f"count of {what}")
        if count < 0 or count * size > len(self.raw) - self.at:
            raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"{count} {what} to be there")
        return count

    def text(self, what: str) -> bytes:
        """Return the UTF-8 up to the next zero byte, which is skipped."""
        start = self.at
        end = self.raw.find(b"\0", start)
        if end < 0:
            raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"{what} that a zero byte ends")
        self.at = end + 1
        return read_part(check_utf8, self.raw[start:end], start)

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.at != len(self.raw):
            raise ValueProblem(ErrorCode.BAD_LENGTH, self.at, "the end of the value")


def bad_value(offset: int, expected: str, hint: str | None = None) -> ValueProblem:
    """Return the error for bytes that no value of the type has."""
    return ValueProblem(ErrorCode.BAD_VALUE, offset, expected, hint=hint)


def refuse(expected: str, hint: str | None = None) -> NoReturn:
    """Raise the error for a value that as a whole is not a form of its type."""
    raise bad_value(0, expected, hint)


def check_utf8(raw: bytes) -> bytes:
    """Return the bytes as they are, if they are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise ValueProblem(
            ErrorCode.INVALID_UTF8,
            error.start,
            "UTF-8",
            hint=f"{SET_UTF8} {_ANY_BYTES}",
        ) from None
    return raw


def check_size(raw: bytes, size: int, name: str) -> bytes:
    """Return the bytes as they are, if there are as many as the type has."""
    if len(raw) != size:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"{size} bytes of {name}, not {len(raw)}")
    return raw


def read_number(layout: str, name: str, raw: bytes) -> int:
    """Read a value that is one integer and nothing else."""
    (value,) = struct.unpack(f">{layout}", check_size(raw, struct.calcsize(f">{layout}"), name))
    return int(value)


def read_part(read: Callable[[bytes], bytes], raw: bytes, offset: int) -> bytes:
    """Read a part of a value; an error's offset is that in the whole value."""
    try:
        return read(raw)
    except ValueProblem as problem:
        problem.offset += offset
        raise


def store_within(value: float, low: int, high: int, what: str) -> int:
    """Return a number that is between the limits of an Arrow type."""
    if low <= value <= high:
        return int(value)
    raise Unrepresentable(f"{what}, not {value}", high if value > high else low)
