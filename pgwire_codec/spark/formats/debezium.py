"""Rows as other change feeds have them: Debezium's envelope, and Delta's change data feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.spark.formats.native import TableRows, exact, to_exact
from pgwire_codec.spark.formats.table_schema import free_name
from pgwire_codec.transactions.carry import RelationVersion

_NAMES: Final = pa.list_(pa.string())

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
        ("unchanged", _NAMES),
    ]
)


@dataclass(frozen=True)
class DebeziumRows:
    """``before``, ``after``, ``op``, ``source`` and ``ts_ms``, as Debezium's PostgreSQL connector
    has them, with the table's own types.

    ``op`` is c, u, d or t; r for rows of a snapshot. ``ts_ms``, here and in ``source``, is the time
    of the commit. ``source`` has ``commit_lsn`` and ``seq``, the order, and ``unchanged``, the
    columns that are null in ``after`` because they were not sent (Debezium puts a word in their
    place, which only a string could hold).
    """

    rows: TableRows
    database: str
    schema: pa.Schema

    @classmethod
    def of(cls, rows: TableRows, database: str) -> DebeziumRows:
        row = _row_type(rows)
        fields = [
            ("before", row),
            ("after", row),
            ("op", pa.string()),
            ("source", _SOURCE),
            ("ts_ms", pa.int64()),
        ]
        return cls(rows, database, exact(pa.schema(fields)))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        native = self.rows.native(batch)
        op = batch.op
        is_snapshot = batch.xid == 0
        old, here = _old_rows(self.rows, native), _rows(self.rows, native)
        is_delete = op == ord("D")
        # The old tuple of a delete stands in the table's columns.
        before = pc.if_else(pa.array(is_delete), here, old)
        is_gone = is_delete | (op == ord("T"))
        after = pc.if_else(pa.array(is_gone), None, here)
        words = np.select(
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
                    self._told(native, name)
                    for name in ("_xid", "_lsn", "_commit_lsn", "_seq", "_origin", "_unchanged")
                ),
            ],
            fields=list(_SOURCE),
        )
        arrays = [before, after, pa.array(words, pa.string()), source, milliseconds]
        return to_exact(arrays, self.schema)

    def check(self, versions: Sequence[RelationVersion]) -> None:
        self.rows.check(versions)

    def _told(self, native: pa.RecordBatch, name: str) -> pa.Array:
        return native.column(self.rows.columns.metadata[name])


@dataclass(frozen=True)
class DeltaRows:
    """The table's columns, then ``_change_type``, ``_commit_version`` (the commit LSN) and
    ``_commit_timestamp``, as Delta's change data feed has them; ``_seq`` and ``_unchanged``.

    ``_change_type`` is insert, update_preimage, update_postimage, delete, or truncate, which Delta
    does not have. A preimage comes where the server sent an old tuple, and is whole where that is:
    under ``REPLICA IDENTITY FULL``.
    """

    rows: TableRows
    schema: pa.Schema

    @classmethod
    def of(cls, rows: TableRows) -> DeltaRows:
        table = [rows.columns.arrow.field(name) for name in rows.columns.columns]
        taken = [field.name for field in table]
        metadata = [
            ("_change_type", pa.string()),
            ("_commit_version", pa.int64()),
            ("_commit_timestamp", pa.timestamp("us", "UTC")),
            ("_seq", pa.int64()),
            ("_unchanged", _NAMES),
        ]
        fields = [pa.field(free_name(name, taken), kind) for name, kind in metadata]
        return cls(rows, exact(pa.schema([*table, *fields])))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        native = self.rows.native(batch)
        old, here = _old_rows(self.rows, native), _rows(self.rows, native)
        has_preimage = (batch.op == ord("U")) & old.is_valid().to_numpy(zero_copy_only=False)
        # Each change, and before it the preimage of some: taken from the old rows, behind the new.
        count = np.where(has_preimage, 2, 1)
        change = np.repeat(np.arange(len(batch)), count)
        is_preimage = np.zeros(len(change), np.bool_)
        is_preimage[(np.cumsum(count) - count)[has_preimage]] = True
        image = pa.array(np.where(is_preimage, change + len(batch), change))
        row = pa.concat_arrays([here, old]).take(image)
        change_type = _change_types(batch.op[change], is_preimage)
        told = [native.column(self.rows.columns.metadata[name]) for name in _DELTA_ORDER]
        commit_lsn, commit_time, seq, unchanged = (column.take(pa.array(change)) for column in told)
        unchanged = pc.if_else(pa.array(is_preimage), None, unchanged)
        return to_exact(
            [*row.flatten(), change_type, commit_lsn, commit_time, seq, unchanged], self.schema
        )

    def check(self, versions: Sequence[RelationVersion]) -> None:
        self.rows.check(versions)


_DELTA_ORDER: Final = ("_commit_lsn", "_commit_time", "_seq", "_unchanged")


def _change_types(op: npt.NDArray[np.uint8], is_preimage: npt.NDArray[np.bool_]) -> pa.Array:
    words = np.select(
        [is_preimage, op == ord("I"), op == ord("U"), op == ord("D")],
        ["update_preimage", "insert", "update_postimage", "delete"],
        "truncate",
    )
    return pa.array(words, pa.string())


def _row_type(rows: TableRows) -> pa.StructType:
    return pa.struct([rows.columns.arrow.field(name) for name in rows.columns.columns])


def _rows(rows: TableRows, native: pa.RecordBatch) -> pa.StructArray:
    """Give the table's columns as one struct, never null."""
    arrays = [native.column(name) for name in rows.columns.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(_row_type(rows)))


def _old_rows(rows: TableRows, native: pa.RecordBatch) -> pa.StructArray:
    """Give the old tuples' columns as one struct, null where there is no old tuple."""
    kind = _row_type(rows)
    if "_before" not in rows.columns.metadata:  # no column, or no old tuple ever
        return pa.nulls(len(native), kind)
    before: Any = native.column(rows.columns.metadata["_before"])
    arrays = [before.field(name) for name in rows.columns.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=before.is_null())
