"""Booleans, integers, OIDs and LSNs."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.lake.row_types import ROW_TYPES
from tests.support.families import FamilyTests
from tests.support.implementations import Implementation, implementation
from tests.support.values import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    laid_out,
    one,
    same_values,
    type_of,
)


def signed(bits: int) -> st.SearchStrategy[int]:
    # As many short numbers as long ones.
    return (
        st.integers(0, bits)
        .flatmap(lambda n: st.integers(-(2**n), 2**n - 1))
        .filter(lambda value: -(2 ** (bits - 1)) <= value < 2 ** (bits - 1))
    )


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, bits).flatmap(lambda n: st.integers(0, 2**n - 1))


def packed(layout: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: struct.pack(f">{layout}", value))


class TestIntegers(FamilyTests):
    golden = [
        ("bool", "t", "01"),
        ("bool", "f", "00"),
        ("int2", "-32768", "8000"),
        ("int4", "7", "00000007"),
        ("int4", "-2147483648", "80000000"),
        ("int8", "-9223372036854775808", "8000000000000000"),
        ("oid", "4294967295", "ffffffff"),
        ("xid", "4294967295", "ffffffff"),
        ("xid8", "18446744073709551615", "ffffffffffffffff"),
        ("pg_lsn", "0/0", "0000000000000000"),
        ("pg_lsn", "FFFFFFFF/FFFFFFFF", "ffffffffffffffff"),
        ("pg_lsn", "16/B374D848", "00000016b374d848"),
    ]

    texts = [
        ("bool", b"t", True),
        ("int2", b"-32768", -32768),
        ("int4", b"2147483647", INT32_MAX),
        ("int8", b"-9223372036854775808", INT64_MIN),
        ("oid", b"4294967295", 2**32 - 1),
        ("xid8", b"18446744073709551615", 2**64 - 1),
        ("pg_lsn", b"16/B374D848", 0x16B374D848),
    ]

    representable = [
        ("xid8", b"9223372036854775807", {"arrow_types": ROW_TYPES}, INT64_MAX),
    ]

    unrepresentable = [
        ("xid8", b"18446744073709551615", {"arrow_types": ROW_TYPES}, INT64_MAX),
        ("pg_lsn", b"FFFFFFFF/0", {"arrow_types": ROW_TYPES}, INT64_MAX),
    ]

    malformed_text = [
        # Python's own int() takes some of these.
        ("int4", b"1_000", "bad_value", 0),
        ("int4", b" 1", "bad_value", 0),
        ("int4", b"1\n", "bad_value", 0),
        ("int4", b"+1", "bad_value", 0),
        ("int4", "٣".encode(), "bad_value", 0),
        ("int4", b"", "bad_value", 0),
        ("int4", b"2147483648", "bad_value", 0),
        ("int2", b"-32769", "bad_value", 0),
        ("int8", b"9223372036854775808", "bad_value", 0),
        ("int8", b"1" * 5000, "bad_value", 0),
        ("oid", b"-1", "bad_value", 0),
        ("oid", b"4294967296", "bad_value", 0),
        ("xid8", b"18446744073709551616", "bad_value", 0),
        ("bool", b"true", "bad_value", 0),
        ("bool", b"", "bad_value", 0),
        ("pg_lsn", b"1/123456789", "bad_value", 0),
    ]

    malformed_binary = [
        ("int4", b"\0\0\0", "bad_length", 0),
        ("int4", b"\0\0\0\0\0", "bad_length", 0),
        ("bool", b"\2", "bad_value", 0),
    ]

    arrow_types = [
        ("int8", pa.array([1, -7, None], pa.int8())),
        ("int4", pa.array([2**31 - 1, 0, None], pa.uint64())),
        ("oid", pa.array([5, 2**32 - 1, None], pa.int64())),
        ("int2", pa.array([5, 255, None], pa.uint8())),
        ("bool", pa.array(["t", "f", None], pa.string_view())),
    ]
    unwritable = [
        ("int2", pa.array([1, 2**15]), -1, "int2 from -32768 to 32767, not 32768"),
        ("int4", pa.array([1, -(2**31) - 1]), -1, "not -2147483649"),
        ("int8", pa.array([1, 2**63], pa.uint64()), -1, "not 9223372036854775808"),
        ("oid", pa.array([1, -1]), -1, "oid from 0 to 4294967295, not -1"),
        ("pg_lsn", pa.array([1, -1]), -1, "not -1"),
        ("int4", pa.array(["1", "1.5"]), -1, "an int4 in decimal digits, not b'1.5'"),
    ]
    random_values = {
        "bool": packed("?", st.booleans()),
        "int2": packed("h", signed(16)),
        "int4": packed("i", signed(32)),
        "int8": packed("q", signed(64)),
        "oid": packed("I", unsigned(32)),
        "xid8": packed("Q", unsigned(64)),
        "pg_lsn": packed("Q", unsigned(64)),
    }
    mixed = {
        "bool": (b"t", "00", b"f"),
        "int8": (b"-9007199254740993", "7fffffffffffffff", b"00000000000000000007"),
        "xid8": (b"123", "000000000000000f", b"18446744073709551615"),
    }
    by_kernel = [
        ("int2", "-32768"),
        ("int4", "-2147483648"),
        ("int8", "9223372036854775807"),
        ("oid", "4294967295"),
        ("xid8", "9223372036854775807"),
        ("pg_lsn", "16/B374D848"),
    ]

    alike = [
        ("int2", [b"0", b"7", b"123", b"32767"], [b"32768", b"-32768"]),
        ("int4", [b"1", b"12345678", b"0042"], [b"123456789", b"-1", b"12a", b"1 ", b":"]),
        ("oid", [b"1", b"12345678"], [b"4294967295", b"4294967296", b"-0"]),
        ("int8", [b"1", b"99999999"], [b"9" * 18, b"9" * 19]),
    ]


@given(st.integers(INT64_MIN, INT64_MAX))
def test_round_trip(codec: Implementation, value: int) -> None:
    assert one(codec, "int8", str(value).encode()) == value
    assert one(codec, "int8", struct.pack(">q", value), binary=True) == value
    assert one(codec, "int8", struct.pack(">q", value), binary=True, types="text") == str(value)


def test_names_of_the_catalog_are_rendered_as_oids(codec: Implementation) -> None:
    assert one(codec, "regclass", struct.pack(">I", 1259), binary=True) == "1259"


@pytest.mark.differential
def test_the_first_of_many_problems() -> None:
    rows = [(b"1", False)] * 700
    for wrong, text in ((650, b"x"), (300, b"2147483648"), (299, b"{")):
        rows[wrong] = (text, False)
        assert not same_values(type_of("int4"), rows)
    with pytest.raises(ValueProblem) as caught:
        implementation("cython").decode_values(type_of("int4"), *laid_out(rows))
    assert caught.value.row == 299
