"""merge_into appends what needs no merge: inserts into an empty table, or one without a key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

pytest.importorskip("deltalake")

SCHEMA = (
    "id int, v string, _op string, _commit_lsn long, _seq long, _unchanged array<string>,"
    " _before struct<id: int, v: string>"
)


def changes(spark: SparkSession, lsn: int, *ids: int, op: str = "I") -> DataFrame:
    rows = [(id_, "v", op, lsn, seq, None, None) for seq, id_ in enumerate(ids)]
    return spark.createDataFrame(rows, SCHEMA)


def test_inserts_are_appended(spark: SparkSession, merge_into: Any, tmp_path: Path) -> None:
    from pgwire_codec.spark import Merged

    target = str(tmp_path / "t")
    first = changes(spark, 10, 1, 2, 3)
    assert merge_into(first, target, ["id"]) == Merged(10, inserted=3)
    assert merge_into(first, target, ["id"]) == Merged(10)
    assert merge_into.operations(target) == ["append"]
    merge_into(changes(spark, 20, 4).union(first), target, ["id"])
    assert merge_into.operations(target) == ["append", "merge"]
    merge_into(changes(spark, 30, 0, op="T").union(changes(spark, 31, 9)), target, ["id"])
    assert merge_into.operations(target) == ["append", "merge", "merge"]
    assert merge_into.rows(target) == [{"id": 9, "v": "v"}]


def test_rows_without_a_key_are_appended(
    spark: SparkSession, merge_into: Any, tmp_path: Path
) -> None:
    from pgwire_codec.spark import Merged

    target = str(tmp_path / "t")
    first = changes(spark, 10, 1, 1)
    merge_into(first, target, None)
    assert merge_into(changes(spark, 20, 1).union(first), target, None) == Merged(20, inserted=1)
    assert merge_into.operations(target) == ["append", "append"]
    assert merge_into.rows(target) == [{"id": 1, "v": "v"}] * 3
