"""read_tables and unpack_tables: many tables by one pass over a log, in batches and in a stream."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
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


def test_staged_tables(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    """Larger runs are in files, small ones are packed, and a table has rows of both."""
    text = "x" * 4000
    large = [build.insert(1, str(number), text) for number in range(400)]
    big = build.relation(1, ID, column("note"), name="big")
    first = build.transaction(big, *large, build.relation(2, ID, name="few"), build.insert(2, "1"))
    path = spark_logs.write(tmp_path / "log", build.wire(first))
    second = build.transaction(big, build.insert(1, "400", text), lsn=9000)
    path = spark_logs.write(tmp_path / "log", build.wire(second))
    alone = spark.read.format("pgoutput").option("path", path).option("table", "public.big").load()
    folder = tmp_path / "staged"
    with api.read_tables(spark, path, stagingPath=str(folder)) as tables:
        assert len(list(folder.glob("*/*/*.parquet"))) == 1
        assert (tables.counts, len(tables)) == ({"public.big": 401, "public.few": 1}, 2)
        assert tables["public.big"].schema == alone.schema
        assert rows_of(tables["public.big"]) == rows_of(alone)
        assert [row["id"] for row in rows_of(tables["public.few"])] == [1]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("capture", ["types.pg18.v1-binary", "dml.pg18.v1-text"])
def test_spark_reads_staged_files_of_all_types(
    spark: SparkSession, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capture: str
) -> None:
    packed = importlib.import_module("pgwire_codec.spark.formats.packed")
    monkeypatch.setattr(packed, "_MIN_FILE_BYTES", 0)
    path = spark_logs.to_log(corpus.capture(capture), tmp_path, part_bytes=10_000)
    options = {"path": path, "unrepresentable": "null", "before": "full", "tables": "*"}
    made = api.PgoutputDataSource(options | {"stagingPath": str(tmp_path / "staged")})
    reader = made.reader(made.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    with (
        api.unpack_tables(spark.createDataFrame(pa.Table.from_batches(batches))) as found,
        api.unpack_tables(spark.read.format("pgoutput").options(**options).load()) as expected,
    ):
        assert set(found) == set(expected)
        for name, rows in found.items():
            assert rows.schema == expected[name].schema
            assert texts_of(rows) == texts_of(expected[name]), name


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
