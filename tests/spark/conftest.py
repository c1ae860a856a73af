"""Fixtures of Spark's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lakehouse import delta_settings

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
def merge_into(request: pytest.FixtureRequest, spark: SparkSession) -> Engine:
    """merge_into with each engine; delta-rs reads the targets of both."""
    pytest.importorskip("deltalake")
    if request.param == "delta-spark" and not delta_settings():
        pytest.skip("needs Delta's jars, which Maven fetches for Spark 4.1 and 4.2")
    return Engine(request.param, spark)
