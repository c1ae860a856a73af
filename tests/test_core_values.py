"""The compiled values against the reference: the same buffers, or the same problem."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgwire_codec.arrow.layout import ArrowBuffers
from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.reference import values as reference
from pgwire_codec.reference.families import family_of
from pgwire_codec.spark.arrow_types import SPARK
from pgwire_codec.types import NATIVE, ArrowTypes, ColumnType, TypeOptions, column_type
from pgwire_codec.types.builtin import BUILTIN
from tests.support.corpus import Capture, capture, captures
from tests.values import take, type_of, user_registry
from tests.values_golden import GOLDEN

pytestmark = pytest.mark.twins

core = pytest.importorskip(
    "pgwire_codec._core.kernels.values", reason="the compiled implementation is not built"
)

POLICIES: Final = ("raise", "null", "clamp")
OPTIONS: Final = [
    TypeOptions(),
    TypeOptions(arrow_types=SPARK),
    TypeOptions(types="text"),
    TypeOptions(types="text", strings="view"),
    TypeOptions(strings="view", numeric="float64"),
    TypeOptions(numeric="decimal128(20,3)"),
    TypeOptions(numeric="decimal256(60,12)"),
]

Value = bytes | None
Rows = Sequence[tuple[Value, bool]]  # and whether it is in binary form


def arrays(rows: Rows, lead: int) -> tuple[Any, ...]:
    """Lay values out, the last one up to the very end, `lead` bytes before the first."""
    data = b"\xff" * lead + b"\xfe".join(value or b"" for value, _ in rows)
    lengths = np.array([len(value or b"") for value, _ in rows], np.int32)
    offsets = lead + np.cumsum(lengths + 1, dtype=np.int64) - lengths - 1
    # 0, 2 and 3 are all without bytes.
    state = np.array([(0, 2, 3)[row % 3] if v is None else 1 for row, (v, _) in enumerate(rows)])
    formats = np.array([binary for _, binary in rows], np.uint8)
    return np.frombuffer(data, np.uint8), offsets, lengths, state.astype(np.uint8), formats


def outcome(decode: Callable[..., Decoded], *arguments: Any, policy: str) -> Any:
    try:
        decoded = decode(*arguments, unrepresentable=policy)
    except ValueProblem as problem:
        return problem.code, problem.row, problem.offset, problem.expected
    return decoded


def assert_same_array(ours: ArrowBuffers, theirs: ArrowBuffers) -> None:
    for field in fields(ArrowBuffers):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name == "children":
            assert len(mine) == len(other)
            for child, their_child in zip(mine, other, strict=True):
                assert_same_array(child, their_child)
        elif field.name == "buffers":
            assert [buffer.dtype for buffer in mine] == [buffer.dtype for buffer in other]
            assert [buffer.tobytes() for buffer in mine] == [buffer.tobytes() for buffer in other]
        elif field.name == "validity" and other is not None:
            assert mine.tobytes() == other.tobytes()
        else:
            assert mine == other, field.name


def assert_same(kind: ColumnType, rows: Rows, *, lead: int = 13, policy: str = "raise") -> bool:
    """Decode twice; whether there was no problem."""
    given_arrays = arrays(rows, lead)
    ours = outcome(core.decode_values, kind, *given_arrays, policy=policy)
    theirs = outcome(reference.decode_values, kind, *given_arrays, policy=policy)
    if not isinstance(theirs, Decoded):
        assert ours == theirs, (kind, rows, policy)
        return False
    assert isinstance(ours, Decoded), (kind, rows, policy, ours)
    assert ours.invalid.dtype == theirs.invalid.dtype
    assert ours.invalid.tolist() == theirs.invalid.tolist()
    assert_same_array(ours.array, theirs.array)
    return True


def columns(run: Capture, options: TypeOptions) -> list[tuple[ColumnType, Rows]]:
    taken = take(run)
    return [
        (
            column_type(
                table["v"].oid,
                table["v"].typmod,
                options,
                user_types=taken.user_types,
                registry=user_registry(run),
            ),
            list(zip(table["v"].values, table["v"].binary, strict=True)),
        )
        for table in taken.tables.values()
    ]


@pytest.mark.parametrize("run", captures("types"), ids=str)
def test_captured_values(run: Capture) -> None:
    for options in OPTIONS:
        for kind, rows in columns(run, options):
            for policy in POLICIES:
                assert_same(kind, rows, policy=policy)


def every_way(name: str) -> list[ColumnType]:
    return [column_type(type_of(name).pg.oid, -1, options) for options in OPTIONS]


def test_golden_values_in_both_forms() -> None:
    for name, text, binary in GOLDEN:
        rows = [(text.encode(), False), (bytes.fromhex(binary), True), (None, False)]
        for kind in every_way(name):
            for policy in POLICIES:
                assert_same(kind, rows * 2, policy=policy)


def broken(value: bytes, chosen: random.Random) -> list[bytes]:
    """Cut at each byte, change bytes, add one."""
    cuts = range(len(value)) if len(value) <= 40 else chosen.sample(range(len(value)), 40)
    wrong = [value[:cut] for cut in cuts]
    for _ in range(12 if value else 0):
        changed = bytearray(value)
        changed[chosen.randrange(len(value))] = chosen.randrange(256)
        wrong.append(bytes(changed))
    return [*wrong, value + b"\0", value + b"0", b"-" + value, value + value]


def assert_same_broken(kinds: list[ColumnType], value: bytes, binary: bool, name: str) -> list[int]:
    chosen = random.Random(f"{name} {value!r} {binary}")
    outcomes = [0, 0]
    for raw in broken(value, chosen):
        kind = chosen.choice(kinds)
        # A good value before it, or none: the row is part of what must agree.
        rows: Rows = [(value, binary), (None, False), (raw, binary)][chosen.randrange(3) :]
        good = assert_same(kind, rows, lead=chosen.choice((0, 13)), policy=chosen.choice(POLICIES))
        outcomes[good] += 1
    return outcomes


def test_golden_values_cut_and_changed() -> None:
    outcomes = np.zeros(2, int)
    for name, text, binary in GOLDEN:
        kinds = every_way(name)
        outcomes += assert_same_broken(kinds, text.encode(), False, name)
        outcomes += assert_same_broken(kinds, bytes.fromhex(binary), True, name)
    assert outcomes.min() > 1000


@pytest.mark.parametrize("name", ["types.pg18.v1-text", "types.pg18.v1-binary"])
def test_captured_values_cut_and_changed(name: str) -> None:
    run = capture(name)
    ways = [columns(run, options) for options in OPTIONS]
    outcomes = np.zeros(2, int)
    for way in zip(*ways, strict=True):
        kinds = [kind for kind, _ in way]
        _, rows = way[0]
        for value, binary in [row for row in rows if row[0]][:12]:
            assert value is not None
            outcomes += assert_same_broken(kinds, value, binary, name)
    assert outcomes.min() > 1000


_SHAPED = st.binary(max_size=80) | st.from_regex(
    rb"[-+0-9a-fA-F:. ,;{}\[\]()<>\"'\\xNULinfty/TtzBC]{0,40}", fullmatch=True
)


@settings(max_examples=400)
@given(data=st.data())
def test_any_bytes_as_any_type(data: st.DataObject) -> None:
    oid, *_, array, _, _ = data.draw(st.sampled_from(BUILTIN))
    kind = column_type(
        data.draw(st.sampled_from([oid, array])), -1, data.draw(st.sampled_from(OPTIONS))
    )
    rows = data.draw(st.lists(st.tuples(st.none() | _SHAPED, st.booleans()), max_size=3))
    assert_same(kind, rows, policy=data.draw(st.sampled_from(POLICIES)))


def _packed(layout: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(
        f">{layout}", *(value if isinstance(value, tuple) else (value,))
    )


def _int(bits: int) -> st.SearchStrategy[int]:
    # As many short numbers as long ones.
    return (
        st.integers(0, bits)
        .flatmap(lambda n: st.integers(-(2**n), 2**n - 1))
        .filter(lambda value: -(2 ** (bits - 1)) <= value < 2 ** (bits - 1))
    )


def _uint(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, bits).flatmap(lambda n: st.integers(0, 2**n - 1))


@st.composite
def _numeric(draw: st.DrawFn) -> bytes:
    """numeric_send's form."""
    count = draw(st.integers(0, 12))
    groups = draw(
        st.lists(
            st.sampled_from([0, 1, 5000, 9999]) | st.integers(0, 9999),
            min_size=count,
            max_size=count,
        )
    )
    weight = draw(st.integers(-4, 10))
    sign = draw(st.sampled_from([0, 0, 0x4000, 0x4000, 0xC000, 0xD000, 0xF000]))
    return struct.pack(f">HhHH{count}H", count, weight, sign, draw(st.integers(0, 30)), *groups)


