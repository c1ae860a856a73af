"""An Iceberg table has each change once, whatever its maintenance and other writers do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.errors import OptionError, TableError
from tests.support.lakehouse import (
    ICEBERG,
    has,
    iceberg_catalog,
    iceberg_snapshots,
    iceberg_table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

SCHEMA = (
    "id int, v string, _op string, _commit_lsn long, _seq long, _unchanged array<string>,"
    " _before struct<id: int, v: string>, _commit_time timestamp, _relation_oid long"
)


def changes(spark: SparkSession, lsn: int, *ids: int, op: str = "I") -> DataFrame:
    rows = [(id_, "v", op, lsn, seq, None, None, None, 7) for seq, id_ in enumerate(ids)]
    return spark.createDataFrame(rows, SCHEMA)


class Table:
    """A table of an Iceberg catalog, by default without a key: what is applied twice is seen."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.catalog = iceberg_catalog(spark, folder / "lake")
        self.name = f"{self.catalog}.made.t"
        self._spark = spark

    def merge(self, changes: DataFrame, keys: list[str] | None = None) -> Any:
        from pgwire_codec.spark import merge_into

        return merge_into(changes, f"iceberg:{self.name}", keys)

    @property
    def ids(self) -> list[int]:
        return sorted(iceberg_table(self._spark, self.name)["id"].to_pylist())

    @property
    def snapshots(self) -> list[int]:
        return iceberg_snapshots(self._spark, self.name)

    def records(self, table: str | None = None) -> list[tuple[Any, Any]]:
        """Commit LSN and relation in the summaries of the snapshots, oldest first."""
        self._spark.sql(f"REFRESH TABLE {table or self.name}")
        names = ("commit_lsn", "relation_oid")
        columns = ", ".join(f"summary['pgwire_codec.{name}']" for name in names)
        found = f"SELECT {columns} FROM {table or self.name}.snapshots ORDER BY committed_at"
        return [tuple(row) for row in self._spark.sql(found).collect()]

    def call(self, procedure: str) -> None:
        self._spark.sql(f"CALL {self.catalog}.system.{procedure}").collect()

    def compact(self) -> None:
        options = "map('rewrite-all', 'true')"
        self.call(f"rewrite_data_files(table => 'made.t', options => {options})")

    def expire(self, retained: int = 1) -> None:
        older = "older_than => TIMESTAMP '2100-01-01 00:00:00'"
        self.call(f"expire_snapshots(table => 'made.t', {older}, retain_last => {retained})")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    if not has(ICEBERG):
        pytest.skip("needs Iceberg's Spark runtime, which Maven fetches for Spark 4.1")
    return Table(spark, tmp_path)


def test_maintenance_by_others(spark: SparkSession, table: Table) -> None:
    """Compaction writes a snapshot without the record, and expiry removes the one that has it."""
    from pgwire_codec.spark import Merged

    first = changes(spark, 10, 1, 1)
    table.merge(first)
    assert table.records() == [("0/A", "7")]
    table.compact()
    assert table.merge(first) == Merged(10)
    table.expire()
    assert table.records() == [(None, None)]
    assert table.merge(first) == Merged(10)
    assert table.merge(first.union(changes(spark, 20, 2))) == Merged(20, inserted=1)
    assert table.ids == [1, 1, 2]


@pytest.mark.parametrize("keys", [["id"], None])
def test_changes_that_spark_has_numbered(
    spark: SparkSession, table: Table, keys: list[str] | None
) -> None:
    """Their order would be another one if they were read again."""
    from pgwire_codec.spark import Merged

    table.merge(changes(spark, 10, 1, 2), keys)
    batch = changes(spark, 20, 1, op="D").union(changes(spark, 21, 3))
    batch = batch.selectExpr(
        "id", "v", "_op", "_commit_lsn", "monotonically_increasing_id() AS _seq", "_unchanged",
        "IF(_op = 'D', struct(id, v), _before) AS _before", "_commit_time", "_relation_oid",
    )  # fmt: skip
    assert table.merge(batch, keys) == Merged(21, inserted=1, deleted=1)
    assert table.ids == [2, 3]


def test_a_table_that_was_rolled_back(spark: SparkSession, table: Table) -> None:
    """It gets the later changes again, or an error if it is unknown which these are."""
    from pgwire_codec.spark import Merged

    first, second = changes(spark, 10, 1), changes(spark, 20, 2)
    table.merge(first)
    table.compact()
    table.merge(second)
    _, compacted, _ = table.snapshots
    table.call(f"rollback_to_snapshot('made.t', {compacted})")
    assert table.merge(first.union(second)) == Merged(20, inserted=1)
    assert table.ids == [1, 2]
    table.expire(2)
    table.call(f"rollback_to_snapshot('made.t', {compacted})")
    with pytest.raises(TableError, match="was rolled back to a snapshot without a commit LSN"):
        table.merge(second)
    assert table.ids == [1]


def test_names_of_no_iceberg_table(spark: SparkSession, table: Table) -> None:
    from pgwire_codec.spark import merge_into, mirror

    batch = changes(spark, 10, 1)
    for name in ("absent.made.t", "t"):
        with pytest.raises(OptionError, match="Spark has no catalog"):
            merge_into(batch, f"iceberg:{name}", None)
    with pytest.raises(OptionError, match="Spark has no catalog 'absent'"):
        mirror(spark, "log", "iceberg:absent", checkpoint="no")
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.default.plain (id int) USING parquet")
    with pytest.raises(TableError, match="is not an Iceberg table"):
        merge_into(batch, "iceberg:spark_catalog.default.plain", None)


def test_a_session_without_the_runtime(spark: SparkSession) -> None:
    from pgwire_codec.spark import merge_into, mirror

    if has(ICEBERG):
        pytest.skip("the session has it")
    with pytest.raises(OptionError, match=r"lacks Iceberg's Spark runtime — hint: .*4\.1"):
        merge_into(changes(spark, 10, 1), "iceberg:lake.made.t", None)
    with pytest.raises(OptionError, match="lacks Iceberg's Spark runtime"):
        mirror(spark, "log", "iceberg:lake", checkpoint="no")


def test_a_table_without_vectors(spark: SparkSession, table: Table) -> None:
    """Files with rows that change are replaced."""
    from pgwire_codec.spark import Merged

    spark.sql(f"CREATE NAMESPACE {table.catalog}.made")
    properties = "TBLPROPERTIES ('write.merge.mode' = 'copy-on-write', 'format-version' = '3')"
    spark.sql(f"CREATE TABLE {table.name} (id int, v string) USING iceberg {properties}")
    table.merge(changes(spark, 10, 1, 2, 3), ["id"])
    merged = table.merge(changes(spark, 20, 1, op="D").union(changes(spark, 21, 4)), ["id"])
    assert merged == Merged(21, inserted=1, deleted=1)
    assert table.ids == [2, 3, 4]
    assert spark.table(f"{table.name}.all_delete_files").count() == 0
