"""Rows in the envelope of Debezium's PostgreSQL connector."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.table_schema import CommitColumns, TableSchema
from pgwire_codec.spark.arrow_types import cast_batch
from pgwire_codec.spark.formats.native import NativeRows, row_fields

_SOURCE: Final = pa.struct(
    [
        ("connector", pa.string()),
        ("ts_ms", pa.int64()),
        ("snapshot", pa.string()),
        ("db", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("txId", pa.int64()),
        ("lsn", pa.int64()),
        ("commit_lsn", pa.int64()),
        ("seq", pa.int64()),
        ("origin", pa.string()),
        ("unchanged", pa.list_(pa.string())),
    ]
)


class DebeziumRows(NativeRows):
    """``before``, ``after``, ``op``, ``source`` and ``ts_ms``, with the table's own types.

    ``op`` is c, u, d or t; r for rows of a snapshot. ``ts_ms``, here and in ``source``, is the time
    of the commit. ``source`` has ``commit_lsn`` and ``seq``, the order, and ``unchanged``, the
    columns that are null in ``after`` because they were not sent. (Debezium puts a marker text in
    their place, which only a string could hold.)
    """

    @classmethod
    def fields(cls, table: TableSchema) -> list[pa.Field]:
        row = pa.struct(row_fields(table))
        return [
            pa.field("before", row),
            pa.field("after", row),
            pa.field("op", pa.string()),
            pa.field("source", _SOURCE),
            pa.field("ts_ms", pa.int64()),
        ]

    @property
    def commit_columns(self) -> CommitColumns:
        return CommitColumns(("source", "commit_lsn"), ())

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        converted = self.convert(batch)
        op = batch.op
        is_snapshot = batch.xid == 0
        row = self.rows(converted)
        is_delete = op == ord("D")
        # The old tuple of a delete is in the table's columns.
        before = pc.if_else(pa.array(is_delete), row, self.old_rows(converted))
        is_gone = is_delete | (op == ord("T"))
        after = pc.if_else(pa.array(is_gone), None, row)
        letters = np.select(
            [is_snapshot & (op == ord("I")), op == ord("I"), op == ord("U"), is_delete],
            ["r", "c", "u", "d"],
            "t",
        )
        milliseconds = pa.array(batch.commit_time.astype("datetime64[ms]").astype(np.int64))
        count = len(batch)
        source = pa.StructArray.from_arrays(
            [
                pa.repeat("postgresql", count),
                milliseconds,
                pc.if_else(pa.array(is_snapshot), "true", "false"),
                pa.repeat(self.database, count),
                pa.repeat(batch.relation.namespace, count),
                pa.repeat(batch.relation.name, count),
                *(
                    self.metadata(converted, name)
                    for name in ("_xid", "_lsn", "_commit_lsn", "_seq", "_origin", "_unchanged")
                ),
            ],
            fields=list(_SOURCE),
        )
        arrays = [before, after, pa.array(letters, pa.string()), source, milliseconds]
        return cast_batch(arrays, self.schema)
