"""Values, family by family: what comes of them, and what a column's type cannot hold."""

from __future__ import annotations

import datetime
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.arrow.layout import valid_rows
from pgwire_codec.arrow.values import Interval, to_pylist
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.reference import values_build
from pgwire_codec.reference.families.calendar import MAX_DATE, MIN_DATE, date_from_days
from pgwire_codec.spark.arrow_types import SPARK
from tests.values import decode

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def one(kind: str, raw: bytes, *, binary: bool = False, **options: Any) -> Any:
    (value,) = to_pylist(decode(kind, [raw], binary=binary, **options).array)
    return value


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("bool", b"t", True),
        ("int2", b"-32768", -32768),
        ("int4", b"2147483647", INT32_MAX),
        ("int8", b"-9223372036854775808", INT64_MIN),
        ("oid", b"4294967295", 2**32 - 1),
        ("xid8", b"18446744073709551615", 2**64 - 1),
        ("pg_lsn", b"16/B374D848", 0x16B374D848),
        ("numeric", b"0.000100", Decimal("0.000100")),
        ("numeric", b"Infinity", Decimal("Infinity")),
        ("bpchar", b"abc       ", "abc       "),
        ("json", b'{"a":  1}', '{"a":  1}'),
        ("money", b"-$1,234.50", "-$1,234.50"),
        ("bytea", b"\\x00fF", b"\x00\xff"),
        ("bytea", b"\\000\\377\\\\'", b"\0\xff\\'"),
        ("bytea", b"", b""),
        ("bytea", b"\\\\x41", b"\\x41"),
        ("uuid", b"A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11",
         uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        ("date", b"2024-02-29", datetime.date(2024, 2, 29)),
        ("date", b"0001-01-01", datetime.date.min),
        ("date", b"9999-12-31", datetime.date.max),
        ("date", b"0001-12-31 BC", np.datetime64("0000-12-31", "D")),
        ("date", b"10000-01-01", np.datetime64("10000-01-01", "D")),
        ("time", b"23:59:59.9", datetime.time(23, 59, 59, 900000)),
        ("timestamp", b"2024-02-29 12:34:56.000001",
         datetime.datetime(2024, 2, 29, 12, 34, 56, 1)),
        ("timestamp", b"0044-03-15 12:00:00 BC", np.datetime64("-0043-03-15T12:00:00", "us")),
        ("timestamptz", b"2024-02-03 09:35:06.7+05:30",
         datetime.datetime(2024, 2, 3, 4, 5, 6, 700000, tzinfo=datetime.timezone.utc)),
        ("timestamptz", b"1883-11-18 12:00:00-04:56:02",
         datetime.datetime(1883, 11, 18, 16, 56, 2, tzinfo=datetime.timezone.utc)),
        ("timestamptz", b"0044-03-15 12:00:00+00 BC",
         np.datetime64("-0043-03-15T12:00:00", "us")),
        ("interval", b"1 year 2 mons -3 days +04:05:06.789", Interval(14, -3, 14706789000)),
        ("interval", b"-1 years -2 mons +3 days -04:05:06.789", Interval(-14, 3, -14706789000)),
        ("interval", b"00:00:00", Interval(0, 0, 0)),
        ("interval", b"-00:00:00.000001", Interval(0, 0, -1)),
        ("_int4", b"{}", []),
        ("_int4", b"{NULL,-1}", [None, -1]),
        ("_int4", b"[-2:-1]={10,20}", [10, 20]),
        ("_text", b'{a,"",NULL,"NULL",nUlL,"a,\\"\\\\b"}', ["a", "", None, "NULL", None, 'a,"\\b']),
        ("_box", b"{(3,4),(1,2);(7,8),(5,6)}", ["(3,4),(1,2)", "(7,8),(5,6)"]),
        ("_bytea", b'{"\\\\x00ff","\\\\001"}', [b"\0\xff", b"\1"]),
        ("_numeric", b"{1.50,NaN}", [Decimal("1.50"), Decimal("NaN")]),
        ("_timestamptz", b'{"2024-02-29 12:00:00+00"}',
         [datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)]),
    ],
)  # fmt: skip
def test_text_forms(kind: str, raw: bytes, value: Any) -> None:
    assert repr(one(kind, raw)) == repr(value)


