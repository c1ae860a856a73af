"""Arrays and vectors."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.families import (
    test_datetime,
    test_floats,
    test_geometry,
    test_integers,
    test_numeric,
    test_strings,
    test_uuids,
)
from tests.support.families import FamilyTests
from tests.support.implementations import Implementation
from tests.support.values import (
    INT32_MAX,
    INT32_MIN,
    one,
    problem,
    type_of,
)


def binary_array(oid: int, elements: list[bytes | None], first: int = 1) -> bytes:
    """Array of one dimension as array_send writes it."""
    head = struct.pack(">iiI", 1 if elements else 0, None in elements, oid)
    if elements:
        head += struct.pack(">ii", len(elements), first)
    return head + b"".join(
        struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each
        for each in elements
    )


def arrays_of(kind: str, elements: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    oid = type_of(kind).pg.oid
    return st.builds(
        lambda values, first: binary_array(oid, values, first),
        st.lists(st.none() | elements, max_size=70),
        st.sampled_from([1, 1, 1, 0, -5]),
    )


ELEMENTS = {
    kind: values
    for family in (
        test_integers.TestIntegers,
        test_floats.TestFloats,
        test_numeric.TestNumeric,
        test_datetime.TestDateTime,
        test_uuids.TestUuids,
        test_strings.TestStrings,
        test_geometry.TestGeometry,
    )
    for kind, values in family.random_values.items()
    if "(" not in kind
}


class TestArrays(FamilyTests):
    golden = [
        ("int2vector", "", "0000000100000000000000150000000000000000"),
        (
            "int2vector",
            "1 2 -3",
            "000000010000000000000015000000030000000000000002000100000002000200000002fffd",
        ),
        ("oidvector", "", "00000001000000000000001a0000000000000000"),
        (
            "oidvector",
            "1 4294967295",
            "00000001000000000000001a0000000200000000000000040000000100000004ffffffff",
        ),
        ("int4[]", "{}", "000000000000000000000017"),
        (
            "int4[]",
            "{1,NULL,-3}",
            "00000001000000010000001700000003000000010000000400000001ffffffff00000004fffffffd",
        ),
        (
            "int4[]",
            "[5:6]={10,20}",
            "0000000100000000000000170000000200000005000000040000000a0000000400000014",
        ),
        (
            "int4[]",
            "{{1,2},{3,4}}",
            "000000020000000000000017000000020000000100000002000000010000000400000001000000040000000200000004000000030000000400000004",
        ),
        (
            "int4[]",
            "[0:1][-1:0]={{1,2},{3,4}}",
            "000000020000000000000017000000020000000000000002ffffffff0000000400000001000000040000000200000004000000030000000400000004",
        ),
        (
            "int4[]",
            "{{{{{{1}}}}}}",
            "0000000600000000000000170000000100000001000000010000000100000001000000010000000100000001000000010000000100000001000000010000000400000001",
        ),
        (
            "text[]",
            '{a,"",NULL,"NULL","null",nul,"q\\"q","b\\\\s","c,","{b}"," sp ","t\tb",\x01}',
            "0000000100000001000000190000000d00000001000000016100000000ffffffff000000044e554c4c000000046e756c6c000000036e756c0000000371227100000003625c7300000002632c000000037b627d0000000420737020000000037409620000000101",
        ),
        (
            "box[]",
            "{(3,4),(1,2);(7,8),(5,6)}",
            "00000001000000000000025b000000020000000100000020400800000000000040100000000000003ff0000000000000400000000000000000000020401c000000000000402000000000000040140000000000004018000000000000",
        ),
        (
            "numeric[]",
            "{1.50,NaN,NULL}",
            "0000000100000001000006a400000003000000010000000c0002000000000002000113880000000800000000c0000000ffffffff",
        ),
        (
            "date[]",
            '{2024-02-29,infinity,"0044-03-15 BC"}',
            "00000001000000000000043a00000003000000010000000400002279000000047fffffff00000004fff49d7b",
        ),
        (
            "interval[]",
            '{"1 day","2 mons 03:00:00"}',
            "0000000100000000000004a200000002000000010000001000000000000000000000000100000000000000100000000283baec000000000000000002",
        ),
        (
            "timestamptz[]",
            '{"2024-02-29 12:00:00+00",NULL}',
            "0000000100000001000004a00000000200000001000000080002b582c4781000ffffffff",
        ),
        (
            "int4range[]",
            '{"[1,2)",empty,"(,)"}',
            "000000010000000000000f40000000030000000100000011020000000400000001000000040000000200000001010000000118",
        ),
        (
            "bytea[]",
            '{"\\\\x00ff",NULL}',
            "00000001000000010000001100000002000000010000000200ffffffffff",
        ),
        (
            "tsvector[]",
            "{\"'a':1 'b'\"}",
            "000000010000000000000e1e00000001000000010000000e0000000261000001000162000000",
        ),
    ]

    texts = [
        ("_int4", b"{}", []),
        ("_int4", b"{NULL,-1}", [None, -1]),
        ("_int4", b"[-2:-1]={10,20}", [10, 20]),
        ("_text", b'{a,"",NULL,"NULL",nUlL,"a,\\"\\\\b"}', ["a", "", None, "NULL", None, 'a,"\\b']),
        ("_box", b"{(3,4),(1,2);(7,8),(5,6)}", ["(3,4),(1,2)", "(7,8),(5,6)"]),
        ("_bytea", b'{"\\\\x00ff","\\\\001"}', [b"\0\xff", b"\1"]),
        ("_numeric", b"{1.50,NaN}", [Decimal("1.50"), Decimal("NaN")]),
        (
            "_timestamptz",
            b'{"2024-02-29 12:00:00+00"}',
            [datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)],
        ),
    ]

    unrepresentable = [
        ("_int4", b"{{1},{2}}", {}, None),
        ("_date", b"{2024-01-01,infinity}", {}, [19723, INT32_MAX]),
        ("_numeric", b"{1,NaN,NULL}", {"typmod": 983046}, [Decimal("1.00"), None, None]),
    ]

    malformed_text = [
        ("int4[]", b"{1,22,2147483648}", "bad_value", 6),
        ("text[]", b'{a,"b\xff"}', "invalid_utf8", 3),
    ]

    malformed_binary = [
        ("_int4", struct.pack(">iiI", 7, 0, 23), "bad_length", 0),
        ("_int4", struct.pack(">iiI", -1, 0, 23), "bad_length", 0),
        ("_int4", struct.pack(">iiI", 0, 2, 23), "bad_value", 4),
        ("_int4", struct.pack(">iiI", 0, 0, 25), "bad_value", 8),
        ("_int4", struct.pack(">iiIii", 1, 0, 23, 2**31 - 1, 1), "bad_length", 12),
        ("_int4", struct.pack(">iiIiiii", 2, 0, 23, 0, 1, -1, 1), "bad_length", 20),
        ("_int4", struct.pack(">iiIiii", 1, 0, 23, 1, 2**31 - 1, -1) + b"\0", "bad_length", 24),
        ("_int4", struct.pack(">iiIiii", 1, 0, 23, 1, 1, -2), "bad_length", 24),
        (
            "int2vector",
            bytes.fromhex("0000000100000001000000150000000100000000ffffffff"),
            "bad_value",
            0,
        ),
    ]

    arrow_types = [
        ("int4[]", pa.array([[1, 2], [3, None], None], pa.list_(pa.int16(), 2))),
        ("text[]", pa.array([["a"], [], None], pa.large_list(pa.string_view()))),
        ("inet[]", pa.array([["10.0.0.1"], [None], None])),
    ]
    unwritable = [("int2[]", pa.array([[1], [1, 2**15]]), -1, "int2 from")]
    random_values = {f"{kind}[]": arrays_of(kind, values) for kind, values in ELEMENTS.items()}
    mixed = {
        "int4[]": (b"{1,NULL,-3}", "000000000000000000000017", b"[5:6]={10,20}"),
        "numeric[]": (b"{1.50,NULL}", "0000000000000000000006a4", b"{NaN}"),
        "text[]": (b'{a,"b\\"c",NULL}', "000000000000000000000019", b"[0:1]={x,yy}"),
        "bool[]": (b"{t,f,NULL}", "000000000000000000000010", b"[0:0]={t}"),
        "date[]": (b"{2024-02-29}", "00000000000000000000043a", b'{infinity,"0044-03-15 BC"}'),
        "uuid[]": (
            b"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "000000000000000000000b86",
            b"[0:0]={a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        ),
        # Of a list only the first dimension.
        "_int4": (b"{}", "000000000000000000000017", b"{{1,2},{3,4}}"),
    }
    by_kernel = [
        ("text[]", '{"a b","c\\"d",NULL,e}'),
        ("timestamptz[]", '{"2024-02-29 12:00:00+00"}'),
    ]


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
def test_malformed_structure(codec: Implementation, raw: bytes, offset: int) -> None:
    assert problem(codec, "int4[]", raw) == ("bad_value", offset)


def test_an_error_in_an_element_is_placed_in_the_array(codec: Implementation) -> None:
    raw = binary_array(25, [b"ab\xff"])
    assert problem(codec, "text[]", raw, binary=True) == ("invalid_utf8", 26)


_TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("kind", "oid", "elements", "send"),
    [
        ("text[]", 25, _TEXTS, str.encode),
        ("int4[]", 23, st.integers(INT32_MIN, INT32_MAX), lambda v: struct.pack(">i", v)),
        ("bytea[]", 17, st.binary(max_size=8), bytes),
    ],
)
def test_round_trip(
    codec: Implementation,
    kind: str,
    oid: int,
    elements: st.SearchStrategy[Any],
    send: Callable[[Any], bytes],
) -> None:
    @given(st.lists(st.none() | elements, max_size=8))
    def check(values: list[Any]) -> None:
        raw = binary_array(oid, [None if value is None else send(value) for value in values])
        assert one(codec, kind, raw, binary=True) == values
        text = one(codec, kind, raw, binary=True, types="text")
        assert one(codec, kind, text.encode()) == values

    check()