@st.composite
def _array(draw: st.DrawFn, oid: int, element: st.SearchStrategy[bytes]) -> bytes:
    elements = draw(st.lists(st.none() | element, max_size=70))
    if not elements:
        return struct.pack(">iiI", 0, 0, oid)
    shown = b"".join(
        struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
        for value in elements
    )
    first = draw(st.sampled_from([1, 1, 1, 0, -5]))
    return struct.pack(">iiIii", 1, None in elements, oid, len(elements), first) + shown


_DAYS = st.integers(-800_000, 3_000_000) | st.integers(-(2**31), 2**31 - 1)
_MICROS = _DAYS.map(lambda days: days * 86_400_000_000).flatmap(
    lambda at: st.integers(at, at + 86_399_999_999) | st.sampled_from([at, at + 3_600_000_000])
) | st.sampled_from([2**63 - 1, -(2**63)])
_IN_TIMESTAMP = _MICROS.map(lambda value: min(max(value, -(2**63)), 2**63 - 1))

#: Type to the binary form of its values: the text form comes of it by the reference.
BINARY_VALUES: Final[dict[str, st.SearchStrategy[bytes]]] = {
    "bool": st.booleans().map(_packed("?")),
    "int2": _int(16).map(_packed("h")),
    "int4": _int(32).map(_packed("i")),
    "int8": _int(64).map(_packed("q")),
    "oid": _uint(32).map(_packed("I")),
    "xid8": _uint(64).map(_packed("Q")),
    "pg_lsn": _uint(64).map(_packed("Q")),
    "float4": (_uint(32) | st.floats(width=32).map(lambda value: struct.unpack(
        ">I", struct.pack(">f", value))[0])).map(_packed("I")),
    "float8": (_uint(64) | st.floats().map(lambda value: struct.unpack(
        ">Q", struct.pack(">d", value))[0])).map(_packed("Q")),
    "numeric": _numeric(),
    "date": _DAYS.map(_packed("i")),
    "time": st.integers(0, 86_400_000_000).map(_packed("q")),
    "timestamp": _IN_TIMESTAMP.map(_packed("q")),
    "timestamptz": _IN_TIMESTAMP.map(_packed("q")),
    "interval": st.tuples(_int(64), _int(32), _int(32)).map(_packed("qii")),
    "uuid": st.binary(min_size=16, max_size=16),
    "bytea": st.binary(max_size=80),
    "text": st.text(max_size=80).map(str.encode) | st.text("ab\x7f é", max_size=70).map(str.encode),
    "jsonb": st.text(max_size=40).map(lambda text: b"\1" + text.encode()),
    "point": st.tuples(st.floats(), st.floats()).map(_packed("dd")),
}  # fmt: skip
BINARY_VALUES |= {
    f"_{name}": _array(type_of(name).pg.oid, values) for name, values in BINARY_VALUES.items()
}
BINARY_VALUES["numeric(15,2)"] = BINARY_VALUES["numeric"]
BINARY_VALUES["numeric(38,0)"] = BINARY_VALUES["numeric"]


