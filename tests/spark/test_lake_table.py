"""Tables of a mirror's own: every engine reads, adds, replaces and deletes the same rows."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pgwire_codec.spark.mirroring import lake_table as tables
from pgwire_codec.spark.mirroring.lake_table import LakeTable, lake_table
from pgwire_codec.spark.mirroring.status import RESUMING, KnownStatus, StatusTable, TableStatus
from tests.support.lakehouse import iceberg_catalog, usable_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(params=["delta-rs", "delta-spark", "iceberg", "parquet"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LakeTable:
    engine = usable_engine(request.param)
    path = str(tmp_path / "table")
    if engine == "iceberg":
        path = f"{iceberg_catalog(spark, tmp_path)}.made.`table`"
    return lake_table(spark, path, engine, {})


def test_a_table(table: LakeTable, spark: SparkSession) -> None:
    def numbers(*filters: tuple[str, str, int]) -> list[int]:
        found = table.read(["n"], filters)
        assert found is not None
        return sorted(found.column("n").to_pylist())

    def rows(*pairs: tuple[int, int | None]) -> pa.Table:
        columns = {"n": [n for n, _ in pairs], "of": [of for _, of in pairs]}
        return pa.table(columns, pa.schema({"n": pa.int64(), "of": pa.int64()}))

    assert table.read(["n"]) is None
    table.append(spark.createDataFrame(rows((1, 1), (2, None), (3, 1))))
    table.append(spark.createDataFrame(rows((4, 2), (5, 2))))
    assert numbers() == [1, 2, 3, 4, 5]
    assert numbers(("n", ">=", 3)) == [3, 4, 5]
    assert numbers(("n", ">=", 2), ("n", "<=", 4)) == [2, 3, 4]
    assert numbers(("of", "=", 1)) == [1, 3]
    assert numbers(("of", "=", 1), ("n", ">=", 2)) == [3]
    assert numbers(("of", "=", 9)) == []
    table.delete([("of", "=", 1), ("n", "<", 3)])
    assert numbers() == [2, 3, 4, 5]
    table.replace([("of", "=", 2)], "n", spark.createDataFrame(rows((5, 2), (8, 2), (9, 2))))
    assert numbers() == [2, 3, 5, 8, 9]
    table.replace([("of", "=", 1)], "n", spark.createDataFrame(rows((6, 1))))
    assert numbers() == [2, 5, 6, 8, 9]
    table.replace([("of", "=", 2)], "n", spark.createDataFrame(rows((8, 2))).where("of = 3"))
    assert numbers() == [2, 6]
    table.overwrite(rows((7, 7)))
    assert numbers(("n", ">=", 1)) == [7]


def test_a_status_that_is_known_is_not_read_again(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless another process has written it since; Parquet files have no version."""
    reads = []
    read = type(table).read

    def counting(self: LakeTable, *arguments: Any) -> pa.Table | None:
        reads.append(self)
        return read(self, *arguments)

    monkeypatch.setattr(type(table), "read", counting)
    known = KnownStatus()
    mine, other = StatusTable(table, known), StatusTable(table)
    assert mine.read() == {}
    time = datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc)
    rows = {name: TableStatus(name, 7, commit_time=time, masks=("a=drop",)) for name in ("a", "b")}
    mine.write(rows.values())
    mine.read()  # the first commit has no number to be compared with
    for batch in range(4):
        rows["a"] = replace(rows["a"], batch=batch, commit_lsn=batch << 40, evolutions=("add x",))
        reads.clear()
        assert mine.read() | rows == StatusTable(table, known).read() | rows
        mine.write(rows.values())
        assert mine.read() == rows
        has_versions = table.version() is not None
        assert bool(reads) != has_versions
        assert other.read() == rows
    rows["b"] = rows["b"].set_aside(ValueError("made"))
    other.write(rows.values())
    assert mine.read() == rows
    other.read()
    rows["a"] = replace(rows["a"], batch=9)
    other.write(rows.values())
    rows["b"] = replace(rows["b"], batch=9)
    mine.read()
    mine.write(rows.values())
    assert other.read() == rows == mine.read()


@pytest.mark.parametrize("count", [1, 2])
def test_a_request_at_the_same_time_is_not_lost(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Other processes write between the read and the write: Iceberg refuses that write."""
    names = ("a", "b", "c")
    rows = {name: TableStatus(name, 7) for name in names}
    first = StatusTable(table)
    first.read()
    first.write(rows.values())
    status = StatusTable(table)
    assert status.read() == rows
    has_versions = table.version() is not None
    overwrite = type(table).overwrite
    waiting = [replace(rows[name], state=RESUMING) for name in names[:count]]

    def late(self: LakeTable, written: pa.Table) -> None:
        requests = waiting.copy()
        waiting.clear()
        for requested in requests:
            other = StatusTable(copy(self))
            other.write((other.read() | {requested.table: requested}).values())
        overwrite(self, written)

    monkeypatch.setattr(type(table), "overwrite", late)
    mine = rows | {"c": replace(rows["c"], batch=5)}
    if "Iceberg" in type(table).__name__:
        with pytest.raises(Exception, match="Found conflicting"):
            status.write(mine.values())
        others = status.read()
    else:
        others = status.write(mine.values())
    if not has_versions:
        assert others is None  # known
        return
    assert others is not None
    assert [name for name in names if others[name].state == RESUMING] == [*names[:count]]
    mine |= {name: replace(mine[name], state=RESUMING) for name in names[:count]}
    assert status.write(mine.values()) is None
    assert StatusTable(table).read() == mine == status.read()


def test_former_versions_are_removed(
    table: LakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those older than a day: here than no time, and each third time."""
    monkeypatch.setattr(tables, "_KEPT_HOURS", 0)
    for n in range(20):
        table.overwrite(pa.table({"n": [n]}))
        if n % 3 == 0:
            table.tidy()
        found = table.read(["n"])
        assert found is not None
        assert found.column("n").to_pylist() == [n]
    assert len(list(tmp_path.rglob("*.parquet"))) < 8
