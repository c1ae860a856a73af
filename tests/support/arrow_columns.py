"""Arrow columns to encode: for each type of PostgreSQL what it decodes to, and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import pgwire_codec as pgc
from tests.support.build import column, relation


def numeric(precision: int, scale: int) -> int:
    """The type modifier of numeric(precision, scale)."""
    return (precision << 16 | (scale & 0x7FF)) + 4


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(2 ** (bits - 1)) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    return st.one_of(st.sampled_from([low, high, 0, 1, 9, 10, 99, 100]), st.integers(low, high))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    powers = [10**digits for digits in range(precision)]
    unscaled = st.one_of(
        st.integers(-most, most), st.sampled_from([0, most, -most, *powers]), st.integers(-99, 99)
    )
    return unscaled.map(
        lambda number: Decimal((int(number < 0), [int(d) for d in str(abs(number))], -scale))
    )


_MICROS = (-210_866_803_200_000_000, 2**63 - 1)
texts = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
    st.sampled_from(["", "NULL", "null", 'a"b', "a\\b", "{}", "a b", "a,b", "x" * 300]),
)
days = st.one_of(
    st.integers(-2_440_588, 2_145_042_905),
    st.integers(-800_000, 3_000_000),
    st.sampled_from([0, -1, -719_162, -719_163, 2_932_896, 2_932_897, 10_957, 2_145_042_905]),
)
micros = st.one_of(
    st.integers(*_MICROS),
    st.integers(-(10**15), 2 * 10**15),
    st.integers(-1000, 1000).map(lambda count: count * 1_000_000),
    st.sampled_from([_MICROS[0], -1, 0, 1, 10, 946_684_800_000_000, 253_402_300_799_999_999]),
)
clocks = st.one_of(st.integers(0, 86_399_999_999), st.sampled_from([0, 1, 10, 86_399_999_999]))
spans = st.tuples(
    integers(32), integers(32), st.integers(-(2**63) // 1000 + 1, 2**63 // 1000 - 1)
).map(lambda each: pa.MonthDayNano([each[0], each[1], each[2] * 1000]))


@dataclass(frozen=True)
class Kind:
    """A column type, the Arrow type that it decodes to, and its values as pyarrow takes them."""

    name: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    typmod: int = -1

    def __str__(self) -> str:
        return self.name if self.typmod == -1 else f"{self.name}-{self.arrow}"

    def column(self, name: str) -> pgc.RelationColumn:
        return column(name, self.name, typmod=self.typmod)

    def arrays(self, size: int | None = None) -> st.SearchStrategy[pa.Array]:
        bounds = (0, 12) if size is None else (size, size)
        values = st.lists(st.none() | self.values, min_size=bounds[0], max_size=bounds[1])
        return values.map(self.array)

    def array(self, values: Sequence[Any]) -> pa.Array:
        # pyarrow makes dates and times of counts only by a cast.
        if pa.types.is_temporal(self.arrow) and not pa.types.is_interval(self.arrow):
            storage = pa.int32() if self.arrow.bit_width == 32 else pa.int64()
            return pa.array(values, storage).cast(self.arrow)
        return pa.array(values, self.arrow)


KINDS = (
    Kind("bool", pa.bool_(), st.booleans()),
    Kind("int2", pa.int16(), integers(16)),
    Kind("int4", pa.int32(), integers(32)),
    Kind("int8", pa.int64(), integers(64)),
    Kind("oid", pa.uint32(), integers(32, signed=False)),
    Kind("xid8", pa.uint64(), integers(64, signed=False)),
    Kind("pg_lsn", pa.uint64(), integers(64, signed=False)),
    Kind("float4", pa.float32(), st.floats(width=32, allow_nan=False)),
    Kind("float8", pa.float64(), st.floats(allow_nan=False)),
    Kind("numeric", pa.decimal128(15, 2), decimals(15, 2), numeric(15, 2)),
    Kind("numeric", pa.decimal128(38, 0), decimals(38, 0), numeric(38, 0)),
    Kind("numeric", pa.decimal128(38, 37), decimals(38, 37), numeric(38, 37)),
    Kind("numeric", pa.decimal128(5, 5), decimals(3, 5), numeric(3, 5)),
    Kind("numeric", pa.string(), decimals(60, 20).map(lambda value: f"{value:f}")),
    Kind("date", pa.date32(), days),
    Kind("time", pa.time64("us"), clocks),
    Kind("timestamp", pa.timestamp("us"), micros),
    Kind("timestamptz", pa.timestamp("us", "UTC"), micros),
    Kind("interval", pa.month_day_nano_interval(), spans),
    Kind("uuid", pa.binary(16), st.binary(min_size=16, max_size=16)),
    Kind("bytea", pa.binary(), st.binary(max_size=30)),
    Kind("text", pa.string(), texts),
    Kind("varchar", pa.string(), texts),
    Kind("json", pa.string(), texts),
    Kind("jsonb", pa.string(), texts),
    Kind("inet", pa.string(), st.sampled_from(["10.0.0.0/8", "::1", "1.2.3.4"])),
    Kind("int4range", pa.string(), st.sampled_from(["[1,5)", "empty", "(,)"])),
    Kind("bool[]", pa.list_(pa.bool_()), st.lists(st.none() | st.booleans(), max_size=4)),
    Kind("int8[]", pa.list_(pa.int64()), st.lists(st.none() | integers(64), max_size=4)),
    Kind("text[]", pa.list_(pa.string()), st.lists(st.none() | texts, max_size=4)),
    Kind("float8[]", pa.list_(pa.float64()), st.lists(st.floats(allow_nan=False), max_size=4)),
    Kind(
        "numeric[]",
        pa.list_(pa.decimal128(9, 3)),
        st.lists(st.none() | decimals(9, 3), max_size=4),
        numeric(9, 3),
    ),
    Kind("bytea[]", pa.list_(pa.binary()), st.lists(st.binary(max_size=5), max_size=4)),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pgc.Relation, pa.Table]:
    """Some columns of some types, and rows of them."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    rows = draw(st.integers(0, 8))
    names = [f"c{number}" for number in range(len(kinds))]
    columns = [kind.column(name) for kind, name in zip(kinds, names, strict=True)]
    arrays = [draw(kind.arrays(rows)) for kind in kinds]
    return relation(1, *columns), pa.table(arrays, names=names)