def _kind(name: str, options: TypeOptions) -> ColumnType:
    if name.startswith("numeric("):
        precision, scale = (int(part) for part in name[8:-1].split(","))
        return column_type(1700, (precision << 16 | scale) + 4, options)
    return column_type(type_of(name).pg.oid, -1, options)


@pytest.mark.parametrize("name", BINARY_VALUES)
@settings(max_examples=60)
@given(data=st.data())
def test_random_values(name: str, data: st.DataObject) -> None:
    as_text = _kind(name, TypeOptions(types="text"))
    rows: list[tuple[Value, bool]] = []
    for raw in data.draw(st.lists(BINARY_VALUES[name], min_size=1, max_size=4)):
        rows.append((raw, True))
        try:
            rows.append((family_of(as_text).render(raw), False))
        except ValueProblem:
            rows.pop()  # not in the type's range; that bytes are refused alike is tested above
        rows.append((None, False))
    kind = _kind(name, data.draw(st.sampled_from(OPTIONS)))
    for policy in POLICIES:
        assert_same(kind, rows, policy=policy)


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
def test_decimal_text(texts: list[bytes], shape: str, policy: str) -> None:
    rows = [(text, False) for text in texts]
    for row in rows:
        assert_same(_kind(f"numeric({shape})", TypeOptions()), [row], policy=policy)
    for options in OPTIONS:
        assert_same(_kind("numeric", options), rows, policy=policy)


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
def test_float_text(text: bytes) -> None:
    for name in ("float8", "float4"):
        assert_same(type_of(name), [(text, False)], lead=0)
    if b"e" not in text and b"n" not in text:
        assert_same(type_of("numeric", numeric="float64"), [(text, False)])


