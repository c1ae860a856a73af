"""Dead letters on Spark: the messages that onError=skip leaves out, from tasks and packed rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import DecodeError, OptionError, TableError
from pgwire_codec.log.dead_letters import DEAD_LETTERS
from tests.support import build, spark_logs
from tests.support.bad_logs import damaged, serial
from tests.support.build import column
from tests.support.corpus import capture
from tests.support.mirrors import ID

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pyspark.sql.datasource import CaseInsensitiveDict

from pgwire_codec.spark import PgoutputDataSource
from pgwire_codec.spark.formats.packed import LETTERS, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPTURE = damaged(capture("immediate.pg18.v4-parallel-2pc"))

T1, T2 = (build.relation(oid, ID, column("v", "int4"), name=f"t{oid}") for oid in (1, 2))
CUT = pgc.encode_message(build.insert(2, "3", "0"))[:-1]

#: Bad values in both tables, and damaged messages of the second one.
MIXED = [
    *build.transaction(T1, T2, build.insert(1, "1", "0"), build.insert(2, "1", "0"), lsn=10),
    *build.transaction(build.insert(1, "2", "x"), build.insert(2, "2", "x"), lsn=20),
    *build.transaction(CUT, build.insert(1, "3", "0"), lsn=30),
    *build.transaction(build.insert(1, "4", "0"), build.insert(2, "4", "0"), lsn=40),
]  # fmt: skip


def written(folder: Path, *more: Any, **options: Any) -> str:
    return spark_logs.write(folder / "log", build.wire([*MIXED, *more]), **options)


def packed(path: str, **options: str) -> list[dict[str, Any]]:
    """The packed rows of a log, as tasks read them."""
    source = PgoutputDataSource(CaseInsensitiveDict({"path": path, "tables": "*"} | options))
    reader = source.reader(source.schema())
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def rows_of(path: str, table: str, **options: str) -> list[int]:
    """IDs of the rows of a table."""
    source = PgoutputDataSource(CaseInsensitiveDict({"path": path, "table": table} | options))
    reader = source.reader(source.schema())
    parts = [batch for each in reader.partitions() for batch in reader.read(each)]
    return sorted(value for batch in parts for value in batch.column("id").to_pylist())


def letters_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """OID and ordinal of the packed letters."""
    found = []
    for row in rows:
        if row["relation"] == LETTERS:
            schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
            batch = pa.RecordBatch.from_pydict({"data": pa.array([row["data"]], pa.binary())})
            for records in unpack([batch], schema):
                assert len(records) == row["rows"]
                found += [(row["relation_oid"], each) for each in records.column(0).to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_packed_rows_collect_letters(part_bytes: int, tmp_path: Path) -> None:
    path = written(tmp_path, part_bytes=part_bytes)
    rows = packed(path, onError="collect", maxPartitionBytes="1")
    assert letters_of(rows) == [(1, 7), (2, 8), (2, 11)]
    # A table has a row in each partition with letters of it, also without other changes there.
    named = {(row["relation"], row["relation_oid"]) for row in rows if row["relation"] != LETTERS}
    assert named == {("public.t1", 1), ("public.t2", 2)}
    assert not letters_of(packed(path, onError="skip"))
    counts = {1: 0, 2: 0}
    for row in rows:
        if row["relation"] != LETTERS:
            counts[row["relation_oid"]] += row["rows"]
    assert counts == {1: 3, 2: 2}


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_damaged_message_is_an_error_of_its_table_only(part_bytes: int, tmp_path: Path) -> None:
    path = written(tmp_path, part_bytes=part_bytes)
    options = {"onError": "table", "unrepresentable": "raise", "startingLsn": "20"}
    errors = {row["relation"]: row["error"] for row in packed(path, **options) if row["error"]}
    assert list(errors) == ["public.t2"]
    assert errors["public.t2"].startswith("truncated: byte ")
    assert "ordinal 11): Insert.new[1]: 1 bytes" in errors["public.t2"]
    assert rows_of(path, "public.t1", startingLsn="20") == [3, 4]
    with pytest.raises(DecodeError, match=r"truncated: .*, ordinal 11\)"):
        rows_of(path, "public.t2", startingLsn="20")
    assert rows_of(path, "public.t2", startingLsn="20", onError="skip") == [4]


def test_a_damaged_message_of_no_table_is_an_error_of_all(tmp_path: Path) -> None:
    path = written(tmp_path, *build.transaction(b"?", lsn=50))
    for table in ("public.t1", "public.t2"):
        with pytest.raises(DecodeError, match="unknown_tag: "):
            rows_of(path, table, startingLsn="40")
    with pytest.raises(DecodeError, match="unknown_tag: "):
        packed(path, onError="table", startingLsn="40")
    assert letters_of(packed(path, onError="collect", startingLsn="40")) == [(0, 19)]


def test_collect_needs_tables() -> None:
    with pytest.raises(OptionError, match="onError=collect needs the option tables"):
        rows_of("log", "public.t", onError="collect")


@pytest.mark.slow
def test_tasks_read_the_letters(spark: SparkSession, tmp_path: Path) -> None:
    from pgwire_codec.spark import read_dead_letters

    path = spark_logs.to_log(CAPTURE, tmp_path, part_bytes=500)
    expected = [row for each in log.dead_letters(path) for row in each.to_pylist()]
    assert [row["ordinal"] for row in expected] == sorted(serial(CAPTURE)[1])
    for size in ("1", "32m"):
        found = read_dead_letters(spark, path, maxPartitionBytes=size)
        assert found.columns == DEAD_LETTERS.names
        assert sorted(found.toArrow().to_pylist(), key=lambda row: row["ordinal"]) == sorted(
            expected, key=lambda row: row["ordinal"]
        )


@pytest.mark.slow
def test_letters_of_some_tables_and_a_range(spark: SparkSession, tmp_path: Path) -> None:
    from pgwire_codec.spark import read_dead_letters

    path = written(tmp_path, *build.transaction(b"?", lsn=50))

    def ordinals(*arguments: Any, **options: str) -> list[int]:
        rows = read_dead_letters(spark, path, *arguments, **options).collect()
        return sorted(row.ordinal for row in rows)

    assert ordinals() == [7, 8, 11, 19]
    assert ordinals("public.t2") == [8, 11]
    assert ordinals(["public.t1", "public.t2"], startingLsn="20") == [11]
    assert ordinals(startingLsn="0/1E", endingLsn="0/28") == []
    assert ordinals(types="text") == [11, 19]
    with pytest.raises(TableError):
        ordinals("public.none")
    with pytest.raises(OptionError, match="sets the option onError itself"):
        ordinals(onError="raise")


@pytest.mark.slow
def test_one_pass_has_rows_and_letters(spark: SparkSession, tmp_path: Path) -> None:
    from pgwire_codec.spark import read_tables

    path = written(tmp_path, *build.transaction(b"?", lsn=50), part_bytes=1)
    with read_tables(spark, path, onError="collect") as tables:
        assert tables.counts == {"public.t1": 3, "public.t2": 2}
        assert sorted(row.id for row in tables["public.t2"].collect()) == [1, 4]
        letters = {oid: each.collect() for oid, each in tables.dead_letters.items()}
        found = {oid: sorted(row.ordinal for row in rows) for oid, rows in letters.items()}
        assert found == {0: [19], 1: [7], 2: [8, 11]}
        assert {row.table for row in letters[2]} == {"public.t2"}
