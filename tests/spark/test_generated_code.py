"""Merges of equal shape use the code that Spark has generated before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lakehouse import usable_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCHEMA = (
    "id int, note string, _op string, _commit_lsn long, _seq long, _relation_oid long,"
    " _unchanged array<string>, _before struct<id: int>"
)


def compiled(spark: Any) -> int:
    """Return the number of classes that Spark has compiled so far."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    count: int = metrics.METRIC_COMPILATION_TIME().getCount()
    return count


def test_later_batches_compile_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Nor do those of other tables with the same columns."""
    from pgwire_codec.spark import merge_into

    usable_engine("delta")
    counts = []
    for lsn in range(1000, 1005):
        rows = [(number, f"{lsn}", "U", lsn, number, 7, None, (number,)) for number in range(20)]
        before = compiled(spark)
        changes = spark.createDataFrame(rows, SCHEMA)
        merged = merge_into(changes, str(tmp_path / "t"), ["id"])
        assert merged.commit_lsn == lsn
        counts.append(compiled(spark) - before)
    assert counts[0] > 0
    assert counts[-1] == 0, counts


def test_tables_with_the_same_columns_share_code(spark: SparkSession, tmp_path: Path) -> None:
    """A mirror may have hundreds of them."""
    from pgwire_codec.spark import merge_into

    usable_engine("delta")
    counts = []
    for oid in range(7000, 7004):
        rows = [(number, "x", "U", oid, number, oid, None, (number,)) for number in range(20)]
        before = compiled(spark)
        merge_into(spark.createDataFrame(rows, SCHEMA), str(tmp_path / f"{oid}"), ["id"])
        counts.append(compiled(spark) - before)
    assert counts[-1] == 0, counts