_CLOCK = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
_ZONE = st.from_regex(rb"[-+][0-9]{2}(:[0-9]{2}){0,2}", fullmatch=True)


@settings(max_examples=300)
@given(_CLOCK, st.integers(0, 6), _ZONE)
def test_time_text(when: datetime.datetime, decimals: int, zone: bytes) -> None:
    shown = when.isoformat(" ", "microseconds")
    shown = shown[: 20 + decimals] if decimals else shown[:19]
    assert_same(type_of("date"), [(shown[:10].encode(), False)], lead=0)
    assert_same(type_of("time"), [(shown[11:].encode(), False)], lead=0)
    assert_same(type_of("timestamp"), [(shown.encode(), False)], lead=0)
    assert_same(type_of("timestamptz"), [(shown.encode() + zone, False)], lead=0)


@given(
    st.from_regex(
        rb"([-+]?[0-9]{1,10} years? ?)?([-+]?[0-9]{1,3} mons? ?)?([-+]?[0-9]{1,11} days?)?"
        rb"( ?[-+]?[0-9]{1,11}:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,7})?)?",
        fullmatch=True,
    )
)
def test_interval_text(text: bytes) -> None:
    assert_same(type_of("interval"), [(text, False)], policy="clamp")


def test_every_day_of_the_calendar() -> None:
    day = datetime.date(1, 1, 1).toordinal()
    ordinals = range(day, datetime.date.max.toordinal(), 11)
    texts = [datetime.date.fromordinal(n).isoformat().encode() for n in ordinals]
    arrived = core.decode_values(type_of("date"), *arrays([(t, False) for t in texts], 13))
    epoch = datetime.date(1970, 1, 1).toordinal()
    assert arrived.array.buffers[0].tolist() == [n - epoch for n in ordinals]
    for year in (1900, 2000, 2023, 2024, 2100):
        for month in range(14):
            for day in range(33):
                assert_same(type_of("date"), [(b"%04d-%02d-%02d" % (year, month, day), False)])


