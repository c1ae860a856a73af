"""Rows in the form of Delta's change data feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.metadata import free_name
from pgwire_codec.changes.table_schema import CommitColumns
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema
from pgwire_codec.spark.formats.native import NativeRows
from pgwire_codec.transactions.carry import RelationVersion


@dataclass(frozen=True)
class DeltaFeedRows:
    """The table's columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

    These are the columns of Delta's change data feed; ``_commit_version`` is the commit LSN.
    ``_seq`` and ``_unchanged`` follow. ``_change_type`` is insert, update_preimage,
    update_postimage, delete, or truncate, which Delta does not have. An update has a preimage if
    the server sent an old tuple. The preimage is whole under ``REPLICA IDENTITY FULL``.
    """

    native: NativeRows
    schema: pa.Schema

    @classmethod
    def of(cls, native: NativeRows) -> DeltaFeedRows:
        """Return the format for rows of a table."""
        metadata = [
            ("_change_type", pa.string()),
            ("_commit_version", pa.int64()),
            ("_commit_timestamp", pa.timestamp("us", "UTC")),
            ("_seq", pa.int64()),
            ("_unchanged", pa.list_(pa.string())),
        ]
        taken = native.table.columns
        fields = [pa.field(free_name(name, taken), kind) for name, kind in metadata]
        return cls(native, spark_arrow_schema(pa.schema([*native.row_fields, *fields])))

    @property
    def commit_columns(self) -> CommitColumns:
        taken = self.native.table.columns
        lsn, time = (free_name(name, taken) for name in ("_commit_version", "_commit_timestamp"))
        return CommitColumns((lsn,), (time,))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        converted = self.native.convert(batch)
        old = self.native.old_rows(converted)
        has_preimage = (batch.op == ord("U")) & old.is_valid().to_numpy(zero_copy_only=False)
        # Each change, after its preimage if it has one: taken from new rows followed by old rows.
        count = np.where(has_preimage, 2, 1)
        change = np.repeat(np.arange(len(batch)), count)
        is_preimage = np.zeros(len(change), np.bool_)
        is_preimage[(np.cumsum(count) - count)[has_preimage]] = True
        image = pa.array(np.where(is_preimage, change + len(batch), change))
        row = pa.concat_arrays([self.native.rows(converted), old]).take(image)
        change_type = _change_types(batch.op[change], is_preimage)
        commit_lsn, commit_time, seq, unchanged = (
            self.native.metadata(converted, name).take(pa.array(change))
            for name in ("_commit_lsn", "_commit_time", "_seq", "_unchanged")
        )
        unchanged = pc.if_else(pa.array(is_preimage), None, unchanged)
        return cast_batch(
            [*row.flatten(), change_type, commit_lsn, commit_time, seq, unchanged], self.schema
        )

    def check(self, versions: Sequence[RelationVersion]) -> None:
        self.native.check(versions)


def _change_types(op: npt.NDArray[np.uint8], is_preimage: npt.NDArray[np.bool_]) -> pa.Array:
    names = np.select(
        [is_preimage, op == ord("I"), op == ord("U"), op == ord("D")],
        ["update_preimage", "insert", "update_postimage", "delete"],
        "truncate",
    )
    return pa.array(names, pa.string())
