"""Arrow's values to PostgreSQL's binary and text forms, one by one.

The counterpart of :mod:`pgwire_codec.reference.values`. A stored value is what that gives: int for
every number, date and time (of a float its bits), bool, bytes, a tuple of months, days and
nanoseconds, a list. The text form is what the server renders of the binary form, so that both are
said once; a string is the server's text already.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.reference.encode_arrow import STRINGS
from pgwire_codec.reference.render import render
from pgwire_codec.reference.text import SCALARS
from pgwire_codec.reference.text_time import TIMES
from pgwire_codec.reference.values_calendar import (
    DAY,
    EPOCH,
    EPOCH_DAYS,
    MAX_DATE,
    MAX_TIMESTAMP,
    MIN_DATE,
    MIN_TIMESTAMP,
)
from pgwire_codec.types import ColumnType

_TEXT: Final = SCALARS | TIMES
#: Families whose binary form is their text, behind a version byte or not.
TEXTUAL: Final = {"text": b"", "jsonb": b"\x01", "jsonpath": b"\x01"}

_INTEGERS: Final = {
    "int2": (">h", -(2**15), 2**15 - 1),
    "int4": (">i", -(2**31), 2**31 - 1),
    "int8": (">q", -(2**63), 2**63 - 1),
    "uint4": (">I", 0, 2**32 - 1),
    "reg": (">I", 0, 2**32 - 1),
    "uint8": (">Q", 0, 2**64 - 1),
    "pg_lsn": (">Q", 0, 2**64 - 1),
}
#: Nanoseconds of Arrow's time units.
UNITS: Final = {"s": 1_000_000_000, "m": 1_000_000, "u": 1_000, "n": 1}


class Unwritable(Exception):
    """A value that its column cannot have; the text says what was wanted."""


def has_binary_form(column: ColumnType, formats: Sequence[str]) -> bool:
    """Say whether there is more of the values than their text."""
    if formats[0] not in STRINGS:
        return column.child is None or has_binary_form(column.child, formats[1:])
    return column.pg.family in TEXTUAL


# Forms.


def text_form(column: ColumnType, formats: Sequence[str], value: Any) -> bytes:
    """Give a stored value as the server writes it.

    Raises
    ------
    Unwritable
        If the column's type has no such value.
    """
    if formats[0] in STRINGS:
        return _checked_text(column, value)
    if column.pg.family == "array":
        return _array_text(column, formats, value)
    return render(column, binary_form(column, formats, value))


def binary_form(column: ColumnType, formats: Sequence[str], value: Any) -> bytes:
    """Give a stored value as the type's send function writes it; raises as the text form does."""
    family, arrow = column.pg.family, formats[0]
    if arrow in STRINGS:
        return TEXTUAL[family] + bytes(value)
    if family == "array":
        return _array_binary(column, formats, value)
    if family in _INTEGERS:
        layout, low, high = _INTEGERS[family]
        return struct.pack(layout, _within(value, low, high, f"{column.pg.name}"))
    return _BINARY[family](column, arrow, value)


def _refuse(wanted: str) -> NoReturn:
    raise Unwritable(wanted)


def _within(value: int, low: int, high: int, name: str) -> int:
    if not low <= value <= high:
        _refuse(f"{name} from {low} to {high}, not {value}")
    return value


def _checked_text(column: ColumnType, value: bytes) -> bytes:
    """Give a string back, if it is a text form of a type whose values are read."""
    read = _TEXT.get(column.pg.family)
    if read is not None:
        try:
            read(value)
        except ValueProblem as problem:
            _refuse(f"{problem.expected}, not {value!r}")
    return value


def _array_text(column: ColumnType, formats: Sequence[str], value: Sequence[Any]) -> bytes:
    child = column.child
    assert child is not None
    delimiter = column.pg.delimiter.encode()
    return (
        b"{"
        + delimiter.join(
            b"NULL" if each is None else _quoted(text_form(child, formats[1:], each), delimiter)
            for each in value
        )
        + b"}"
    )


