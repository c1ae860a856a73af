"""Histories in Parquet files: each change once, whatever fails, and read by other programs."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from pgwire_codec.errors import OptionError
from tests.support import build
from tests.support.build import column
from tests.support.key_types import FEW, texts
from tests.support.mirrors import ID, MirrorOf, Writer, relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = relation(1, ID, column("name"))


@pytest.fixture
def made(tmp_path: Path) -> MirrorOf:
    """A mirror with Parquet files as its target, of the log that the writer writes."""
    return MirrorOf(None, tmp_path, "local parquet")


def names(made: MirrorOf, table: str = "t1") -> list[Any]:
    """Values of the column name as another program reads them, without duplicates left out."""
    files = ds.dataset(made.lake / "public" / table, format="parquet", partitioning="hive")
    return sorted(files.to_table(columns=["name"]).column("name").to_pylist())


class TestReaders:
    def test_a_partition_has_the_commits_of_a_day(self, made: MirrorOf, writer: Writer) -> None:
        writer.commit(TABLE, build.insert(1, "1", "a"))
        writer.flush()
        made.run()
        folder = made.lake / "public" / "t1"
        table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
        [row] = table.to_pylist()
        day = row["_commit_time"].date()
        assert row["commit_date"] == day.isoformat()
        [file] = folder.glob("*/*.parquet")
        assert file.parent.name == f"commit_date={day}"

    @pytest.mark.slow
    def test_spark_reads_the_dates(
        self, spark: SparkSession, made: MirrorOf, writer: Writer
    ) -> None:
        writer.commit(TABLE, build.insert(1, "1", "a"))
        writer.flush()
        made.run()
        rows = spark.read.parquet(str(made.lake / "public" / "t1"))
        assert [type(row["commit_date"]) for row in rows.collect()] == [date]

    def test_times_far_from_now(self, made: MirrorOf, writer: Writer) -> None:
        """Programs read INT96, which Spark writes by default, as nanoseconds in 64 bits."""
        times = column("t", "timestamptz"), column("u", "timestamp"), column("d", "date")
        values = ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "0001-01-01"]
        writer.commit(relation(1, ID, *times), build.insert(1, "1", f"{values[0]}+00", *values[1:]))
        writer.flush()
        made.run()
        files = ds.dataset(made.lake / "public" / "t1", format="parquet", partitioning="hive")
        [row] = files.to_table(columns=["t", "u", "d"]).to_pylist()
        assert row["t"].replace(tzinfo=None) == datetime.fromisoformat(values[0])
        assert (row["u"], row["d"]) == (datetime.fromisoformat(values[1]), date(1, 1, 1))

    def test_rows_are_found_by_filters(self, made: MirrorOf, writer: Writer) -> None:
        """Also values that differ in the last digit, and those beside NaN."""
        pl = pytest.importorskip("polars")
        from tests.support.table_readers import polars_literal

        columns = {
            "n": (column("n", "numeric", typmod=(20 << 16) + 4), FEW[0]),
            "m": (column("m", "numeric", typmod=(38 << 16) + 19 + 4), FEW[2]),
            "f": (column("f", "float8"), FEW[3]),
            "t": (column("t", "timestamptz"), FEW[4]),
        }
        writer.commit(relation(1, ID, *(each for each, _ in columns.values())))
        for number in range(12):
            values = [kind.values[number % len(kind.values)] for _, kind in columns.values()]
            writer.commit(build.insert(1, str(number), *values))
            if number % 4 == 3:
                writer.flush()
                made.run()
        path = made.lake / "public" / "t1"
        assert len(list(path.rglob("*.parquet"))) >= 3
        files = ds.dataset(path, format="parquet", partitioning="hive")
        rows = files.to_table(columns=list(columns))
        values = pl.from_arrow(rows)
        for name in columns:
            for value in rows[name]:
                literal = pl.lit(*polars_literal(value))
                for compare in ("eq", "le", "ge"):
                    condition = getattr(pl.col(name), compare)(literal)
                    found = pl.scan_parquet(path / "*" / "*.parquet").filter(condition).collect()
                    assert len(found) == len(values.filter(condition))
                if texts(pa.array([value])) != ["nan"]:
                    count = files.count_rows(filter=ds.field(name) == value)
                    assert count == texts(rows[name]).count(texts(pa.array([value]))[0])


class TestColumns:
    def test_a_new_column(self, made: MirrorOf, writer: Writer) -> None:
        writer.commit(TABLE, build.insert(1, "1", "a"))
        writer.flush()
        made.run()
        writer.commit(
            relation(1, ID, column("name"), column("more")), build.insert(1, "2", "b", "x")
        )
        writer.flush()
        made.run()
        writer.commit(relation(1, ID, column("more")), build.insert(1, "3", "y"))
        writer.flush()
        made.run()
        rows = sorted(made.rows("public.t1"), key=lambda row: row["id"])
        assert [(row["name"], row["more"]) for row in rows] == [
            ("a", None),
            ("b", "x"),
            (None, "y"),
        ]
        assert made.status()["public.t1"]["evolutions"] == [
            "add column more string", "drop column name, which is kept",
        ]  # fmt: skip

    def test_a_wider_type_sets_the_table_aside(self, made: MirrorOf, writer: Writer) -> None:
        writer.commit(TABLE, build.insert(1, "1", "a"))
        writer.flush()
        made.run()
        wider = build.column("id", "int8", key=True)
        writer.commit(relation(1, wider, column("name")), build.insert(1, "2", "b"))
        writer.flush()
        made.run()
        status = made.status()["public.t1"]
        assert (status["state"], status["error"]) == (
            "set aside", "Parquet files cannot widen column id to bigint",
        )  # fmt: skip
        assert names(made) == ["a"]

    def test_a_column_with_the_name_of_the_partitions(self, made: MirrorOf, writer: Writer) -> None:
        writer.commit(relation(1, ID, column("Commit_Date")), build.insert(1, "1", "a"))
        writer.flush()
        made.run()
        status = made.status()["public.t1"]
        assert status["state"] == "set aside"
        assert status["error"].startswith("the table has a column commit_date, as the partitions")


def test_dead_letters(made: MirrorOf, writer: Writer) -> None:
    writer.commit(TABLE, build.insert(1, "1", "a"), build.insert(1, "not a number", "b"))
    writer.flush()
    made.run(dead_letters=True)
    assert made.status()["public.t1"]["error"] is None
    writer.commit(build.insert(1, "nor this", "c"), build.insert(1, "2", "d"))
    writer.flush()
    made.run(dead_letters=True)
    assert names(made) == ["a", "d"]
    assert made.status()["public.t1"]["dead_letters"] == 2
    letters = made.rows("_dead_letters")
    assert sorted(row["commit_lsn"] for row in letters) == [10, 20]


def test_options(made: MirrorOf, writer: Writer) -> None:
    writer.commit(TABLE, build.insert(1, "1", "a"))
    writer.flush()
    with pytest.raises(OptionError, match="a history excludes soft deletes"):
        made.run(soft_deletes=True)


def test_commits_are_json(made: MirrorOf, writer: Writer) -> None:
    writer.commit(TABLE, build.insert(1, "1", "a"))
    writer.flush()
    made.run()
    [commit] = (made.lake / "public" / "t1" / "_pgwire_codec").glob("*.json")
    found = json.loads(commit.read_text())
    assert (found["commit_lsn"], found["relation_oid"]) == (writer.lsn, 1)
