"""Bytes that are not a value: an error with a place, never another exception."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgwire_codec.arrow.export import to_pyarrow
from pgwire_codec.arrow.values import to_numpy, to_pylist
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.types import ColumnType, TypeOptions, column_type
from pgwire_codec.types.builtin import BUILTIN
from tests.support.corpus import capture
from tests.values import decode, take, type_of, user_registry

CODES = {ErrorCode.BAD_VALUE, ErrorCode.BAD_LENGTH, ErrorCode.INVALID_UTF8}
OPTIONS = [TypeOptions(), TypeOptions(types="text"), TypeOptions(numeric="decimal128(20,3)")]


def survives(kind: ColumnType, raw: bytes, *, binary: bool) -> bool:
    """Decode one value; True if it is one, and then it can be looked at in every way."""
    refused = None
    try:
        decoded = decode(kind, [raw], binary=binary, unrepresentable="clamp")
    except ValueProblem as problem:
        refused = problem
    if refused is not None:
        assert refused.code in CODES
        assert refused.row == 0
        assert 0 <= refused.offset <= len(raw)
        assert refused.expected
        return False
    assert len(to_pylist(decoded.array)) == len(to_numpy(decoded.array)) == 1
    to_pyarrow(decoded.array).validate(full=True)
    return True


@pytest.mark.parametrize("name", ["types.pg18.v1-text", "types.pg18.v1-binary"])
def test_captured_values_cut_and_changed(name: str) -> None:
    chosen = random.Random(name)
    run = capture(name)
    taken = take(run)
    outcomes = {True: 0, False: 0}
    for table in taken.tables.values():
        column = table["v"]
        kinds = [
            column_type(
                column.oid,
                column.typmod,
                options,
                user_types=taken.user_types,
                registry=user_registry(run),
            )
            for options in OPTIONS
        ]
        values = [pair for pair in zip(column.values, column.binary, strict=True) if pair[0]]
        for value, binary in values[:12]:
            assert value is not None
            cuts = range(len(value)) if len(value) <= 40 else chosen.sample(range(len(value)), 40)
            broken = [value[:cut] for cut in cuts]
            for _ in range(15):
                changed = bytearray(value)
                changed[chosen.randrange(len(value))] = chosen.randrange(256)
                broken.append(bytes(changed))
            broken.append(value + b"\0")
            for raw in broken:
                kind = chosen.choice(kinds)
                outcomes[survives(kind, raw, binary=binary)] += 1
    assert min(outcomes.values()) > 1000


_SHAPED = st.binary(max_size=80) | st.from_regex(
    rb"[-+0-9a-fA-F:. ,;{}\[\]()<>\"'\\xNULinfty/TtzBC]{0,40}", fullmatch=True
)


@pytest.mark.parametrize("form", ["text", "binary"])
@settings(max_examples=400)
@given(data=st.data())
def test_any_bytes_as_any_type(form: str, data: st.DataObject) -> None:
    oid, *_, array, _, _ = data.draw(st.sampled_from(BUILTIN))
    kind = column_type(
        data.draw(st.sampled_from([oid, array])), -1, data.draw(st.sampled_from(OPTIONS))
    )
    survives(kind, data.draw(_SHAPED), binary=form == "binary")


def problem(kind: str, raw: bytes, *, binary: bool = False, typmod: int = -1) -> tuple[str, int]:
    with pytest.raises(ValueProblem) as caught:
        decode(kind, [raw], binary=binary, typmod=typmod)
    return caught.value.code, caught.value.offset


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        # What Python's own int() and float() would take.
        ("int4", b"1_000"),
        ("int4", b" 1"),
        ("int4", b"1\n"),
        ("int4", b"+1"),
        ("int4", "٣".encode()),
        ("int4", b""),
        ("int4", b"2147483648"),
        ("int2", b"-32769"),
        ("int8", b"9223372036854775808"),
        ("int8", b"1" * 5000),
        ("oid", b"-1"),
        ("oid", b"4294967296"),
        ("xid8", b"18446744073709551616"),
        ("float8", b"1e400"),
        ("float8", b"1e-400"),
        ("float8", b"1_0.5"),
        ("float8", b"nan"),
        ("float8", b"inf"),
        ("float8", b"0x1p3"),
        ("float8", b".5"),
        ("float8", b"1." + b"0" * 63),
        ("float4", b"1.000000059604644775390625" + b"0" * 5000),
        ("float4", b"3.5e38"),
        ("float4", b"1e-46"),
        ("numeric", b"1e5"),
        ("numeric", b"-NaN"),
        ("numeric", b"1."),
        ("bool", b"true"),
        ("bool", b""),
        ("uuid", b"a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        ("pg_lsn", b"1/123456789"),
        ("bytea", b"\\x0"),
        ("bytea", b"\\400"),
        ("bytea", b"\\"),
        ("bytea", b"\xff"),
        ("date", b"2023-02-29"),
        ("date", b"1900-02-29"),
        ("date", b"0000-01-01"),
        ("date", b"2024-13-01"),
        ("date", b"2024-00-01"),
        ("date", b"2024-04-31"),
        ("date", b"5874898-01-01"),
        ("date", b"4714-11-23 BC"),
        ("date", b"24-01-01"),
        ("time", b"24:00:00.000001"),
        ("time", b"23:60:00"),
        ("time", b"23:59:60"),
        ("time", b"1:00:00"),
        ("timestamp", b"2024-01-01 24:00:00"),
        ("timestamp", b"2024-01-01 00:00:00+00"),
        ("timestamp", b"2024-01-01T00:00:00"),
        ("timestamp", b"294277-01-01 00:00:00"),
        ("timestamptz", b"2024-01-01 00:00:00"),
        ("timestamptz", b"294276-12-31 23:59:59-01"),
        ("timestamptz", b"2024-01-01 00:00:00 UTC"),
        ("interval", b""),
        ("interval", b" 1 day"),
        ("interval", b"1 day "),
        ("interval", b"1 day 1 year"),
        ("interval", b"1 day 00:60:00"),
        ("interval", b"178956971 years"),
        ("interval", b"2147483648 days"),
        ("interval", b"2562047788:00:54.775808"),
    ],
)
def test_text_that_is_none(kind: str, raw: bytes) -> None:
    assert problem(kind, raw) == ("bad_value", 0)


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (b"", 0),
        (b"1", 0),
        (b"{", 1),
        (b"{1", 2),
        (b"{1,", 3),
        (b"{,1}", 1),
        (b"{1,}", 3),
        (b"{1}x", 3),
        (b"{1}{2}", 3),
        (b"{1 2}", 2),
        (b"{1,x}", 3),
        (b'{1,"x}', 3),
        (b"{{1,2},{3}}", 9),
        (b"{1,{2}}", 3),
        (b"{{1},2}", 5),
        (b"{{}}", 2),
        (b"{{{{{{{1}}}}}}}", 6),
        (b"[1:2]={1}", 0),
        (b"[1:1][1:1]={1}", 0),
        (b"[1:0]={}", 7),
        (b"[1:1]{1}", 0),
        (b"[1:99999999999]={1}", 0),
    ],
)
def test_array_text_that_is_none(raw: bytes, offset: int) -> None:
    assert problem("_int4", raw) == ("bad_value", offset)


def test_errors_in_elements_are_placed_in_the_array() -> None:
    assert problem("_int4", b"{1,22,2147483648}") == ("bad_value", 6)
    assert problem("_text", b'{a,"b\xff"}') == ("invalid_utf8", 3)
    element = struct.pack(">iiIii", 1, 0, 25, 1, 1) + struct.pack(">i", 3) + b"ab\xff"
    assert problem("_text", element, binary=True) == ("invalid_utf8", 26)


def test_text_that_is_not_utf8() -> None:
    for kind in ("text", "json", "inet"):
        assert problem(kind, b"abc\xe9t\xe9") == ("invalid_utf8", 3)
    assert problem("text", b"abc\xe9t", binary=True) == ("invalid_utf8", 3)
    assert problem("jsonb", b"\x01ab\xe9", binary=True) == ("invalid_utf8", 3)
    lexeme = struct.pack(">i", 1) + b"a\xe9\0" + struct.pack(">H", 0)
    assert problem("tsvector", lexeme, binary=True) == ("invalid_utf8", 5)
    with pytest.raises(ValueProblem, match="client_encoding"):
        decode("text", [b"\xe9"])


def numeric(*words: int) -> bytes:
    return struct.pack(f">{len(words)}H", *words)


@pytest.mark.parametrize(
    ("kind", "raw", "code", "offset"),
    [
        ("int4", b"\0\0\0", "bad_length", 0),
        ("int4", b"\0\0\0\0\0", "bad_length", 0),
        ("bool", b"\2", "bad_value", 0),
        ("numeric", numeric(1, 0, 0x8000, 0, 1), "bad_value", 4),
        ("numeric", numeric(1, 0, 0, 0x4000, 1), "bad_value", 6),
        ("numeric", numeric(1, 0, 0, 0, 10000), "bad_value", 8),
        ("numeric", numeric(2, 0, 0, 0, 1), "bad_length", 0),
        ("numeric", numeric(0, 0, 0), "bad_length", 6),
        ("date", struct.pack(">i", -2451546), "bad_value", 0),
        ("date", struct.pack(">i", 2145031949), "bad_value", 0),
        ("time", struct.pack(">q", 86_400_000_001), "bad_value", 0),
        ("time", struct.pack(">q", -1), "bad_value", 0),
        ("timestamp", struct.pack(">q", 9223371331200000000), "bad_value", 0),
        ("timestamp", struct.pack(">q", -211813488000000001), "bad_value", 0),
        ("timetz", struct.pack(">qi", 0, 57600), "bad_value", 8),
        ("interval", bytes(15), "bad_length", 0),
        ("uuid", bytes(17), "bad_length", 0),
        ("jsonb", b"\x02{}", "bad_value", 0),
        ("jsonb", b"", "bad_value", 0),
        ("varbit", struct.pack(">i", -1), "bad_length", 0),
        ("varbit", struct.pack(">i", 9) + b"\1", "bad_length", 4),
        ("inet", b"\2\x21\0\4\1\2\3\4", "bad_value", 1),
        ("inet", b"\4\x20\0\4\1\2\3\4", "bad_value", 0),
        ("inet", b"\2\x20\0\4\1\2\3", "bad_length", 4),
        ("macaddr", bytes(5), "bad_length", 0),
        ("polygon", struct.pack(">i", 2**30), "bad_length", 0),
        ("path", b"\1" + struct.pack(">i", 0), "bad_value", 1),
        ("int4range", b"\x20", "bad_value", 0),
        ("int4range", b"\x02\0\0\0\4\0\0\0", "bad_length", 5),
        ("int4range", b"\x01\0", "bad_length", 1),
        ("int4multirange", struct.pack(">ii", 1, 5) + b"\x08\0\0\0\0", "bad_length", 13),
        ("int4multirange", struct.pack(">i", 2**31 - 1), "bad_length", 0),
        ("_int4", struct.pack(">iiI", 7, 0, 23), "bad_length", 0),
        ("_int4", struct.pack(">iiI", -1, 0, 23), "bad_length", 0),
        ("_int4", struct.pack(">iiI", 0, 2, 23), "bad_value", 4),
        ("_int4", struct.pack(">iiI", 0, 0, 25), "bad_value", 8),
        ("_int4", struct.pack(">iiIii", 1, 0, 23, 2**31 - 1, 1), "bad_length", 12),
        ("_int4", struct.pack(">iiIiiii", 2, 0, 23, 0, 1, -1, 1), "bad_length", 20),
        ("_int4", struct.pack(">iiIiii", 1, 0, 23, 1, 2**31 - 1, -1) + b"\0", "bad_length", 24),
        ("_int4", struct.pack(">iiIiii", 1, 0, 23, 1, 1, -2), "bad_length", 24),
        ("tsvector", struct.pack(">i", 1) + b"abc", "bad_length", 4),
        ("tsquery", struct.pack(">i", 1) + b"\2\2", "bad_value", 4),
        ("tsquery", struct.pack(">i", 2) + b"\1\0\0a\0\1\0\0b\0", "bad_value", 4),
    ],
)
def test_binary_that_is_none(kind: str, raw: bytes, code: str, offset: int) -> None:
    assert problem(kind, raw, binary=True) == (code, offset)


def test_deep_query_needs_no_stack() -> None:
    depth = 20_000
    raw = struct.pack(">i", depth + 1) + b"\2\1" * depth + b"\1\0\0a\0"
    (text,) = to_pylist(decode("tsquery", [raw], binary=True).array)
    assert text == "!" * depth + "'a'"


def test_row_of_the_error() -> None:
    with pytest.raises(ValueProblem) as caught:
        decode("int4", [b"1", None, b"2", b"x", b"y"])
    assert (caught.value.row, caught.value.code) == (3, "bad_value")
    assert str(caught.value).startswith("bad_value: row 3, byte 0 of the value: ")


def test_states_without_bytes_are_not_read() -> None:
    kind = type_of("int4")
    assert to_pylist(decode(kind, [None, b"7", None]).array) == [None, 7, None]
