"""Rows of a table's data files, read by Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def file_rows(spark: SparkSession, files: TableFiles, schema: pa.Schema) -> DataFrame:
    """Return the rows of a table that are not deleted; a task reads a file."""
    form = spark_arrow_schema(schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in files.batches(files.files[number], schema):
                    yield cast_batch(rows.columns, form)

    count = len(files.files)
    numbers = spark.range(0, count, 1, max(count, 1))
    reader: Any = read
    return numbers.mapInArrow(reader, spark_schema(schema))
