"""Columns of two sides in common types, decided without a server."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.errors import TableError
from pgwire_codec.protocol.messages import Relation
from tests.support import build

_STAMP = pa.timestamp("us")


def relation(*names: str, keys: int = 1, identity: str = "d") -> Relation:
    columns = (build.column(name, key=number < keys) for number, name in enumerate(names))
    return build.relation(1, *columns, identity=identity)


@pytest.mark.parametrize(
    ("server", "target", "common"),
    [
        (pa.int32(), None, pa.int32()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.float64(), pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3), pa.decimal128(12, 3)),
        (pa.decimal128(38, 0), pa.decimal128(38, 2), pa.string()),
        (pa.int32(), pa.string(), pa.string()),
        (pa.string(), pa.int32(), pa.string()),
        (pa.string(), pa.binary(), pa.binary()),
        (pa.list_(pa.int32()), pa.list_(pa.field("element", pa.int32())), pa.list_(pa.int32())),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.string()),
        (_STAMP, pa.timestamp("us", "UTC"), pa.string()),
    ],
    ids=str,
)
def test_common_types(server: pa.DataType, target: pa.DataType | None, common: pa.DataType) -> None:
    held = {} if target is None else {"v": target}
    columns = ComparedColumns.choose(relation("v"), {"v": server}, held)
    assert columns.types == {"v": common}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, None], pa.int32()), pa.array([1, None], pa.int64())),
        (pa.array([1.5]), pa.array([1.5], pa.float32())),
        (pa.array([Decimal("1.10")]), pa.array([Decimal("1.100")])),
        (pa.array(["5", None]), pa.array([5, None])),
        (pa.array(["a"]), pa.array([b"a"])),
        (pa.array([[1, None], None, []]), pa.array([[1, None], None, []], pa.list_(pa.int32()))),
        (pa.array([[0], [1, 2], []]).slice(1), pa.array([[1, 2], []], pa.list_(pa.int16()))),
    ],
    ids=lambda each: str(each.type),
)
def test_equal_values_of_different_types(one: pa.Array, other: pa.Array) -> None:
    columns = ComparedColumns.choose(relation("v"), {"v": one.type}, {"v": other.type})
    hashes = [
        columns.hashes(columns.rows(pa.record_batch({"v": column}))) for column in (one, other)
    ]
    assert hashes[0].rows.tolist() == hashes[1].rows.tolist()
    assert hashes[0].keys.tolist() == columns.key_hashes({"v": other}).tolist()
    assert len(set(hashes[0].rows.tolist())) == len(one)


def test_a_missing_column_is_null() -> None:
    kinds = {"id": pa.int32(), "v": pa.string()}
    columns = ComparedColumns.choose(relation(*kinds), kinds, {"id": pa.int32()})
    rows = columns.rows(pa.record_batch({"id": pa.array([1, 2], pa.int32())}))
    assert rows.to_pylist() == [{"id": 1, "v": None}, {"id": 2, "v": None}]


def test_keys() -> None:
    kinds: dict[str, Any] = dict.fromkeys("ab", pa.int32())
    keyed = ComparedColumns.choose(relation("a", "b"), kinds, {})
    assert (keyed.keys, keyed.has_keys) == (("a",), True)
    masked = ComparedColumns.choose(relation("a", "b"), kinds, {}, {"a"})
    assert (masked.keys, masked.has_keys) == (("b",), False)
    bag = ComparedColumns.choose(relation("a", "b", keys=2, identity="f"), kinds, {})
    assert (bag.keys, bag.has_keys) == (("a", "b"), False)
    with pytest.raises(TableError, match="all columns have a mask"):
        ComparedColumns.choose(relation("a", "b"), kinds, {}, {"a", "b"})
