"""Fixtures of Spark's tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.support.lakehouse import iceberg_catalog, iceberg_table, usable_engine
from tests.support.mirrors import MirrorOf, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine:
    """merge_into with one of its engines, for targets that are named by their paths."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self.name = name
        self._spark = spark

    def __call__(self, changes: Any, target: str, *args: Any, **options: Any) -> Any:
        from pgwire_codec.spark import merge_into

        return merge_into(changes, self.target(target), *args, engine=self.name, **options)

    def target(self, path: str) -> str:
        """Target at a path: in a catalog of its folder for Iceberg."""
        if self.name != "iceberg":
            return path
        catalog = iceberg_catalog(self._spark, Path(path).parent)
        return f"{catalog}.made.`{Path(path).name}`"

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Rows of a target."""
        return self.table(path).to_pylist()

    def table(self, path: str) -> pa.Table:
        """Rows of a target, also of one whose names delta-rs does not read."""
        import deltalake

        if self.name == "iceberg":
            return iceberg_table(self._spark, self.target(path))
        if self.name == "delta-spark":
            return self._spark.read.format("delta").load(path).toArrow()
        return pa.table(deltalake.DeltaTable(path).to_pyarrow_table())

    def version(self, path: str) -> int | None:
        """Newest version of a target; None if it does not exist."""
        version: int | None = self._opened(path).version
        return version

    def applied(self, path: str) -> tuple[int | None, int | None]:
        """Commit LSN and relation that a target's commits record."""
        applied = self._opened(path).applied
        return applied.commit_lsn, applied.relation

    def operations(self, path: str) -> list[str]:
        """Operations of the commits with rows, oldest first: append or merge."""
        import deltalake

        if self.name == "iceberg":
            snapshots = f"{self.target(path)}.snapshots"
            found = self._spark.sql(f"SELECT summary FROM {snapshots} ORDER BY committed_at")
            # The operation of a MERGE INTO that rewrites no file is append, too.
            return ["merge" if "merge-into" in str(row[0]) else "append" for row in found.collect()]
        history = deltalake.DeltaTable(path).history()
        names = {"WRITE": "append", "MERGE": "merge"}
        found = [names.get(each["operation"]) for each in reversed(history)]
        return [each for each in found if each is not None]

    def _opened(self, path: str) -> Any:
        from pgwire_codec.spark.sinks.merge import open_target

        return open_target(self._spark, self.name, self.target(path), "pgwire_codec", None)


@pytest.fixture(params=["delta-rs", "delta-spark", "iceberg"])
def engine(request: pytest.FixtureRequest) -> str:
    """Name of each engine that merges."""
    return usable_engine(request.param)


@pytest.fixture
def merge_into(engine: str, spark: SparkSession) -> Engine:
    """merge_into with each engine."""
    return Engine(engine, spark)


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path, engine: str) -> MirrorOf:
    """A mirror of the log that the writer writes."""
    return MirrorOf(spark, tmp_path, engine)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Writer of a log."""
    return Writer(tmp_path)
