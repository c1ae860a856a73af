"""mapInArrow of rows with lists: the same rows, without a null list on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROWS = [
    (1, None, [None, "x"], None, None, (1,)),
    (2, [], None, [[1], None, []], (None, 7, None, []), None),
    (3, ["a"], [], [], (["x"], None, [[1], None], None), (None,)),
    (4, None, None, None, (None, None, None, None), (4,)),
]
SCHEMA = (
    "`a.b` int, `tick``` array<string>, A array<string>, `null1` array<array<int>>,"
    " old struct<`a.b`: array<string>, a: int, A: array<array<int>>, `f0`: array<int>>,"
    " other struct<x: int>"
)


@pytest.mark.parametrize("chosen", [slice(None), slice(1), slice(1, 3), slice(3, 4)], ids=str)
def test_rows_arrive_as_they_are(spark: SparkSession, chosen: slice) -> None:
    from pgwire_codec.spark.tasks import map_in_arrow

    rows = spark.createDataFrame(ROWS[chosen], SCHEMA)
    found = map_in_arrow(rows, lambda batches: batches, rows.schema)
    assert found.columns == rows.columns
    assert found.collect() == rows.collect() == ROWS[chosen]


def test_no_list_is_sent_as_null(spark: SparkSession) -> None:
    from pgwire_codec.spark.tasks import map_in_arrow

    rows = spark.createDataFrame(ROWS, SCHEMA)
    found: Any = map_in_arrow(rows, lambda batches: batches, rows.schema)
    sent = found._jdf.queryExecution().analyzed().children().apply(0).schema()
    kinds = {(each.dataType().typeName(), each.nullable()) for each in _fields(sent)}
    assert kinds == {("integer", True), ("struct", True), ("array", False), ("boolean", False)}
    structs = (each.dataType() for each in _fields(sent) if each.dataType().typeName() == "struct")
    assert "array" not in {each.dataType().typeName() for kind in structs for each in _fields(kind)}


def test_other_rows_are_sent_unchanged(spark: SparkSession) -> None:
    from pgwire_codec.spark.tasks import map_in_arrow

    rows = spark.range(3)
    found: Any = map_in_arrow(rows, lambda batches: batches, rows.schema)
    assert len(_fields(found._jdf.queryExecution().analyzed().children().apply(0).schema())) == 1


def _fields(schema: Any) -> list[Any]:
    return [schema.apply(place) for place in range(schema.length())]
