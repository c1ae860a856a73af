"""Text forms to values, one function a family: what the server writes and nothing else.

Values are plain Python: int, bool, bytes. A float is its bit pattern and a numeric its own ASCII
text, so that nothing is lost; a date is days and a timestamp microseconds since 1970.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NoReturn

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode

_INTEGER: Final = re.compile(rb"-?[0-9]{1,20}")
_FLOAT: Final = re.compile(rb"-?([0-9]+(?:\.[0-9]+)?)(?:[eE][+-]?[0-9]+)?")
_MAX_FLOAT: Final = 64  # characters; the server writes at most 24
_NUMERIC: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?|NaN|-?Infinity")
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LSN: Final = re.compile(rb"([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})")
_HEX: Final = re.compile(rb"\\x((?:[0-9a-fA-F]{2})*)")
_ESCAPED: Final = re.compile(rb"(?:[ -\[\]-~]|\\\\|\\[0-3][0-7][0-7])*")
_ESCAPE: Final = re.compile(rb"\\(\\|[0-7]{3})")

_SPECIAL_FLOATS: Final = {
    b"NaN": (0x7FC0_0000, 0x7FF8_0000_0000_0000),
    b"Infinity": (0x7F80_0000, 0x7FF0_0000_0000_0000),
    b"-Infinity": (0xFF80_0000, 0xFFF0_0000_0000_0000),
}


def refuse(expected: str) -> NoReturn:
    """Say that the value as a whole is not a text form of its type."""
    raise ValueProblem(ErrorCode.BAD_VALUE, 0, expected)


def check_utf8(raw: bytes) -> bytes:
    """Give the bytes back if they are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise ValueProblem(
            ErrorCode.INVALID_UTF8,
            error.start,
            "UTF-8; if the session's encoding is another, pin client_encoding=UTF8",
        ) from None
    return raw


def read_bool(raw: bytes) -> bool:
    """Read ``t`` or ``f``."""
    if raw not in (b"t", b"f"):
        refuse("a boolean: t or f")
    return raw == b"t"


def _integer(low: int, high: int, name: str) -> Callable[[bytes], int]:
    def read(raw: bytes) -> int:
        if not _INTEGER.fullmatch(raw) or not low <= int(raw) <= high:
            refuse(f"an {name} in decimal digits")
        return int(raw)

    return read


def read_lsn(raw: bytes) -> int:
    """Read ``16/B374D848``."""
    halves = _LSN.fullmatch(raw)
    if halves is None:
        refuse("a pg_lsn: two hexadecimal halves, 16/B374D848")
    return int(halves[1], 16) << 32 | int(halves[2], 16)


def read_float8(raw: bytes) -> int:
    """Read a float8's bit pattern."""
    if raw in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[raw][1]
    value = _finite(raw, "float8")
    return int.from_bytes(struct.pack(">d", value), "big")


def read_float4(raw: bytes) -> int:
    """Read a float4's bit pattern, rounded once: not to a float8 first and then again."""
    if raw in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[raw][0]
    wide = _finite(raw, "float4")
    try:
        bits = int.from_bytes(struct.pack(">f", wide), "big")
    except OverflowError:
        refuse("a float4: the number is too large")
    near = _float4_of(bits)
    # Two float4 neighbours enclose the float8; only when it lies half way can its own rounding
    # have mattered, and then the digits themselves decide.
    if near != wide:
        toward = 1 if (wide > near) == (wide > 0) else -1
        other = _float4_of(bits + toward)
        exact = Fraction(wide)
        if math.isfinite(other) and 2 * exact == Fraction(near) + Fraction(other):
            digits = Fraction(raw.decode())
            if digits != exact and (digits > exact) == (other > near):
                bits += toward
    if wide != 0 and not bits & 0x7FFF_FFFF:
        refuse("a float4: the number is too small")
    return bits


def _finite(raw: bytes, name: str) -> float:
    number = _FLOAT.fullmatch(raw)
    if number is None or len(raw) > _MAX_FLOAT:
        refuse(f"a {name} in decimal notation, NaN or Infinity")
    value = float(raw)
    if math.isinf(value) or (value == 0 and number[1].strip(b"0.")):
        refuse(f"a {name}: the number is out of range")
    return value


def _float4_of(bits: int) -> float:
    (value,) = struct.unpack(">f", bits.to_bytes(4, "big"))
    return float(value)


def read_numeric(raw: bytes) -> bytes:
    """Read a numeric: its digits as they stand, for the scale is part of the value."""
    if not _NUMERIC.fullmatch(raw):
        refuse("a numeric in plain decimal notation, NaN or Infinity")
    return raw


def read_uuid(raw: bytes) -> bytes:
    """Read a uuid's 16 bytes."""
    if not _UUID.fullmatch(raw):
        refuse("a uuid: 32 hexadecimal digits as 8-4-4-4-12")
    return bytes.fromhex(raw.replace(b"-", b"").decode())


def read_bytea(raw: bytes) -> bytes:
    r"""Read a bytea in hex form, ``\x00ff``, or in escape form, ``\000\377\\``.

    An escaped backslash is doubled, so a value in escape form never starts with ``\x``.
    """
    digits = _HEX.fullmatch(raw)
    if digits is not None:
        return bytes.fromhex(digits[1].decode())
    if not _ESCAPED.fullmatch(raw):
        refuse("a bytea in hex or escape form (bytea_output)")
    return _ESCAPE.sub(lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]), raw)


#: Family to reader; arrays and times have files of their own.
SCALARS: Final[dict[str, Callable[[bytes], Any]]] = {
    "bool": read_bool,
    "int2": _integer(-(2**15), 2**15 - 1, "int2"),
    "int4": _integer(-(2**31), 2**31 - 1, "int4"),
    "int8": _integer(-(2**63), 2**63 - 1, "int8"),
    "uint4": _integer(0, 2**32 - 1, "unsigned 32-bit number"),
    "uint8": _integer(0, 2**64 - 1, "unsigned 64-bit number"),
    "pg_lsn": read_lsn,
    "float4": read_float4,
    "float8": read_float8,
    "numeric": read_numeric,
    "uuid": read_uuid,
    "bytea": read_bytea,
}