def _quoted(text: bytes, delimiter: bytes) -> bytes:
    """Quote an element as array_out does."""
    special = b'"\\{} \t\n\r\v\f' + delimiter
    if text and text.upper() != b"NULL" and not any(byte in special for byte in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _array_binary(column: ColumnType, formats: Sequence[str], value: Sequence[Any]) -> bytes:
    child = column.child
    assert child is not None
    has_null = any(each is None for each in value)
    parts = [struct.pack(">iiI", 1 if value else 0, has_null, column.pg.element)]
    if value:
        parts.append(struct.pack(">ii", len(value), 1))
    for each in value:
        if each is None:
            parts.append(struct.pack(">i", -1))
        else:
            raw = binary_form(child, formats[1:], each)
            parts += (struct.pack(">i", len(raw)), raw)
    return b"".join(parts)


def _bool(column: ColumnType, arrow: str, value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _float4(column: ColumnType, arrow: str, value: int) -> bytes:
    return struct.pack(">I", value)


def _float8(column: ColumnType, arrow: str, value: int) -> bytes:
    if arrow == "g":
        return struct.pack(">Q", value)
    return struct.pack(">d", *struct.unpack(">f", struct.pack(">I", value)))


def _numeric(column: ColumnType, arrow: str, value: int) -> bytes:
    """Write numeric_send's sign, scale and base-10000 digits, with the column's own scale."""
    given = int(arrow[2:].split(",")[1]) if arrow.startswith("d:") else 0
    precision, scale = numeric_digits(column.typmod)
    if scale is None:
        scale = given
    unscaled = abs(value)
    if scale >= given:
        unscaled *= 10 ** (scale - given)
    else:
        unscaled, rest = divmod(unscaled, 10 ** (given - scale))
        if rest:
            _refuse(f"a numeric of {scale} digits after the point, not {_decimal(value, given)}")
    if precision is not None and unscaled >= 10**precision:
        _refuse(
            f"a numeric of {precision} digits, {scale} of them after the point, not "
            f"{_decimal(value, given)}"
        )
    # Groups of four digits, to the left and to the right of the point.
    behind = -(-scale // 4)
    rest = unscaled * 10 ** (4 * behind - scale)
    groups: list[int] = []
    while rest:
        rest, group = divmod(rest, 10_000)
        groups.insert(0, group)
    weight = len(groups) - behind - 1 if groups else 0
    while groups and not groups[-1]:
        groups.pop()
    sign = 0x4000 if value < 0 else 0
    return struct.pack(f">HhHH{len(groups)}H", len(groups), weight, sign, scale, *groups)


def numeric_digits(typmod: int) -> tuple[int | None, int | None]:
    """Give the most digits of a numeric(p,s), and those after its point; None for any."""
    if typmod < 4:
        return None, None
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4) & 0x7FF ^ 0x400) - 0x400  # 11 bits and a sign
    return precision - min(scale, 0), max(scale, 0)


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    point = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{point}" if unscaled < 0 else point


def _bytes(column: ColumnType, arrow: str, value: bytes) -> bytes:
    return value


def _date(column: ColumnType, arrow: str, value: int) -> bytes:
    if not MIN_DATE <= value <= MAX_DATE:
        _refuse(f"a date from 4714-11-24 BC to 5874897-12-31, not day {value} of 1970")
    return struct.pack(">i", value - EPOCH_DAYS)


def _time(column: ColumnType, arrow: str, value: int) -> bytes:
    micros = _micros(arrow, value, "a time")
    if not 0 <= micros <= DAY:
        _refuse(f"a time from 00:00:00 to 24:00:00, not {micros} us")
    return struct.pack(">q", micros)


def _timestamp(column: ColumnType, arrow: str, value: int) -> bytes:
    micros = _micros(arrow, value, "a timestamp")
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        _refuse(f"a timestamp from 4714-11-24 BC to the year 294276, not {micros} us from 1970")
    return struct.pack(">q", micros - EPOCH)


def _interval(column: ColumnType, arrow: str, value: tuple[int, int, int]) -> bytes:
    months, days, nanos = value
    return struct.pack(">qii", _micros("tin", nanos, "an interval"), days, months)


def _micros(arrow: str, value: int, what: str) -> int:
    micros, rest = divmod(value * UNITS[arrow[2]], 1000)
    if rest:
        _refuse(f"{what} in whole microseconds, not {value} ns")
    return micros


_BINARY: Final[dict[str, Callable[[ColumnType, str, Any], bytes]]] = {
    "bool": _bool,
    "float4": _float4,
    "float8": _float8,
    "numeric": _numeric,
    "bytea": _bytes,
    "unknown": _bytes,
    "uuid": _bytes,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "interval": _interval,
}
