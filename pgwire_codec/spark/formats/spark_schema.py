"""Conversion of Arrow schemas and record batches to the form that Spark uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # Explicit, because the default of older releases differs: a timestamp without a time zone is
    # a timestamp_ntz.
    found: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return found


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema in the exact form that Spark has in Arrow: names of list elements."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(schema), timezone="UTC")


def cast_batch(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of arrays whose types differ from the schema in element names only."""
    fitting = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitting, schema=schema)
