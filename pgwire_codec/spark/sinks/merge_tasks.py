"""Tasks of a merge: changes that a target does not have become data files and deleted rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.lake.change_split import ChangeSplit
from pgwire_codec.lake.comparison import Mask
from pgwire_codec.lake.data_files import FileLayout, write_data_files
from pgwire_codec.lake.merge import TableMerge, merge_events
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.task_errors import error_of
from pgwire_codec.lake.tasks import MergeOutcome, Place, write_merge
from pgwire_codec.spark.reduction.map_in_arrow import Batches, map_in_arrow
from pgwire_codec.spark.sinks.change_form import ChangeForm
from pgwire_codec.spark.task_results import (
    events_column,
    read_events,
    result_batch,
    results_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Changes that one task merges.
BUCKET_ROWS: Final = 1 << 17

#: Bucket of an error, which is that of no changes.
_ERROR: Final = -1

_NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class Selection:
    """Changes that a target does not have, of one relation, after its last truncate.

    Attributes
    ----------
    relation : int or None
        OID of the relation, if that is known.
    after : int
        Commit LSN up to which the target has its changes; -1 for none.
    truncated : Place or None
        Place of the last truncate.
    """

    relation: int | None
    after: int
    truncated: Place | None

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return those changes of a batch."""
        lsn, seq = (batch.column(name).to_numpy() for name in ("_commit_lsn", "_seq"))
        chosen: Mask = (lsn > self.after) & (batch.column("_op").to_numpy(False) != "T")
        if self.truncated is not None:
            place = self.truncated
            chosen &= (lsn > place.commit_lsn) | ((lsn == place.commit_lsn) & (seq > place.seq))
        if self.relation is not None:
            oids = batch.column(RELATION_OID).fill_null(_NOTHING).to_numpy(zero_copy_only=False)
            chosen &= oids == self.relation
        return batch if chosen.all() else batch.filter(pa.array(chosen))


@dataclass(frozen=True)
class MergeWork:
    """Work of the tasks of a merge. Picklable.

    Attributes
    ----------
    form : ChangeForm
    selection : Selection
    target : TableFiles
        Files in which rows are looked up: none if all are replaced.
    file_schema : pyarrow.Schema
        Columns of new data files.
    layout : FileLayout
    kept : pyarrow.Schema
        Columns that only the table has, which keep their values.
    buckets : int
        Number of tasks that merge the changes.
    pinned : pyarrow.Table or None
        Keys whose changes are all in the first bucket.
    """

    form: ChangeForm
    selection: Selection
    target: TableFiles
    file_schema: pa.Schema
    layout: FileLayout
    kept: pa.Schema
    buckets: int
    pinned: pa.Table | None

    def append(self, rows: DataFrame) -> list[MergeOutcome]:
        """Append the rows of inserts."""
        return results_of(rows.coalesce(self.buckets), self._append)

    def merge(self, rows: DataFrame) -> list[MergeOutcome]:
        """Merge numbered changes."""
        if self.buckets == 1:
            return results_of(rows.coalesce(1), self._merge_all)
        from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

        kinds = {"bucket": IntegerType(), "data": BinaryType()}
        schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
        pieces = map_in_arrow(rows, self._split, schema).repartition(self.buckets, "bucket")
        return results_of(pieces.sortWithinPartitions("bucket"), self._merge_buckets)

    def _changes(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the changes to merge, in the target's types."""
        for batch in batches:
            yield self.form.changes(self.selection.select(batch))

    def _append(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        names = self.form.columns.numbers
        rows = (
            pa.RecordBatch.from_arrays([changes.column(name) for name in names], schema=self._table)
            for changes in self._changes(batches)
        )
        try:
            files = write_data_files(self.target.folder, self.file_schema, rows, self.layout)
        except Exception as error:  # noqa: BLE001  (it is data for the driver)
            yield result_batch(self._failed(error))
            return
        yield result_batch(MergeOutcome(_NOTHING, files, inserted=sum(each.rows for each in files)))

    @property
    def _table(self) -> pa.Schema:
        return self.form.schema

    def _merge_all(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Merge all changes in this task."""
        try:
            pieces = [events for _, events in self._events(batches, 1)]
        except Exception as error:  # noqa: BLE001  (it is data for the driver)
            yield result_batch(self._failed(error))
            return
        if pieces:
            yield result_batch(self._outcome(pieces))

    def _split(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield pieces of the changes for the tasks that merge them."""
        try:
            for bucket, events in self._events(batches, self.buckets):
                yield _piece(bucket, events_column(events))
        except Exception as error:  # noqa: BLE001  (it is data for the driver)
            yield _piece(_ERROR, result_batch(self._failed(error)).column(0))

    def _merge_buckets(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Merge pieces, those of a bucket after one another."""
        pieces: list[pa.RecordBatch] = []
        current = _NOTHING
        for batch in batches:
            for bucket, data in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                if bucket == _ERROR:
                    yield pa.record_batch({"data": [data.as_py()]})
                    continue
                if bucket != current and pieces:
                    yield result_batch(self._outcome(pieces))
                    pieces = []
                current = bucket
                pieces.append(read_events(data))
        if pieces:
            yield result_batch(self._outcome(pieces))

    def _events(self, batches: Batches, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        split = ChangeSplit(self.form.columns, buckets, self.pinned)
        for changes in self._changes(batches):
            yield from split.add(changes)
        yield from split.finish()

    def _outcome(self, pieces: Iterable[pa.RecordBatch]) -> MergeOutcome:
        def find() -> TableMerge:
            events = pa.concat_batches(pieces)
            return merge_events(self.target, events, self.form.columns, self.kept)

        return write_merge(_NOTHING, self.target, self.file_schema, self.layout, find)

    def _failed(self, error: Exception) -> MergeOutcome:
        return MergeOutcome(_NOTHING, error=error_of(error, self.target.uri))


def _piece(bucket: int, data: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"bucket": pa.array([bucket], pa.int32()), "data": data})