def test_every_lead_byte_of_utf8() -> None:
    edges = bytes.fromhex("00417f808f909fa0bfc0f5ff")
    texts = [bytes([a, b]) for a in range(256) for b in edges]
    texts += [bytes([a, b, 0x80]) for a in range(0xDF, 0xF6) for b in range(0x7F, 0xC1)]
    texts += [bytes([a, b, 0x80, 0xBF]) for a in range(0xEF, 0xF6) for b in range(0x7F, 0xC1)]
    texts += [b"a" * n + "é".encode() + b"b" * m for n in range(36) for m in range(36)]
    texts += [text + b"tail of ascii that is long" for text in texts[::7]]
    for kind in (type_of("text"), type_of("text", strings="view")):
        for text in texts:
            try:
                text.decode()
                good = True
            except UnicodeDecodeError:
                good = False
            got = outcome(core.decode_values, kind, *arrays([(text, False)], 13), policy="raise")
            assert isinstance(got, Decoded) == good, text


#: Ordinary values, text and binary, and one that is not ordinary but good.
MIXED: Final[dict[str, list[tuple[bytes, bool]]]] = {
    name: [(text, False), (bytes.fromhex(binary), True), (odd, False)]
    for name, text, binary, odd in [
        ("bool", b"t", "00", b"f"),
        ("int8", b"-9007199254740993", "7fffffffffffffff", b"00000000000000000007"),
        ("xid8", b"123", "000000000000000f", b"18446744073709551615"),
        ("numeric(15,2)", b"-12345.67", "00030001400000020001092a1a2c", b"NaN"),
        ("date", b"2024-02-29", "00002279", b"0044-03-15 BC"),
        ("timestamptz", b"2024-02-29 12:00:00+00", "0002b582c4781000", b"infinity"),
        ("interval", b"1 day 02:03:04.5", "000000000016e360ffffffff00000000", b"infinity"),
        ("uuid", b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00" * 16, b"0" * 8 + b"-0000" * 3
         + b"-" + b"A" * 12),
        ("bytea", b"\\x00ff", "0102", b"\\000a\\\\"),
        ("text", b"plain", "c3a9", "ünïcode that is longer than a view holds".encode()),
        ("inet", b"10.0.0.0/8", "0380001000000000000000000000000000000001", b"::1"),
        ("_int4", b"{1,NULL,-3}", "000000000000000000000017", b"[5:6]={10,20}"),
        ("_numeric", b"{1.50,NULL}", "0000000000000000000006a4", b"{NaN}"),
        ("_text", b'{a,"b\\"c",NULL}', "000000000000000000000019", b"[0:1]={x,yy}"),
        ("_bool", b"{t,f,NULL}", "000000000000000000000010", b"[0:0]={t}"),
        ("_date", b"{2024-02-29}", "00000000000000000000043a", b'{infinity,"0044-03-15 BC"}'),
        ("_uuid", b"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "000000000000000000000b86",
         b"[0:0]={a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"),
        ("_int4[]", b"{}", "000000000000000000000017", b"{{1,2},{3,4}}"),
    ]
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_blocks(name: str) -> None:
    """Many blocks; whole ones of values, of none, of hard rows, and all of them mixed."""
    chosen = random.Random(name)
    ordinary, binary, odd = MIXED[name]
    none = (None, False)
    rows: list[tuple[Value, bool]] = [
        *[ordinary] * 300,
        *[binary] * 300,
        *[none] * 300,
        *[odd] * 20,
        *chosen.choices([ordinary, binary, none, odd], (40, 20, 20, 1), k=700),
    ]
    for options in OPTIONS:
        kind = _kind(name.removesuffix("[]"), options)
        for policy in ("null", "clamp"):
            assert_same(kind, rows, policy=policy)
            assert_same(kind, rows[:-1], policy=policy)
        assert_same(kind, rows[:900])
        assert_same(kind, rows)
        assert_same(kind, rows[600:905])
        assert_same(kind, rows[920:])


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 255, 256, 257])
def test_counts_of_rows(name: str, count: int) -> None:
    kind = _kind(name.removesuffix("[]"), TypeOptions())
    for row in (*MIXED[name], (None, False)):
        assert_same(kind, [row] * count, policy="clamp")
        assert_same(kind, [row] * count)


