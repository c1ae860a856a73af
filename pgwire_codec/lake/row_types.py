"""Arrow types of the rows of lakehouse tables, which are those of Spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pgwire_codec.changes.table_schema import cast_array
from pgwire_codec.types import NATIVE, ArrowTypes

#: Without unsigned integers, time, interval, views, and decimals of more than 38 digits: Spark,
#: Delta and Iceberg have no types for them.
ROW_TYPES: Final = ArrowTypes(
    "Spark",
    NATIVE.formats
    | {
        "uint4": "l",
        "uint8": "l",
        "pg_lsn": "l",
        "uuid": "u",
        "time": "u",
        "interval": "u",
        "unknown": "u",
    },
    has_string_views=False,
    decimal_digits=38,
)

_SQL: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}

_ELEMENT: Final = "element"  # name of a list's elements, as in Parquet and Spark


def sql_name(kind: pa.DataType) -> str:
    """Return the name of a type in Spark's SQL."""
    if kind in _SQL:
        return _SQL[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        members = ",".join(f"{member.name}:{sql_name(member.type)}" for member in kind)
        return f"struct<{members}>"
    return str(kind)


def row_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose lists have elements named as in Parquet."""
    return pa.schema([pa.field(each.name, row_type(each.type)) for each in schema])


def row_type(kind: pa.DataType) -> pa.DataType:
    """Return a type whose lists have elements named as in Parquet."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field(_ELEMENT, row_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, row_type(member.type)) for member in kind])
    return kind


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types of a schema with the same columns, in its order."""
    columns = [cast_array(batch.column(column.name), column.type) for column in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
