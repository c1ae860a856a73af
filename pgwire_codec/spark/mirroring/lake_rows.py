"""Rows of a table of the lake at one of its versions, read by Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema, spark_schema
from pgwire_codec.spark.mirroring.lake import ICEBERG, Lake
from pgwire_codec.spark.sinks.iceberg_catalog import CatalogTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def target_rows(spark: SparkSession, lake: Lake, relation: Relation, version: int) -> DataFrame:
    """Return the rows of a version of a table; for Iceberg, of a snapshot."""
    path = lake.path(relation)
    if lake.engine == ICEBERG:
        return CatalogTable.parse(spark, path).rows_at(spark, version)
    if lake.engine == "delta-spark":
        return spark.read.format("delta").option("versionAsOf", version).load(path)
    return _delta_rs_rows(spark, path, version, dict(lake.storage_options))


@dataclass(frozen=True, slots=True)
class _DeltaRsReader:
    """Reads files of a Delta table with delta-rs. Spark's tasks have a copy each."""

    path: str
    version: int
    storage_options: dict[str, str]
    arrow: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files whose numbers the batches have."""
        fragments: list[Any] = []
        for batch in batches:
            if not fragments:
                dataset = _dataset(self.path, self.version, self.storage_options)
                fragments = sorted(dataset.get_fragments(), key=lambda each: each.path)
            for number in batch.column(0).to_pylist():
                for rows in fragments[number].to_batches(schema=dataset.schema):
                    yield cast_batch(rows.columns, self.arrow)


def _delta_rs_rows(
    spark: SparkSession, path: str, version: int, storage_options: dict[str, str]
) -> DataFrame:
    dataset = _dataset(path, version, storage_options)
    reader: Any = _DeltaRsReader(
        path, version, storage_options, spark_arrow_schema(dataset.schema)
    ).__call__
    files = len(list(dataset.get_fragments()))
    numbers = spark.range(0, files, 1, max(files, 1))
    return numbers.mapInArrow(reader, spark_schema(dataset.schema))


def _dataset(path: str, version: int, storage_options: dict[str, str]) -> Any:
    from deltalake import DeltaTable

    table = DeltaTable(path, version=version, storage_options=storage_options or None)
    return table.to_pyarrow_dataset()
