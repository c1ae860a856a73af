"""Types of keys with their extremes, and values that differ in the last digit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_LONG: Final = "x" * 100
_MICROSECONDS: Final = "round(extract(epoch from {}) * 1000000)"


@dataclass(frozen=True)
class KeyType:
    """A type of a key.

    ``values`` are literals in ascending order, ``shown`` is SQL for a value's text as
    :func:`texts` returns it.
    """

    name: str
    sql: str
    values: tuple[str, ...]
    shown: str = "{}::text"

    @property
    def is_floating(self) -> bool:
        return self.sql in ("real", "double precision")


def _integers(name: str, bits: int) -> KeyType:
    last = 2 ** (bits - 1) - 1
    values = (-last - 1, -last, -1, 0, last - 1, last)
    return KeyType(name, name, tuple(map(str, values)))


def _times(name: str) -> KeyType:
    values = (
        "4714-11-24 00:00:00 BC", "4714-11-24 00:00:00.000001 BC", "0001-12-31 23:59:59.999999 BC",
        "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00",
        "2026-11-28 12:00:00.123456", "2026-11-28 12:00:00.123457", "9999-12-31 23:59:59.999999",
        "10000-01-01 00:00:00", "294247-01-10 04:00:54.775805", "294247-01-10 04:00:54.775806",
    )  # fmt: skip
    zone = "+00" if name == "timestamptz" else ""
    return KeyType(name, name, tuple(_with_zone(each, zone) for each in values), _MICROSECONDS)


def _with_zone(time: str, zone: str) -> str:
    return f"{time[:-3]}{zone} BC" if time.endswith(" BC") else f"{time}{zone}"


#: Types whose bounds by delta-rs do not contain all values.
FEW: Final = (
    KeyType(
        "numeric_20", "numeric(20, 0)",
        ("-1", "0", "9223372036854775807", "9223372036854775808", "18446744073709551614",
         "18446744073709551615"),
    ),
    KeyType(
        "numeric_38", "numeric(38, 0)",
        ("-" + "9" * 38, "-" + "9" * 37 + "8", "-1", "0", "9" * 37 + "8", "9" * 38),
    ),
    KeyType(
        "numeric_38_19", "numeric(38, 19)",
        ("-" + "9" * 19 + "." + "9" * 19, "0.1234567890123456788", "0.1234567890123456789",
         "0.1234567890123456790", "9" * 19 + "." + "9" * 18 + "8", "9" * 19 + "." + "9" * 19),
    ),
    KeyType(
        "double", "double precision",
        ("-Infinity", "-1.7976931348623157e308", "-1", "0", "5e-324", "0.3", "0.30000000000000004",
         "1.7976931348623157e308", "Infinity", "NaN"),
        "{}",
    ),
    _times("timestamptz"),
)  # fmt: skip

#: All types of keys.
ALL: Final = (
    *FEW,
    _integers("smallint", 16),
    _integers("integer", 32),
    _integers("bigint", 64),
    KeyType("oid", "oid", ("0", "1", "2147483648", "4294967294", "4294967295")),
    KeyType("numeric_9_2", "numeric(9, 2)", ("-9999999.99", "0.01", "0.02", "9999999.99")),
    KeyType("numeric_18", "numeric(18, 0)", ("-" + "9" * 18, "0", "9" * 17 + "8", "9" * 18)),
    KeyType(
        "numeric_20_2", "numeric(20, 2)",
        ("-0.01", "123456789012345678.91", "123456789012345678.92", "123456789012345678.93"),
    ),
    KeyType("numeric_any", "numeric", ("-1e40", "0", "1e-40", "1e40", "NaN")),
    KeyType(
        "real", "real",
        ("-Infinity", "-3.4028235e38", "0", "1.1754944e-38", "0.1", "0.10000001", "3.4028235e38",
         "Infinity", "NaN"),
        "{}::float8",
    ),
    KeyType(
        "date", "date",
        ("4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "1969-12-31", "1970-01-01", "2026-11-28",
         "2026-11-29", "9999-12-31", "10000-01-01", "5874897-12-30", "5874897-12-31"),
        "({} - date '1970-01-01')",
    ),
    _times("timestamp"),
    KeyType("time", "time", ("00:00:00", "12:00:00.123456", "12:00:00.123457", "24:00:00")),
    KeyType("interval", "interval", ("-1 mon", "00:00:00", "00:00:00.000001", "1 mon", "1 year")),
    KeyType(
        "text", "text",
        ("", "a", "a\x01", _LONG + "a", _LONG + "b", "é", "\uffff", "\U0010ffff" * 10),
    ),
    KeyType("char", "char(3)", ("", "a", "ab", "abc"), "rpad({}::text, 3)"),
    KeyType(
        "uuid", "uuid",
        ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001",
         "7fffffff-ffff-ffff-ffff-ffffffffffff", "ffffffff-ffff-ffff-ffff-fffffffffffe",
         "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ),
    KeyType(
        "bytea", "bytea",
        ("", r"\x00", r"\x61", r"\x" + "ff" * 100, r"\x" + "ff" * 101), "encode({}, 'hex')",
    ),
    KeyType("boolean", "boolean", ("false", "true")),
    KeyType(
        "inet", "inet", ("0.0.0.0", "10.0.0.1", "10.0.0.2", "255.255.255.255", "::1"), "host({})"
    ),
    KeyType("lsn", "pg_lsn", ("0/0", "0/1", "7FFFFFFF/FFFFFFFF"), "({} - pg_lsn '0/0')::text"),
)  # fmt: skip


def texts(values: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Return values as texts with all digits: those of a time are its microseconds or days."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return [None if value is None else _text(value) for value in values.to_pylist()]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else str(value)
