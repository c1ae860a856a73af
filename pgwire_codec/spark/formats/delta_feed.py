"""Rows in the form of Delta's change data feed."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.metadata import free_name
from pgwire_codec.changes.table_schema import CommitColumns, TableSchema
from pgwire_codec.spark.arrow_types import cast_batch
from pgwire_codec.spark.formats.native import NativeRows, row_fields

_METADATA: Final = {
    "_change_type": pa.string(),
    "_commit_version": pa.int64(),
    "_commit_timestamp": pa.timestamp("us", "UTC"),
    "_seq": pa.int64(),
    "_unchanged": pa.list_(pa.string()),
}


class DeltaFeedRows(NativeRows):
    """The table's columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    These are the columns of Delta's change data feed; ``_commit_version`` is the commit LSN.
    ``_seq`` and ``_unchanged`` follow. ``_change_type`` is insert, update_preimage,
    update_postimage, delete, or truncate, which Delta does not have. An update has a preimage if
    the server sent an old tuple. The preimage is whole under ``REPLICA IDENTITY FULL``.
    """

    @classmethod
    def fields(cls, table: TableSchema) -> list[pa.Field]:
        metadata = [
            pa.field(free_name(name, table.columns), kind) for name, kind in _METADATA.items()
        ]
        return [*row_fields(table), *metadata]

    @property
    def commit_columns(self) -> CommitColumns:
        _, lsn, time, *_ = (free_name(name, self.table.columns) for name in _METADATA)
        return CommitColumns((lsn,), (time,))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        converted = self.convert(batch)
        old = self.old_rows(converted)
        has_preimage = (batch.op == ord("U")) & old.is_valid().to_numpy(zero_copy_only=False)
        # Each change, after its preimage if it has one: taken from new rows followed by old rows.
        count = np.where(has_preimage, 2, 1)
        change = np.repeat(np.arange(len(batch)), count)
        is_preimage = np.zeros(len(change), np.bool_)
        is_preimage[(np.cumsum(count) - count)[has_preimage]] = True
        image = pa.array(np.where(is_preimage, change + len(batch), change))
        row = pa.concat_arrays([self.rows(converted), old]).take(image)
        change_type = _change_types(batch.op[change], is_preimage)
        commit_lsn, commit_time, seq, unchanged = (
            self.metadata(converted, name).take(pa.array(change))
            for name in ("_commit_lsn", "_commit_time", "_seq", "_unchanged")
        )
        unchanged = pc.if_else(pa.array(is_preimage), None, unchanged)
        return cast_batch(
            [*row.flatten(), change_type, commit_lsn, commit_time, seq, unchanged], self.schema
        )


def _change_types(op: npt.NDArray[np.uint8], is_preimage: npt.NDArray[np.bool_]) -> pa.Array:
    names = np.select(
        [is_preimage, op == ord("I"), op == ord("U"), op == ord("D")],
        ["update_preimage", "insert", "update_postimage", "delete"],
        "truncate",
    )
    return pa.array(names, pa.string())