def example_table() -> tuple[pgc.Relation, pa.Table]:
    """Three rows of every type, the last of them null."""
    samples: dict[str, list[Any]] = {
        "bool": [True, False],
        "date": [0, -719_163],
        "time": [86_399_999_999, 0],
        "timestamp": [-1, 1_700_000_000_123_000],
        "timestamptz": [0, 253_402_300_800_000_000],
        "interval": [pa.MonthDayNano([-14, 3, -1000]), pa.MonthDayNano([0, 0, 0])],
        "uuid": [bytes(range(16)), bytes(16)],
        "bytea": [b"\x00\xff", b""],
        "inet": ["10.0.0.0/8", "::1"],
        "int4range": ["[1,5)", "empty"],
        "bool[]": [[True, None], []],
        "int8[]": [[1, None, -(2**63)], []],
        "text[]": [["a b", None, "NULL", ""], []],
        "float8[]": [[0.1, -0.0], []],
        "numeric[]": [[Decimal("1.500"), None], []],
        "bytea[]": [[b"\\", b""], []],
    }
    arrays, columns = [], []
    for number, kind in enumerate(KINDS):
        values = samples.get(kind.name)
        if values is None and kind.name == "numeric":
            values = [Decimal("-0.02"), Decimal(0)] if kind.arrow != pa.string() else ["-1.50", "7"]
            if kind.typmod == numeric(38, 0):
                values = [Decimal(10**37), Decimal(-5)]
            if kind.typmod == numeric(3, 5):
                values = [Decimal("0.00999"), Decimal("-0.00001")]
        if values is None:
            values = ["ä", ""] if kind.arrow == pa.string() else [100, 7]
        arrays.append(kind.array([*values, None]))
        columns.append(kind.column(f"c{number}"))
    names = [each.name for each in columns]
    return relation(1, *columns), pa.table(arrays, names=names)
