"""Fixtures of Spark's tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.support.lakehouse import delta_rows, iceberg_catalog, iceberg_table, usable_engine
from tests.support.mirrors import MirrorOf, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine:
    """merge_into for targets of a format, which are named by their paths."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self.name = name
        self._spark = spark

    def __call__(self, changes: Any, target: str, *args: Any, **options: Any) -> Any:
        from pgwire_codec.spark import merge_into

        return merge_into(changes, self.target(target), *args, **options)

    def target(self, path: str) -> str:
        """Target at a path: in a catalog of its folder for Iceberg."""
        return f"iceberg:{self._table(path)}" if self.name == "iceberg" else path

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Rows of a target."""
        return self.table(path).to_pylist()

    def table(self, path: str) -> pa.Table:
        """Rows of a target, as another program reads them."""
        if self.name == "iceberg":
            return iceberg_table(self._spark, self._table(path))
        return delta_rows(path)

    def version(self, path: str) -> int | None:
        """Newest version of a target; None if it does not exist."""
        version: int | None = self._opened(path).version
        return version

    def applied(self, path: str) -> tuple[int | None, int | None]:
        """Commit LSN and relation that a target's commits record."""
        position = self._opened(path).position
        return position.commit_lsn, position.relation

    def _table(self, path: str) -> str:
        catalog = iceberg_catalog(self._spark, Path(path).parent)
        return f"{catalog}.made.`{Path(path).name}`"

    def _opened(self, path: str) -> Any:
        from pgwire_codec.lake.tables.delta import DeltaTarget
        from pgwire_codec.lake.tables.iceberg import IcebergTarget

        if self.name == "iceberg":
            return IcebergTarget(self._spark, self._table(path), "pgwire_codec")
        return DeltaTarget(path, "pgwire_codec")


@pytest.fixture(params=["delta", "iceberg"])
def engine(request: pytest.FixtureRequest) -> str:
    """Name of each format."""
    return usable_engine(request.param)


@pytest.fixture
def merge_into(engine: str, spark: SparkSession) -> Engine:
    """merge_into for each format."""
    return Engine(engine, spark)


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path, engine: str) -> MirrorOf:
    """A mirror of the log that the writer writes."""
    return MirrorOf(spark, tmp_path, engine)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Writer of a log."""
    return Writer(tmp_path)
