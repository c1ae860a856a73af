"""Rows in the envelope of Debezium's PostgreSQL connector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.table_schema import CommitColumns
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema
from pgwire_codec.spark.formats.native import NativeRows
from pgwire_codec.transactions.carry import RelationVersion

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


@dataclass(frozen=True)
class DebeziumRows:
    """``before``, ``after``, ``op``, ``source`` and ``ts_ms``, with the table's own types.

    ``op`` is c, u, d or t; r for rows of a snapshot. ``ts_ms``, here and in ``source``, is the time
    of the commit. ``source`` has ``commit_lsn`` and ``seq``, the order, and ``unchanged``, the
    columns that are null in ``after`` because they were not sent. (Debezium puts a marker text in
    their place, which only a string could hold.)
    """

    native: NativeRows
    database: str
    schema: pa.Schema

    @classmethod
    def of(cls, native: NativeRows, database: str) -> DebeziumRows:
        """Return the format for rows of a table."""
        fields = [
            ("before", native.row_type),
            ("after", native.row_type),
            ("op", pa.string()),
            ("source", _SOURCE),
            ("ts_ms", pa.int64()),
        ]
        return cls(native, database, spark_arrow_schema(pa.schema(fields)))

    @property
    def commit_columns(self) -> CommitColumns:
        return CommitColumns(("source", "commit_lsn"), ())

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        converted = self.native.convert(batch)
        op = batch.op
        is_snapshot = batch.xid == 0
        row = self.native.rows(converted)
        is_delete = op == ord("D")
        # The old tuple of a delete is in the table's columns.
        before = pc.if_else(pa.array(is_delete), row, self.native.old_rows(converted))
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
                    self.native.metadata(converted, name)
                    for name in ("_xid", "_lsn", "_commit_lsn", "_seq", "_origin", "_unchanged")
                ),
            ],
            fields=list(_SOURCE),
        )
        arrays = [before, after, pa.array(letters, pa.string()), source, milliseconds]
        return cast_batch(arrays, self.schema)

    def check(self, versions: Sequence[RelationVersion]) -> None:
        self.native.check(versions)
