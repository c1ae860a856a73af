"""numeric and money."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import reference
from pgwire_codec.reference import values as reference_values
from tests.support.build import column, relation
from tests.support.families import FamilyTests
from tests.support.implementations import Implementation, implementation
from tests.support.values import (
    INT64_MIN,
    OPTIONS,
    POLICIES,
    laid_out,
    numeric_typmod,
    one,
    same_values,
    type_of,
    with_options,
)


def sent(weight: int, sign: int, scale: int, *digits: int) -> bytes:
    """Binary form as numeric_send writes it."""
    return struct.pack(f">HhHH{len(digits)}H", len(digits), weight, sign, scale, *digits)


def words(*each: int) -> bytes:
    return struct.pack(f">{len(each)}H", *each)


@st.composite
def any_sent(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(0, 12))
    digits = draw(
        st.lists(
            st.sampled_from([0, 1, 5000, 9999]) | st.integers(0, 9999),
            min_size=count,
            max_size=count,
        )
    )
    weight = draw(st.integers(-4, 10))
    sign = draw(st.sampled_from([0, 0, 0x4000, 0x4000, 0xC000, 0xD000, 0xF000]))
    return sent(weight, sign, draw(st.integers(0, 30)), *digits)


class TestNumeric(FamilyTests):
    golden = [
        ("numeric", "0", "0000000000000000"),
        ("numeric", "1.50", "000200000000000200011388"),
        ("numeric", "NaN", "00000000c0000000"),
        ("numeric", "-Infinity", "00000000f0000020"),
        ("numeric", "-12345.67", "0003000140000002000109291a2c"),
    ]

    texts = [
        ("numeric", b"0.000100", Decimal("0.000100")),
        ("numeric", b"Infinity", Decimal("Infinity")),
        ("money", b"-$1,234.50", "-$1,234.50"),
    ]

    representable = [
        ("numeric", b"1.500", {"numeric": "decimal128(5,1)"}, Decimal("1.5")),
        ("numeric", b"0009999.9", {"numeric": "decimal128(5,1)"}, Decimal("9999.9")),
        ("numeric", b"12300", {"typmod": 198658}, Decimal(12300)),
        ("numeric", b"0.00123", {"typmod": (3 << 16 | 5) + 4}, Decimal("0.00123")),
        ("numeric", b"-0.01", {"typmod": 983046}, Decimal("-0.01")),
        ("numeric", b"-" + b"9" * 38, {"numeric": "decimal128(38,0)"}, Decimal(-(10**38) + 1)),
        ("numeric", b"9" * 76, {"numeric": "decimal256(76,0)"}, Decimal(10**76 - 1)),
        ("numeric", b"NaN", {"numeric": "float64"}, math.nan),
        ("numeric", b"-Infinity", {"numeric": "float64"}, -math.inf),
        ("numeric", b"0.1", {"numeric": "float64"}, 0.1),
        ("numeric", b"9" * 131072, {}, Decimal("9" * 131072)),
    ]

    unrepresentable = [
        ("numeric", b"NaN", {"typmod": 983046}, None),
        ("numeric", b"Infinity", {"typmod": 983046}, Decimal("9999999999999.99")),
        ("numeric", b"-Infinity", {"typmod": 983046}, Decimal("-9999999999999.99")),
        ("numeric", b"10000", {"numeric": "decimal128(5,1)"}, Decimal("9999.9")),
        ("numeric", b"-" + b"9" * 131072, {"numeric": "decimal256(76,0)"}, -(10**76) + 1),
        ("numeric", b"1.25", {"numeric": "decimal128(5,1)"}, Decimal("1.3")),
        ("numeric", b"-1.25", {"numeric": "decimal128(5,1)"}, Decimal("-1.3")),
        ("numeric", b"1.2499", {"numeric": "decimal128(5,1)"}, Decimal("1.2")),
        ("numeric", b"9999.99", {"numeric": "decimal128(5,1)"}, Decimal("9999.9")),
        ("numeric", b"0.04", {"numeric": "decimal128(5,1)"}, Decimal("0.0")),
        ("numeric", b"1" + b"0" * 400, {"numeric": "float64"}, 1.7976931348623157e308),
        ("numeric", b"-1" + b"0" * 400, {"numeric": "float64"}, -1.7976931348623157e308),
    ]

    malformed_text = [
        ("numeric", b"1e5", "bad_value", 0),
        ("numeric", b"-NaN", "bad_value", 0),
        ("numeric", b"1.", "bad_value", 0),
    ]

    malformed_binary = [
        ("numeric", words(1, 0, 0x8000, 0, 1), "bad_value", 4),
        ("numeric", words(1, 0, 0, 0x4000, 1), "bad_value", 6),
        ("numeric", words(1, 0, 0, 0, 10000), "bad_value", 8),
        ("numeric", words(2, 0, 0, 0, 1), "bad_length", 0),
        ("numeric", words(0, 0, 0), "bad_length", 6),
    ]

    arrow_types = [("numeric", pa.array([12, -1, None], pa.int16()))]
    unwritable = [
        (
            "numeric",
            pa.array(["1.00", "1000.00"]).cast(pa.decimal128(9, 2)),
            numeric_typmod(5, 2),
            "a numeric of 5 digits, 2 of them after the point, not 1000.00",
        ),
        (
            "numeric",
            pa.array(["1.00", "1.01"]).cast(pa.decimal128(9, 2)),
            numeric_typmod(5, 1),
            "a numeric of 1 digits after the point, not 1.01",
        ),
    ]
    random_values = dict.fromkeys(["numeric", "numeric(15,2)", "numeric(38,0)"], any_sent())
    mixed = {"numeric(15,2)": (b"-12345.67", "00030001400000020001092a1a2c", b"NaN")}
    by_kernel = [
        ("numeric", "12345678901234567890.123"),
        ("numeric(38,10)", "-1234567890123456789012345678.0123456789"),
        ("numeric(20,8)", "0.12345678"),
    ]

    alike = [
        (
            "numeric(15,2)",
            [b"0.00", b"1.50", b"123456.78"],
            [b"1.5", b"1", b".50", b"12", b"1.5x", b"1234567.89", b"-1.50", b"1.505", b"1,50"],
        ),
        ("numeric(9,6)", [b"0.000001", b"99.999999"], [b"100.000000", b"1000.000000", b"0000000"]),
        ("numeric(8,7)", [b"0.0000001", b"1.9999999"], [b"10.0000000"]),
    ]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (sent(0, 0, 0), "0"),
        (sent(0, 0, 2), "0.00"),
        (sent(0, 0x4000, 2), "0.00"),
        (sent(0, 0x4000, 1, 1, 5000), "-1.5"),
        (sent(1, 0, 0, 1), "10000"),
        (sent(-1, 0, 4, 1), "0.0001"),
        (sent(-2, 0, 8, 1), "0.00000001"),
        (sent(-2, 0, 10, 1), "0.0000000100"),
        # numeric_recv cuts what the scale does not show.
        (sent(0, 0, 1, 1, 5678), "1.5"),
        (sent(-1, 0x4000, 1, 1), "0.0"),
        (sent(0, 0xC000, 0), "NaN"),
        (sent(0, 0xF000, 0), "-Infinity"),
        (sent(32767, 0, 0, 1), "1" + "0" * 131068),
    ],
)
def test_binary(codec: Implementation, raw: bytes, text: str) -> None:
    assert one(codec, "numeric", raw, binary=True, types="text") == text
    assert one(codec, "numeric", raw, binary=True).compare_total(Decimal(text)) == 0


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_round_trip(codec: Implementation, value: Decimal) -> None:
    raw = f"{value:f}".encode()
    assert one(codec, "numeric", raw) == value
    if abs(value) < 10**32:
        got = one(codec, "numeric", raw, typmod=numeric_typmod(38, 6))
        assert got == value
        assert got.as_tuple().exponent == -6


def test_money_is_rendered_as_a_plain_number(codec: Implementation) -> None:
    assert one(codec, "money", struct.pack(">q", -1), binary=True) == "-0.01"
    least = struct.pack(">q", INT64_MIN)
    assert one(codec, "money", least, binary=True) == "-92233720368547758.08"


def test_scales_are_the_columns_own() -> None:
    table = relation(1, column("c", "numeric", typmod=numeric_typmod(10, 2)))
    for array in (
        pa.array(["1", "-2.50", "0"]).cast(pa.decimal128(12, 4)),
        pa.array(["1", "-2.5", "0"]).cast(pa.decimal128(10, 1)),
        pa.array(["1", "-2.5", "0"]).cast(pa.decimal256(70, 2)),
    ):
        messages = reference.encode_batch(table, [array]).to_pylist()
        forms = [pgc.decode_message(data).new.values for data in messages]
        assert forms == [(b"1.00",), (b"-2.50",), (b"0.00",)]


@pytest.mark.differential
@settings(max_examples=300)
@given(
    st.lists(
        st.from_regex(rb"-?[0-9]{1,40}(\.[0-9]{1,40})?", fullmatch=True)
        | st.from_regex(rb"-?[0-9]{1,13}\.[0-9]{2}", fullmatch=True)
        | st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: f"{d:f}".encode()),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["15,2", "38,0", "3,2", "5,0", "38,10", "20,8", "16,7", "17,7"]),
    st.sampled_from(POLICIES),
)
def test_any_text(texts: list[bytes], shape: str, policy: str) -> None:
    rows = [(text, False) for text in texts]
    for row in rows:
        same_values(type_of(f"numeric({shape})"), [row], policy=policy)
    for options in OPTIONS:
        same_values(with_options("numeric", options), rows, policy=policy)


@pytest.mark.differential
@pytest.mark.parametrize("policy", ["null", "clamp"])
def test_nan_does_not_need_the_reference(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(reference_values, "decode_values")
    got = implementation("cython").decode_values(
        type_of("numeric(15,2)"), *laid_out([(b"NaN", False)]), unrepresentable=policy
    )
    assert (got.array.null_count, got.invalid.tolist()) == (1, [0])
