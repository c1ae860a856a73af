"""An Iceberg table has each change once, whatever its maintenance and other writers do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.errors import OptionError, TableError
from tests.support import build
from tests.support.lakehouse import (
    ICEBERG,
    has,
    iceberg_catalog,
    iceberg_snapshots,
    iceberg_table,
)
from tests.support.mirrors import ID, MirrorOf, Writer, relation

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

        return merge_into(changes, self.name, keys, engine="iceberg")

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
    """MERGE INTO refuses a source whose rows could be others when they are read again."""
    from pgwire_codec.spark import Merged

    table.merge(changes(spark, 10, 1, 2), keys)
    batch = changes(spark, 20, 1, op="D").union(changes(spark, 21, 3))
    batch = batch.selectExpr(
        "id", "v", "_op", "_commit_lsn", "monotonically_increasing_id() AS _seq", "_unchanged",
        "IF(_op = 'D', struct(id, v), _before) AS _before", "_commit_time", "_relation_oid",
    )  # fmt: skip
    assert table.merge(batch, keys) == Merged(21, inserted=1, deleted=1)
    assert table.ids == [2, 3]


def interrupt(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], times: int = 1
) -> list[int]:
    """Have something happen after rows are written, before they are published, so many times."""
    from pgwire_codec.spark.sinks import iceberg

    done: list[int] = []
    staged_snapshot = iceberg.staged_snapshot

    def interrupted(*arguments: Any) -> Any:
        found = staged_snapshot(*arguments)
        if len(done) < times:
            done.append(1)
            act()
        return found

    monkeypatch.setattr(iceberg, "staged_snapshot", interrupted)
    return done


def test_a_failure_before_the_rows_are_published(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgwire_codec.spark import Merged

    def fail() -> None:
        raise MemoryError

    table.merge(changes(spark, 10, 1))
    interrupt(monkeypatch, fail)
    with pytest.raises(MemoryError):
        table.merge(changes(spark, 20, 2))
    assert table.ids == [1]
    assert table.merge(changes(spark, 20, 2)) == Merged(20, inserted=1)
    assert table.ids == [1, 2]


def test_another_writer_meanwhile(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows stay, and the batch is merged again, some times."""
    from pgwire_codec.spark import Merged

    def write() -> None:
        spark.sql(f"INSERT INTO {table.name} VALUES (99, 'other')")

    table.merge(changes(spark, 10, 1, 2), ["id"])
    done = interrupt(monkeypatch, write)
    batch = changes(spark, 20, 3).union(changes(spark, 21, 1, op="D"))
    assert table.merge(batch, ["id"]) == Merged(21, inserted=1, deleted=1)
    assert done
    assert table.ids == [2, 3, 99]
    interrupt(monkeypatch, write, 9)
    with pytest.raises(TableError, match="changed by another writer during each of 4 merges"):
        table.merge(changes(spark, 30, 4))
    assert table.ids == [2, 3, *[99] * 5]