def test_empty_is_not_null() -> None:
    for kind in ("text", "bytea", "bpchar", "inet"):
        decoded = decode(kind, [b"", None])
        assert decoded.array.null_count == 1
        assert to_pylist(decoded.array)[0] in ("", b"")


def test_both_forms_in_one_column() -> None:
    decoded = decode("int4", [b"7", struct.pack(">i", 8), None, b"9"],
                     binary=[False, True, False, False])  # fmt: skip
    assert to_pylist(decoded.array) == [7, 8, None, 9]


def test_unknown_types_pass_through() -> None:
    text = decode(99999, [b"sad", None])
    assert (text.array.format, to_pylist(text.array)) == ("u", ["sad", None])
    mixed = decode(99999, [b"sad", b"\0\xff"], binary=[False, True])
    assert (mixed.array.format, to_pylist(mixed.array)) == ("z", [b"sad", b"\0\xff"])
    views = decode(99999, [b"sad", b"\0\xff"], binary=[False, True], strings="view")
    assert (views.array.format, to_pylist(views.array)) == ("vz", [b"sad", b"\0\xff"])
    # A NULL has no form.
    assert decode(99999, [None, b"sad"], binary=[True, False]).array.format == "u"


def test_unknown_types_are_always_strings_where_a_string_is_promised() -> None:
    promised: list[dict[str, Any]] = [{"arrow_types": SPARK}, {"types": "text"}]
    for options in promised:
        decoded = decode(99999, [b"sad", b"\0\xff"], binary=[False, True], **options)
        assert (decoded.array.format, to_pylist(decoded.array)) == ("u", ["sad", "\\x00ff"])


def test_unknown_text_is_utf8() -> None:
    with pytest.raises(ValueProblem, match="client_encoding"):
        decode(99999, [b"\xe9"])


def test_registered_oids_only_have_names() -> None:
    assert one("regclass", struct.pack(">I", 1259), binary=True) == "1259"
    assert one("money", struct.pack(">q", -1), binary=True) == "-0.01"
    assert one("money", struct.pack(">q", INT64_MIN), binary=True) == "-92233720368547758.08"


# --- what a column's type cannot hold -------------------------------------------------------------

UNREPRESENTABLE = [
    ("date", b"infinity", {}, INT32_MAX),
    ("date", b"-infinity", {}, INT32_MIN),
    ("timestamp", b"infinity", {}, INT64_MAX),
    ("timestamp", b"-infinity", {}, -INT64_MAX),
    ("timestamptz", b"294276-12-31 23:59:59.999999+00", {}, INT64_MAX),
    ("time", b"24:00:00", {}, 86_399_999_999),
    ("xid8", b"18446744073709551615", {"arrow_types": SPARK}, INT64_MAX),
    ("pg_lsn", b"FFFFFFFF/0", {"arrow_types": SPARK}, INT64_MAX),
    ("interval", b"infinity", {}, (INT32_MAX, INT32_MAX, INT64_MAX)),
    ("interval", b"-infinity", {}, (INT32_MIN, INT32_MIN, INT64_MIN)),
    ("interval", b"1 mon 2562047788:00:54.775807", {}, (1, 0, INT64_MAX)),
    ("interval", b"-2562047788:00:54.775807", {}, (0, 0, INT64_MIN)),
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
    ("_int4", b"{{1},{2}}", {}, None),
    ("_date", b"{2024-01-01,infinity}", {}, [19723, INT32_MAX]),
    ("_numeric", b"{1,NaN,NULL}", {"typmod": 983046}, [Decimal("1.00"), None, None]),
]


def stored(kind: str, raw: bytes, policy: str, options: dict[str, Any]) -> Any:
    decoded = decode(kind, [raw], unrepresentable=policy, **options)
    assert decoded.invalid.tolist() == [0]
    (value,) = to_pylist(decoded.array)
    array = decoded.array
    if array.format == "tin" and value is not None:
        return array.buffers[0].tolist()[0]
    if array.format == "+l" and array.children[0].format == "tdD" and value is not None:
        days = array.children[0]
        pairs = zip(days.buffers[0].tolist(), valid_rows(days), strict=True)
        return [day if valid else None for day, valid in pairs]
    if array.format.startswith("t") and value is not None:
        return array.buffers[0].tolist()[0]
    return value


