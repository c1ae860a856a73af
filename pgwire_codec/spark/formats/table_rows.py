"""Conversion of batches of changes to record batches of exactly a table's schema on Spark."""

from __future__ import annotations

import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.metadata import RELATION_OID, free_name
from pgwire_codec.spark.formats.table_schema import TableSchema


def to_record_batch(batch: ChangeBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return a batch of any version of the table, or of another table, in the table's schema.

    A column that the version lacks is null. A column that the schema lacks is not decoded.
    """
    ours = {column.name for column in batch.relation.columns}
    metadata = {name: key for key, name in schema.metadata.items()}
    wanted = [
        field.name for field in schema.arrow if field.name in ours and field.name not in metadata
    ]
    native = batch.to_arrow([name for name in wanted if name not in schema.as_text])
    text = native
    if schema.as_text:
        as_text = batch.with_types("text")
        text = as_text.to_arrow([name for name in wanted if name in schema.as_text])
    arrays = []
    for field in schema.arrow:
        if metadata.get(field.name) == RELATION_OID:
            arrays.append(pa.repeat(pa.scalar(batch.relation.oid, field.type), len(batch)))
            continue
        if field.name in metadata:
            # Names in the batch depend on the columns of its own version of the table.
            name = free_name(metadata[field.name], ours)
            is_present = name in native.schema.names
        else:
            name = field.name
            is_present = name in ours
        if not is_present:
            arrays.append(pa.nulls(len(batch), field.type))
        elif pa.types.is_struct(field.type):
            arrays.append(_before(native.column(name), text.column(name), field.type, schema))
        else:
            chosen = text if name in schema.as_text else native
            arrays.append(_cast(chosen.column(name), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _before(
    native: pa.StructArray, text: pa.StructArray, wanted: pa.StructType, schema: TableSchema
) -> pa.StructArray:
    """Return ``_before`` with the fields of the table's schema."""
    children = []
    for field in wanted:
        source = text if field.name in schema.as_text else native
        number = source.type.get_field_index(field.name)
        child = pa.nulls(len(native), field.type) if number < 0 else source.field(number)
        children.append(_cast(child, field.type))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=native.is_null())


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
