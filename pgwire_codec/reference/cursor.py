"""Bounded reader and writer of the wire's primitive types."""

from __future__ import annotations

import struct
from typing import Final

from pgwire_codec.errors import DecodeError, EncodeError, ErrorCode

_STRUCTS = {
    "Int8": struct.Struct(">b"),
    "UInt8": struct.Struct(">B"),
    "Int16": struct.Struct(">h"),
    "Int32": struct.Struct(">i"),
    "UInt32": struct.Struct(">I"),
    "Int64": struct.Struct(">q"),
    "UInt64": struct.Struct(">Q"),
}

#: Hint for text that is not UTF-8.
SET_UTF8: Final = "Set client_encoding=UTF8 in the session that reads the slot."


class Cursor:
    """Cursor over ``data``, which reads never past its end; every error has a byte offset."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.end = len(data)

    @property
    def remaining(self) -> int:
        return self.end - self.pos

    def error(
        self, code: str, expected: str, *, offset: int | None = None, hint: str | None = None
    ) -> DecodeError:
        at = self.pos if offset is None else offset
        return DecodeError(code, offset=at, expected=expected, hint=hint)

    def read_int(self, wire: str, what: str) -> int:
        layout = _STRUCTS[wire]
        if layout.size > self.remaining:
            raise self.error(
                ErrorCode.TRUNCATED,
                f"{what}: {wire} of {layout.size} bytes, {self.remaining} remain",
            )
        (value,) = layout.unpack_from(self.data, self.pos)
        self.pos += layout.size
        return int(value)

    def read_count(self, wire: str, what: str) -> int:
        start = self.pos
        count = self.read_int(wire, what)
        if count < 0:
            raise self.error(
                ErrorCode.BAD_LENGTH, f"{what} of 0 or more, not {count}", offset=start
            )
        return count

    def read_bytes(self, length: int, what: str) -> bytes:
        if length > self.remaining:
            raise self.error(
                ErrorCode.TRUNCATED, f"{what}: {length} bytes, {self.remaining} remain"
            )
        value = self.data[self.pos : self.pos + length]
        self.pos += length
        return value

    def read_string(self, what: str) -> str:
        stop = self.data.find(b"\0", self.pos)
        if stop < 0:
            raise self.error(ErrorCode.TRUNCATED, f"{what}: a string that a NUL byte ends")
        try:
            value = self.data[self.pos : stop].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(
                ErrorCode.INVALID_UTF8,
                f"{what} in UTF-8",
                offset=self.pos + error.start,
                hint=SET_UTF8,
            ) from None
        self.pos = stop + 1
        return value


def write_int(wire: str, value: int, what: str) -> bytes:
    if not isinstance(value, int):
        raise EncodeError(f"{what} must be an int, not {type(value).__name__}")
    try:
        return _STRUCTS[wire].pack(value)
    except struct.error:
        raise EncodeError(f"{what} does not fit {wire}: {value}") from None


def write_string(value: str, what: str) -> bytes:
    if not isinstance(value, str):
        raise EncodeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise EncodeError(f"{what} cannot hold a NUL character: {value!r}")
    try:
        return value.encode("utf-8") + b"\0"
    except UnicodeEncodeError as error:
        raise EncodeError(f"{what} cannot be written as UTF-8: {error.reason}") from None


def write_bytes(value: bytes, what: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodeError(f"{what} must be bytes, not {type(value).__name__}")
    return bytes(value)
