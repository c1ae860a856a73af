"""Dead letters on Spark: the messages that onError=skip leaves out, from tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def rows_of(path: str, table: str, **options: str) -> list[int]:
    """IDs of the rows of a table."""
    source = PgoutputDataSource(CaseInsensitiveDict({"path": path, "table": table} | options))
    reader = source.reader(source.schema())
    parts = [batch for each in reader.partitions() for batch in reader.read(each)]
    return sorted(value for batch in parts for value in batch.column("id").to_pylist())


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_damaged_message_is_an_error_of_its_table_only(part_bytes: int, tmp_path: Path) -> None:
    path = written(tmp_path, part_bytes=part_bytes)
    assert rows_of(path, "public.t1", startingLsn="20") == [3, 4]
    with pytest.raises(
        DecodeError, match=r"^truncated: byte .*, ordinal 11\): Insert.new\[1\]: 1 bytes"
    ):
        rows_of(path, "public.t2", startingLsn="20")
    assert rows_of(path, "public.t2", startingLsn="20", onError="skip") == [4]


def test_a_damaged_message_of_no_table_is_an_error_of_all(tmp_path: Path) -> None:
    path = written(tmp_path, *build.transaction(b"?", lsn=50))
    for table in ("public.t1", "public.t2"):
        with pytest.raises(DecodeError, match="unknown_tag: "):
            rows_of(path, table, startingLsn="40")
        assert rows_of(path, table, startingLsn="40", onError="skip") == []


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
    with pytest.raises(OptionError, match="has no option columns, onError — hint: Its options are"):
        ordinals(onError="raise", columns="id")
