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


def test_inserts_into_an_empty_table(spark: SparkSession, merge_into: Any, tmp_path: Path) -> None:
    from pgwire_codec.spark import Merged

    target = str(tmp_path / "t")
    first = changes(spark, 10, 1, 2, 3)
    assert merge_into(first, target, ["id"]) == Merged(10, inserted=3)
    assert merge_into(first, target, ["id"]) == Merged(10)
    assert merge_into(changes(spark, 20, 4).union(first), target, ["id"]) == Merged(20, inserted=1)
    batch = changes(spark, 30, 0, op="T").union(changes(spark, 31, 9))
    assert merge_into(batch, target, ["id"]) == Merged(31, inserted=1, deleted=4)
    assert merge_into.rows(target) == [{"id": 9, "v": "v"}]


def test_rows_without_a_key_are_not_looked_up(
    spark: SparkSession, merge_into: Any, tmp_path: Path
) -> None:
    """Inserts are appended, even if no file of the table can be read."""
    from pgwire_codec.spark import Merged

    target = str(tmp_path / "t")
    first = changes(spark, 10, 1, 1)
    merge_into(first, target, None)
    (file,) = tmp_path.rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(b"damaged")
    assert merge_into(changes(spark, 20, 1).union(first), target, None) == Merged(20, inserted=1)
    file.write_bytes(content)
    assert merge_into.rows(target) == [{"id": 1, "v": "v"}] * 3