@pytest.mark.parametrize(
    ("name", "ordinary", "others"),
    [
        ("int2", [b"0", b"7", b"123", b"32767"], [b"32768", b"-32768"]),
        ("int4", [b"1", b"12345678", b"0042"], [b"123456789", b"-1", b"12a", b"1 ", b":"]),
        ("oid", [b"1", b"12345678"], [b"4294967295", b"4294967296", b"-0"]),
        ("int8", [b"1", b"99999999"], [b"9" * 18, b"9" * 19]),
        (
            "numeric(15,2)",
            [b"0.00", b"1.50", b"123456.78"],
            [b"1.5", b"1", b".50", b"12", b"1.5x", b"1234567.89", b"-1.50", b"1.505", b"1,50"],
        ),
        ("numeric(9,6)", [b"0.000001", b"99.999999"], [b"100.000000", b"1000.000000", b"0000000"]),
        ("numeric(8,7)", [b"0.0000001", b"1.9999999"], [b"10.0000000"]),
        (
            "date",
            [b"2024-02-29", b"0001-01-01", b"9999-12-31"],
            b"2023-02-29 0000-01-01 2024-00-10 2024-13-01 2024-31-01 2024-01-00 2024-01-32 "
            b"2024/01/01 24-01-01 10000-01-01 202a-01-01 infinity \xff\xff\xff\xff-01-01".split(
                b" "
            ),
        ),
        ("text", [b"a", b"", b"b" * 40], ["é".encode(), b"\xff", b"c" * 400]),
    ],
)
def test_one_other_among_ordinary_values(
    name: str, ordinary: list[bytes], others: list[bytes]
) -> None:
    """Blocks of one kind go by a quicker loop: it has to see the one row that is not of it."""
    chosen = random.Random(name)
    kind = _kind(name, TypeOptions())
    rows: list[tuple[Value, bool]] = [(value, False) for value in chosen.choices(ordinary, k=600)]
    assert_same(kind, rows)
    for other in [(value, False) for value in (*others, b"", b"0" * 9)] + [
        (None, False),
        (b"\0\0\0\1", True),
    ]:
        for at in (0, 255, 256, 599):
            assert_same(kind, [*rows[:at], other, *rows[at + 1 :]], policy=chosen.choice(POLICIES))


def test_first_of_many_problems() -> None:
    rows = [(b"1", False)] * 700
    for wrong, text in ((650, b"x"), (300, b"2147483648"), (299, b"{")):
        rows[wrong] = (text, False)
        assert_same(type_of("int4"), rows)
    with pytest.raises(ValueProblem) as caught:
        core.decode_values(type_of("int4"), *arrays(rows, 13))
    assert caught.value.row == 299


