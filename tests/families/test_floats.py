"""float4 and float8."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgwire_codec import reference
from tests.support.build import column, relation
from tests.support.encoding import decoded, each_form
from tests.support.families import FamilyTests
from tests.support.implementations import Implementation
from tests.support.values import (
    decode,
    one,
    same_values,
    type_of,
)


class TestFloats(FamilyTests):
    golden = [
        ("float8", "0", "0000000000000000"),
        ("float8", "-0", "8000000000000000"),
        ("float8", "0.1", "3fb999999999999a"),
        ("float8", "1e+15", "430c6bf526340000"),
        ("float8", "123456789012345", "42dc12218377de40"),
        ("float8", "100000000000000", "42d6bcc41e900000"),
        ("float8", "0.0001", "3f1a36e2eb1c432d"),
        ("float8", "1e-05", "3ee4f8b588e368f1"),
        ("float8", "5e-324", "0000000000000001"),
        ("float8", "1.7976931348623157e+308", "7fefffffffffffff"),
        ("float8", "NaN", "7ff8000000000000"),
        ("float8", "Infinity", "7ff0000000000000"),
        ("float8", "-Infinity", "fff0000000000000"),
        ("float8", "1.8014398509481992e+16", "4350000000000002"),
        ("float4", "0", "00000000"),
        ("float4", "-0", "80000000"),
        ("float4", "0.1", "3dcccccd"),
        ("float4", "1e+06", "49742400"),
        ("float4", "123456", "47f12000"),
        ("float4", "0.0001", "38d1b717"),
        ("float4", "1e-05", "3727c5ac"),
        ("float4", "1e-45", "00000001"),
        ("float4", "3.4028235e+38", "7f7fffff"),
        ("float4", "NaN", "7fc00000"),
        ("float4", "-Infinity", "ff800000"),
        ("float4", "3.3554448e+07", "4c000004"),
    ]

    texts = [
        ("float8", b"0.1", 0.1),
        ("float8", b"-Infinity", -math.inf),
        ("float4", b"1.5", 1.5),
    ]

    malformed_text = [
        # Python's own float() takes some of these.
        ("float8", b"1e400", "bad_value", 0),
        ("float8", b"1e-400", "bad_value", 0),
        ("float8", b"1_0.5", "bad_value", 0),
        ("float8", b"nan", "bad_value", 0),
        ("float8", b"inf", "bad_value", 0),
        ("float8", b"0x1p3", "bad_value", 0),
        ("float8", b".5", "bad_value", 0),
        ("float8", b"1." + b"0" * 63, "bad_value", 0),
        ("float4", b"1.000000059604644775390625" + b"0" * 5000, "bad_value", 0),
        ("float4", b"3.5e38", "bad_value", 0),
        ("float4", b"1e-46", "bad_value", 0),
    ]

    malformed_binary = [
        ("float4", bytes(5), "bad_length", 0),
        ("float8", bytes(7), "bad_length", 0),
    ]

    arrow_types = [("float8", pa.array([0.1, -1.5, None], pa.float32()))]
    random_values = {
        "float4": (st.integers(0, 2**32 - 1).map(lambda bits: struct.pack(">I", bits)))
        | st.floats(width=32).map(lambda value: struct.pack(">f", value)),
        "float8": (st.integers(0, 2**64 - 1).map(lambda bits: struct.pack(">Q", bits)))
        | st.floats().map(lambda value: struct.pack(">d", value)),
    }
    by_kernel = [
        ("float8", "1.7976931348623157e+308"),
        ("float8", "-0.30000000000000004"),
        ("float4", "3.4028235e+38"),
    ]


def test_bits_are_kept(codec: Implementation) -> None:
    payloads = [0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000]
    found = decode(codec, "float8", [struct.pack(">Q", bits) for bits in payloads], binary=True)
    assert found.array.buffers[0].view(np.uint64).tolist() == payloads
    quiet = decode(codec, "float4", [struct.pack(">I", 0x7F800001)], binary=True)
    assert quiet.array.buffers[0].view(np.uint32).tolist() == [0x7F800001]


def test_float4_text_is_rounded_once(codec: Implementation) -> None:
    # Just above the middle of 1 and the next float4: a float8 in between would land on the middle.
    assert one(codec, "float4", b"1.00000005960464477540") > 1
    assert one(codec, "float4", b"1.00000005960464477539") == 1
    assert one(codec, "float4", b"1.000000059604644775390625") == 1
    assert one(codec, "float4", b"-1.00000005960464477540") < -1


@given(st.floats())
def test_float8_round_trip(codec: Implementation, value: float) -> None:
    raw = struct.pack(">d", value)
    text = one(codec, "float8", raw, binary=True, types="text")
    array = decode(codec, "float8", [text.encode()]).array
    assert math.isnan(value) or array.buffers[0].astype(">f8").tobytes() == raw
    assert len(text) <= len(repr(value).replace("inf", "Infinity")) + 4


@given(st.floats(width=32))
def test_float4_round_trip(codec: Implementation, value: float) -> None:
    raw = struct.pack(">f", value)
    text = one(codec, "float4", raw, binary=True, types="text")
    array = decode(codec, "float4", [text.encode()]).array
    assert math.isnan(value) or array.buffers[0].astype(">f4").tobytes() == raw


@pytest.mark.differential
@settings(max_examples=300)
@given(
    st.from_regex(rb"-?[0-9]{1,25}(\.[0-9]{1,30})?(e[-+]?[0-9]{1,3})?", fullmatch=True)
    | st.floats().map(lambda value: repr(value).encode())
    | st.floats(width=32).map(lambda value: repr(value).encode())
    # Half way between two neighbours, and a little beside.
    | st.tuples(st.integers(2**53, 2**54), st.sampled_from([b"", b".0", b".5", b".00000001"])).map(
        lambda parts: str(parts[0]).encode() + parts[1]
    )
    | st.integers(2**24, 2**26).map(lambda value: str(value).encode())
)
def test_any_text(text: bytes) -> None:
    for name in ("float8", "float4"):
        same_values(type_of(name), [(text, False)], lead=0)
    if b"e" not in text and b"n" not in text:
        same_values(type_of("numeric", numeric="float64"), [(text, False)])


@each_form
def test_any_bits_are_written(binary: bool) -> None:
    bits = [0, 1, 2**23, 2**31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001]
    narrow = np.array(bits, np.uint32).view(np.float32)
    wide = np.array([0.1, 1e15, 1e14, 123456.789, 1e-5, 1e-4, -1e22, 5e-324, np.nan, -np.inf])
    table = relation(1, column("f", "float4"), column("g", "float8"), column("h", "float8"))
    columns = [pa.array(narrow), pa.array(wide[:9]), pa.array(narrow)]
    batch = decoded(table, reference.encode_batch(table, columns, binary=binary))
    np.testing.assert_array_equal(batch.new["f"].to_numpy(), narrow)
    np.testing.assert_array_equal(batch.new["g"].to_numpy(), wide[:9])
    with np.errstate(invalid="ignore"):  # a signalling NaN
        np.testing.assert_array_equal(batch.new["h"].to_numpy(), narrow.astype(np.float64))
