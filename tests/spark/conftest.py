"""Fixtures of Spark's tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lakehouse import delta_settings
from tests.support.mirrors import MirrorOf, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine:
    """merge_into with one of its engines."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self.name = name
        self._spark = spark

    def __call__(self, *args: Any, **options: Any) -> Any:
        from pgwire_codec.spark import merge_into

        return merge_into(*args, engine=self.name, **options)

    def rows(self, target: str) -> list[dict[str, Any]]:
        """Rows of a target, also of one whose names delta-rs does not read."""
        import deltalake

        if self.name == "delta-spark":
            return self._spark.read.format("delta").load(target).toArrow().to_pylist()
        return deltalake.DeltaTable(target).to_pyarrow_table().to_pylist()


@pytest.fixture(params=["delta-rs", "delta-spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """Name of each engine."""
    pytest.importorskip("deltalake")
    if request.param == "delta-spark" and not delta_settings():
        pytest.skip("needs Delta's jars, which Maven fetches for Spark 4.1 and 4.2")
    name: str = request.param
    return name


@pytest.fixture
def merge_into(engine: str, spark: SparkSession) -> Engine:
    """merge_into with each engine; delta-rs reads the targets of both."""
    return Engine(engine, spark)


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path, engine: str) -> MirrorOf:
    """A mirror of the log that the writer writes."""
    return MirrorOf(spark, tmp_path, engine)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Writer of a log."""
    return Writer(tmp_path)
