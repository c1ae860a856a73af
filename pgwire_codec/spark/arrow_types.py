"""Arrow types that Spark takes from a Python worker, and its schemas of them."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.table_schema import cast_array

if TYPE_CHECKING:
    import pyarrow as pa
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
    return arrow_schema(spark_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2 there is no such option, and the time zone is UTC.
    takes_timezone = "timezone" in signature(to_arrow_schema).parameters
    options: dict[str, Any] = {"timezone": "UTC"} if takes_timezone else {}
    return to_arrow_schema(schema, **options)


def cast_batch(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of arrays whose types differ from the schema in element names only."""
    import pyarrow as pa

    fitting = [cast_array(each, field.type) for each, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(fitting, schema=schema)