@pytest.mark.parametrize(("kind", "raw", "options", "nearest"), UNREPRESENTABLE)
def test_unrepresentable(kind: str, raw: bytes, options: dict[str, Any], nearest: Any) -> None:
    with pytest.raises(ValueProblem) as caught:
        decode(kind, [raw], **options)
    assert (caught.value.code, caught.value.row) == ("unrepresentable", 0)
    assert stored(kind, raw, "clamp", options) == nearest
    nulled = stored(kind, raw, "null", options)
    if isinstance(nearest, list):
        assert nulled[0] is not None
        assert nulled[1] is None
    else:
        assert nulled is None


@pytest.mark.parametrize(
    ("kind", "raw", "options", "value"),
    [
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
        ("timestamp", b"294247-01-10 04:00:54.775807", {}, np.datetime64(INT64_MAX, "us")),
        ("date", b"5874897-12-31", {}, np.datetime64(MAX_DATE, "D")),
        ("interval", b"2562047:47:16.854775", {}, Interval(0, 0, 9223372036854775)),
        ("xid8", b"9223372036854775807", {"arrow_types": SPARK}, INT64_MAX),
        ("uuid", b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", {"arrow_types": SPARK},
         "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("time", b"24:00:00", {"arrow_types": SPARK}, "24:00:00"),
    ],
)  # fmt: skip
def test_just_representable(kind: str, raw: bytes, options: dict[str, Any], value: Any) -> None:
    assert repr(one(kind, raw, **options)) == repr(value)


# --- forms that only binary has -------------------------------------------------------------------


def test_float_bits_are_kept() -> None:
    payloads = [0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000]
    decoded = decode("float8", [struct.pack(">Q", bits) for bits in payloads], binary=True)
    assert decoded.array.buffers[0].view(np.uint64).tolist() == payloads
    quiet = decode("float4", [struct.pack(">I", 0x7F800001)], binary=True)
    assert quiet.array.buffers[0].view(np.uint32).tolist() == [0x7F800001]


def test_float4_text_is_rounded_once() -> None:
    # Just above the middle of 1 and the next float4: a float8 in between would land on the middle.
    assert one("float4", b"1.00000005960464477540") > 1
    assert one("float4", b"1.00000005960464477539") == 1
    assert one("float4", b"1.000000059604644775390625") == 1
    assert one("float4", b"-1.00000005960464477540") < -1


def numeric(weight: int, sign: int, scale: int, *digits: int) -> bytes:
    return struct.pack(f">HhHH{len(digits)}H", len(digits), weight, sign, scale, *digits)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (numeric(0, 0, 0), "0"),
        (numeric(0, 0, 2), "0.00"),
        (numeric(0, 0x4000, 2), "0.00"),
        (numeric(0, 0x4000, 1, 1, 5000), "-1.5"),
        (numeric(1, 0, 0, 1), "10000"),
        (numeric(-1, 0, 4, 1), "0.0001"),
        (numeric(-2, 0, 8, 1), "0.00000001"),
        (numeric(-2, 0, 10, 1), "0.0000000100"),
        # numeric_recv cuts what the scale does not show.
        (numeric(0, 0, 1, 1, 5678), "1.5"),
        (numeric(-1, 0x4000, 1, 1), "0.0"),
        (numeric(0, 0xC000, 0), "NaN"),
        (numeric(0, 0xF000, 0), "-Infinity"),
        (numeric(32767, 0, 0, 1), "1" + "0" * 131068),
    ],
)
def test_binary_numeric(raw: bytes, text: str) -> None:
    assert one("numeric", raw, binary=True, types="text") == text
    assert one("numeric", raw, binary=True).compare_total(Decimal(text)) == 0


# --- round trips ----------------------------------------------------------------------------------


@given(st.integers(INT64_MIN, INT64_MAX))
def test_int_round_trip(value: int) -> None:
    assert one("int8", str(value).encode()) == value
    assert one("int8", struct.pack(">q", value), binary=True) == value
    assert one("int8", struct.pack(">q", value), binary=True, types="text") == str(value)


@given(st.floats())
def test_float8_round_trip(value: float) -> None:
    raw = struct.pack(">d", value)
    text = one("float8", raw, binary=True, types="text")
    array = decode("float8", [text.encode()]).array
    assert math.isnan(value) or array.buffers[0].astype(">f8").tobytes() == raw
    assert len(text) <= len(repr(value).replace("inf", "Infinity")) + 4


