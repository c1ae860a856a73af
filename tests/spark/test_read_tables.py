"""read_tables and unpack_tables: many tables by one pass over a log, in batches and in a stream."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import build, corpus, spark_logs
from tests.support.build import column
from tests.support.spark_logs import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

ID = column("id", "int4", key=True)


@pytest.fixture(scope="module")
def api() -> Any:
    return pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")


def rows_of(df: DataFrame) -> list[Row]:
    return sorted(df.toArrow().to_pylist(maps_as_pydicts="strict"), key=spark_logs.place)


def texts_of(df: DataFrame) -> list[str]:
    """Return columns in order as texts, which have all dates and are equal for NaN."""
    rows = df.orderBy("_commit_lsn", "_seq").toArrow().combine_chunks()
    return [each.to_string(window=len(rows) + 1) for each in rows.columns]


def insert(oid: int, name: str, lsn: int, *columns: Any) -> list[bytes]:
    relation = build.relation(oid, ID, *columns, name=name)
    row = build.insert(oid, str(lsn), *["1"] * len(columns))
    return build.wire(build.transaction(relation, row, lsn=lsn))


def test_each_table_has_its_rows(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    """Read once: the log is not there any more when the tables are used."""
    options = {"unrepresentable": "null", "maxPartitionBytes": "20k"}
    path = spark_logs.to_log(
        corpus.capture("streams.pg18.v4-parallel-2pc"), tmp_path, part_bytes=10_000
    )
    alone = spark.read.format("pgoutput").options(path=path, **options)
    names = ["public.acct", "public.log"]
    expected = {name: alone.option("table", name).load() for name in names}
    schemas = {name: rows.schema for name, rows in expected.items()}
    rows = {name: rows_of(each) for name, each in expected.items()}
    with api.read_tables(spark, path, **options) as tables:
        assert set(names) <= set(tables)
        shutil.rmtree(path)
        for name in names:
            assert tables[name].schema == schemas[name]
            assert rows_of(tables[name]) == rows[name]
            assert tables.counts[name] == len(rows[name]) > 0


def test_values_of_many_types(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    """Each value goes from Python to Spark twice."""
    options = {"unrepresentable": "null", "before": "full"}
    path = spark_logs.to_log(corpus.capture("types.pg18.v1-binary"), tmp_path, part_bytes=10_000)
    alone = spark.read.format("pgoutput").options(path=path, **options)
    kinds = ("bool", "bytea", "date_array", "float8", "numeric_38_10", "text", "timestamptz_array")
    names = [f"public.t_{kind}" for kind in kinds]
    with api.read_tables(spark, path, names, **options) as tables:
        assert list(tables) == names
        for name, rows in tables.items():
            assert texts_of(rows) == texts_of(alone.option("table", name).load()), name


def test_tables_are_kept_until_they_are_not(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    path = spark_logs.write(tmp_path / "log", insert(1, "a", 10) + insert(2, "b", 20))
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    tables = api.read_tables(spark, path, ["public.b", "public.a"])
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before + 1
    assert list(tables) == ["public.a", "public.b"]
    assert (tables.counts, tables.relation_oids) == (
        {"public.a": 1, "public.b": 1},
        {"public.a": 1, "public.b": 2},
    )
    tables.unpersist()
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before
    with pytest.raises(ZeroDivisionError), api.read_tables(spark, path):
        raise ZeroDivisionError
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


def test_errors(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    bad = build.transaction(build.relation(2, ID, name="b"), build.insert(2, "x"), lsn=20)
    path = spark_logs.write(tmp_path / "log", insert(1, "a", 10) + build.wire(bad))
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    with pytest.raises(Exception, match=r"bad_value: .*column id .*public\.b, commit LSN 0/14"):
        api.read_tables(spark, path)
    with pytest.raises(Exception, match=r"no table 'public\.nope'"):
        api.read_tables(spark, path, "public.nope")
    with pytest.raises(ValueError, match=r"no column relation_oid.*the option tables\.$"):
        api.unpack_tables(spark.range(1))
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before
    with api.read_tables(spark, path, "public.a") as tables:
        assert [row["id"] for row in rows_of(tables["public.a"])] == [10]
    with api.read_tables(spark, path, onError="skip") as tables:
        assert tables.counts == {"public.a": 1, "public.b": 0}
        assert rows_of(tables["public.b"]) == []


def test_a_stream_of_tables(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    """Its micro-batches have tables that came or changed after the query began."""
    folder = tmp_path / "log"
    path = spark_logs.write(folder, insert(1, "a", 10) + insert(2, "b", 20))
    seen: list[dict[str, list[Row]]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        with api.unpack_tables(batch) as tables:
            seen.append({name: rows_of(rows) for name, rows in tables.items()})

    stream = spark.readStream.format("pgoutput").option("tables", "public.*").load(path)
    query = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        spark_logs.write(folder, insert(1, "a", 30, column("more")) + insert(3, "c", 40))
        query.processAllAvailable()
    finally:
        query.stop()
    ids = [{name: [row["id"] for row in rows] for name, rows in each.items()} for each in seen]
    assert ids == [{"public.a": [10], "public.b": [20]}, {"public.a": [30], "public.c": [40]}]
    assert seen[1]["public.a"][0]["more"] == "1"