@pytest.mark.parametrize("lead", [0, 1, 11, 12, 13])
def test_values_at_both_ends_of_the_data(lead: int) -> None:
    for name, text, binary in GOLDEN:
        for kind in every_way(name):
            assert_same(kind, [(text.encode(), False)], lead=lead, policy="clamp")
            assert_same(kind, [(bytes.fromhex(binary), True)], lead=lead, policy="clamp")


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (0, 4), (3, 1), (2**62, 2)])
def test_values_outside_the_data(offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside the data"):
        core.decode_values(
            type_of("int4"),
            np.frombuffer(b"123", np.uint8),
            np.array([offset], np.int64),
            np.array([length], np.int32),
            np.ones(1, np.uint8),
            np.zeros(1, np.uint8),
        )


def test_memory_outlives_the_decoder() -> None:
    rows = [(b"%d" % n, False) for n in range(1000)]
    numbers = core.decode_values(type_of("int8"), *arrays(rows, 13)).array.buffers[0]
    assert numbers.tolist() == list(range(1000))
    assert not numbers.flags.owndata


@pytest.mark.parametrize("target", [NATIVE, SPARK], ids=["arrow", "spark"])
def test_ordinary_values_do_not_need_the_reference(
    target: ArrowTypes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Decoded:
        raise AssertionError("asked the reference")

    monkeypatch.setattr(reference, "decode_values", refuse)
    options = TypeOptions(arrow_types=target)
    for name, (ordinary, binary, _) in MIXED.items():
        kind = _kind(name.removesuffix("[]"), options)
        rows = [ordinary, (None, False)]
        if not (name in ("inet", "interval") and kind.format == "u"):
            rows.append(binary)
        assert core.decode_values(kind, *arrays(rows, 13)).array.length == len(rows)
    for name, text in [
        ("int2", "-32768"),
        ("int4", "-2147483648"),
        ("int8", "9223372036854775807"),
        ("oid", "4294967295"),
        ("xid8", "9223372036854775807"),
        ("pg_lsn", "16/B374D848"),
        ("float8", "1.7976931348623157e+308"),
        ("float8", "-0.30000000000000004"),
        ("float4", "3.4028235e+38"),
        ("numeric", "12345678901234567890.123"),
        ("numeric(38,10)", "-1234567890123456789012345678.0123456789"),
        ("numeric(20,8)", "0.12345678"),
        ("date", "9999-12-31"),
        ("time", "23:59:59.999999"),
        ("timestamp", "0001-01-01 00:00:00.1"),
        ("timestamptz", "2024-02-29 12:34:56.789+05:30"),
        ("interval", "-1 years -2 mons +3 days -04:05:06.789"),
        ("text", "naïve €uro 😀"),
        ("json", "{}"),
        ("_text", '{"a b","c\\"d",NULL,e}'),
        ("_timestamptz", '{"2024-02-29 12:00:00+00"}'),
    ]:
        got = core.decode_values(_kind(name, options), *arrays([(text.encode(), False)], 13))
        assert got.array.null_count == 0


@pytest.mark.parametrize(("policy", "null_count"), [("null", 2), ("clamp", 0)])
def test_infinite_times_do_not_need_the_reference(
    policy: str, null_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(reference, "decode_values")
    for name in ("date", "timestamp", "timestamptz"):
        rows = [(b"infinity", False), (b"-infinity", False)]
        got = core.decode_values(type_of(name), *arrays(rows, 13), unrepresentable=policy)
        assert (got.array.null_count, got.invalid.tolist()) == (null_count, [0, 1])
    got = core.decode_values(
        type_of("numeric", 983046), *arrays([(b"NaN", False)], 13), unrepresentable=policy
    )
    assert (got.array.null_count, got.invalid.tolist()) == (1, [0])


def test_large_columns() -> None:
    """Buffers that outgrow the first guess, and pages of every size."""
    count = 600_000
    texts = [b"x" * (row // 40_000) + b"%d" % row for row in range(count)]
    rows = [(text, False) for text in texts]
    got = core.decode_values(type_of("text"), *arrays(rows, 13)).array
    assert got.buffers[1].tobytes() == b"".join(texts)
    assert got.buffers[0].tolist()[1:] == np.cumsum([len(text) for text in texts]).tolist()
    data, offsets, lengths, state, formats = arrays(
        [(b"%d" % row, False) for row in range(count)], 13
    )
    numbers = core.decode_values(type_of("int8"), data, offsets, lengths, state, formats).array
    assert numbers.buffers[0].tolist() == list(range(count))