@given(st.floats(width=32))
def test_float4_round_trip(value: float) -> None:
    raw = struct.pack(">f", value)
    text = one("float4", raw, binary=True, types="text")
    array = decode("float4", [text.encode()]).array
    assert math.isnan(value) or array.buffers[0].astype(">f4").tobytes() == raw


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimal_round_trip(value: Decimal) -> None:
    raw = f"{value:f}".encode()
    assert one("numeric", raw) == value
    if abs(value) < 10**32:
        got = one("numeric", raw, typmod=(38 << 16 | 6) + 4)
        assert got == value
        assert got.as_tuple().exponent == -6


@given(st.integers(MIN_DATE, MAX_DATE))
def test_date_round_trip(days: int) -> None:
    raw = struct.pack(">i", days - 10957)
    text = one("date", raw, binary=True, types="text")
    for array in (decode("date", [text.encode()]).array, decode("date", [raw], binary=True).array):
        assert array.buffers[0].tolist() == [days]
    year, month, day = date_from_days(days)
    assert np.datetime64(days, "D") == np.datetime64(f"{year}-{month:02d}-{day:02d}", "D")


@given(st.integers(-211_813_488_000_000_000, 9_223_371_331_199_999_999))
def test_timestamp_round_trip(micros: int) -> None:
    raw = struct.pack(">q", micros)
    for kind in ("timestamp", "timestamptz"):
        text = one(kind, raw, binary=True, types="text").encode()
        by_text = decode(kind, [text], unrepresentable="clamp")
        by_binary = decode(kind, [raw], binary=True, unrepresentable="clamp")
        wanted = min(micros + 946_684_800_000_000, INT64_MAX)
        assert by_text.array.buffers[0].tolist() == [wanted]
        assert by_binary.array.buffers[0].tolist() == [wanted]
        assert by_text.invalid.tolist() == by_binary.invalid.tolist()


@given(
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(INT64_MIN // 1000 + 1, INT64_MAX // 1000),
)
def test_interval_round_trip(months: int, days: int, micros: int) -> None:
    raw = struct.pack(">qii", micros, days, months)
    assert one("interval", raw, binary=True) == Interval(months, days, micros)
    text = one("interval", raw, binary=True, types="text")
    assert one("interval", text.encode()) == Interval(months, days, micros)


@given(st.binary(max_size=60))
def test_bytea_round_trip(value: bytes) -> None:
    shown = one("bytea", value, binary=True, types="text")
    assert one("bytea", shown.encode()) == one("bytea", value, binary=True) == value
    escaped = b"".join(
        b"\\\\" if byte == 0x5C else bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte
        for byte in value
    )
    assert one("bytea", escaped) == value


def _array(oid: int, elements: list[bytes | None]) -> bytes:
    head = struct.pack(">iiI", 1 if elements else 0, 1, oid)
    if elements:
        head += struct.pack(">ii", len(elements), 1)
    return head + b"".join(
        struct.pack(">i", -1) if e is None else struct.pack(">i", len(e)) + e for e in elements
    )


_TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("kind", "oid", "elements", "send"),
    [
        ("_text", 25, _TEXTS, str.encode),
        ("_int4", 23, st.integers(INT32_MIN, INT32_MAX), lambda v: struct.pack(">i", v)),
        ("_bytea", 17, st.binary(max_size=8), bytes),
    ],
)
def test_array_round_trip(
    kind: str, oid: int, elements: st.SearchStrategy[Any], send: Callable[[Any], bytes]
) -> None:
    @given(st.lists(st.none() | elements, max_size=8))
    def check(values: list[Any]) -> None:
        raw = _array(oid, [None if value is None else send(value) for value in values])
        assert one(kind, raw, binary=True) == values
        text = one(kind, raw, binary=True, types="text")
        assert one(kind, text.encode()) == values

    check()


def test_columns_too_large_for_32_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_build, "MAX_BYTES", 6)
    assert to_pylist(decode("text", [b"abc", None, b"def"]).array) == ["abc", None, "def"]
    with pytest.raises(ValueProblem, match="decode fewer messages") as caught:
        decode("text", [b"abc", None, b"def", b"g", b"h"])
    assert (caught.value.code, caught.value.row) == ("unrepresentable", 3)
    with pytest.raises(ValueProblem) as caught:
        decode("_text", [b"{}", b"{abc,def}", None, b"{NULL,g}"])
    assert (caught.value.code, caught.value.row) == ("unrepresentable", 3)