def test_the_same_changes_meanwhile(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a mirror that was started twice."""
    from pgwire_codec.spark import Merged

    table.merge(changes(spark, 10, 1))
    batch = changes(spark, 20, 2)
    interrupt(monkeypatch, lambda: table.merge(batch))
    assert table.merge(batch) == Merged(20)
    assert table.ids == [1, 2]
    interrupt(monkeypatch, lambda: table.merge(changes(spark, 30, 3)))
    with pytest.raises(TableError, match="another process has applied changes") as caught:
        table.merge(changes(spark, 30, 3).union(changes(spark, 40, 4)))
    assert caught.value.is_transient
    assert table.ids == [1, 2, 3]


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


def test_tables_side_by_side(
    spark: SparkSession, table: Table, writer: Writer, tmp_path: Path
) -> None:
    """The record of one is never in the snapshot of another."""
    made = MirrorOf(spark, tmp_path, "iceberg")
    tables = range(1, 6)
    lsns: dict[int, list[int]] = {oid: [] for oid in tables}
    for _ in range(2):
        for oid in tables:
            key = str(writer.lsn)
            lsns[oid].append(writer.commit(relation(oid, ID), build.insert(oid, key)))
        writer.flush()
        made.run(parallelism=5)
    for oid in tables:
        name = made.name(f"public.t{oid}")
        expected = [(f"0/{lsn:X}", str(oid)) for lsn in lsns[oid]]
        assert table.records(name) == expected
        properties = dict(map(tuple, spark.sql(f"SHOW TBLPROPERTIES {name}").collect()))
        assert properties["pgwire_codec.commit_lsn"] == expected[-1][0]
        assert properties["pgwire_codec.table"] == f"public.t{oid}"


def test_a_table_of_another_source(spark: SparkSession, table: Table) -> None:
    """Some catalogs have the same name for public.Orders and public.orders."""
    from pgwire_codec.spark.sinks.iceberg import Iceberg

    table.merge(changes(spark, 10, 1))
    spark.sql(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES ('pgwire_codec.table' = 'public.Orders')"
    )
    Iceberg(spark, table.name, "pgwire_codec", "public.Orders")
    with pytest.raises(TableError, match=r"is the table of public\.Orders, not of public\.orders"):
        Iceberg(spark, table.name, "pgwire_codec", "public.orders")


def test_a_table_with_properties_of_its_own(spark: SparkSession, table: Table) -> None:
    """Partitions and merge-on-read, as its user has made it."""
    from pgwire_codec.spark import Merged

    spark.sql(f"CREATE NAMESPACE {table.catalog}.made")
    spark.sql(
        f"CREATE TABLE {table.name} (id int, v string) USING iceberg PARTITIONED BY (bucket(2, id))"
        " TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')"
    )
    table.merge(changes(spark, 10, *range(20)), ["id"])
    batch = changes(spark, 20, 3, op="D").union(changes(spark, 21, 30))
    assert table.merge(batch, ["id"]) == Merged(21, inserted=1, deleted=1)
    assert table.ids == [each for each in range(20) if each != 3] + [30]
    files = spark.sql(f"SELECT content, partition FROM {table.name}.files").collect()
    assert {row.content for row in files} == {0, 1}
    assert {row.partition.id_bucket for row in files} == {0, 1}


def test_types_that_iceberg_lacks(spark: SparkSession, table: Table) -> None:
    from pyspark.sql.types import DecimalType, IntegerType

    from pgwire_codec.spark.sinks.columns import WidenColumn
    from pgwire_codec.spark.sinks.merge import open_target

    batch = changes(spark, 10, 1).selectExpr(
        "CAST(id AS smallint) AS id", "CAST(1.5 AS decimal(10, 2)) AS v", "_op", "_commit_lsn",
        "_seq", "_unchanged", "CAST(NULL AS struct<id: smallint, v: decimal(10, 2)>) AS _before",
    )  # fmt: skip
    table.merge(batch)
    target = open_target(spark, "iceberg", table.name, "pgwire_codec", None)
    assert target.schema is not None
    assert [each.dataType for each in target.schema] == [IntegerType(), DecimalType(10, 2)]
    target.alter([WidenColumn("v", DecimalType(20, 2))])
    assert target.schema["v"].dataType == DecimalType(20, 2)
    with pytest.raises(TableError, match=r"Iceberg cannot widen column v to decimal\(22,4\)"):
        target.alter([WidenColumn("v", DecimalType(22, 4))])


def test_names_of_no_iceberg_table(spark: SparkSession, table: Table) -> None:
    from pgwire_codec.spark import merge_into, mirror

    batch = changes(spark, 10, 1)
    for name in ("absent.made.t", "t"):
        with pytest.raises(OptionError, match="Spark has no catalog"):
            merge_into(batch, name, None, engine="iceberg")
    with pytest.raises(OptionError, match="Spark has no catalog 'absent'"):
        mirror(spark, "log", "iceberg:absent", checkpoint="no")
    with pytest.raises(OptionError, match="engine 'delta-rs' does not write iceberg:absent"):
        mirror(spark, "log", "iceberg:absent", checkpoint="no", engine="delta-rs")
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.default.plain (id int) USING parquet")
    with pytest.raises(TableError, match="is not an Iceberg table"):
        merge_into(batch, "spark_catalog.default.plain", None, engine="iceberg")


def test_a_session_without_the_runtime(spark: SparkSession) -> None:
    from pgwire_codec.spark import merge_into, mirror

    if has(ICEBERG):
        pytest.skip("the session has it")
    with pytest.raises(OptionError, match=r"lacks Iceberg's Spark runtime — hint: .*4\.1"):
        merge_into(changes(spark, 10, 1), "lake.made.t", None, engine="iceberg")
    with pytest.raises(OptionError, match="lacks Iceberg's Spark runtime"):
        mirror(spark, "log", "iceberg:lake", checkpoint="no")
