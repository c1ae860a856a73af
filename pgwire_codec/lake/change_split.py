"""ChangeSplit: changes of a table, split by key for the tasks that merge them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pgwire_codec.lake.buckets import BucketSplit, bucket_numbers
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import mask_of
from pgwire_codec.lake.fold import count_events, fold_events, key_events
from pgwire_codec.lake.key_codes import match_codes
from pgwire_codec.lake.merge import TableMerge, merge_counts, merge_rows
from pgwire_codec.lake.row_counts import split_updates
from pgwire_codec.lake.table_files import TableFiles


class ChangeSplit:
    """Splits changes without truncates into buckets; equal keys are in the same one.

    Without a key, equal rows are. The changes of ``pinned`` keys are all in the first bucket.
    """

    def __init__(self, columns: ChangeColumns, buckets: int, pinned: pa.Table | None) -> None:
        self.moved: list[pa.Table] = []
        self._columns = columns
        self._buckets = buckets
        self._pinned = pinned
        self._split = BucketSplit(buckets)

    def add(self, changes: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Take numbered changes; yield the buckets and the events of pieces that are complete."""
        if not len(changes):
            return
        columns = self._columns
        if columns.keys:
            events, names = key_events(changes, columns), columns.key_numbers
            if len(moved := moved_keys(events, columns)):
                self.moved.append(moved)
        else:
            events, names = split_updates(changes, columns), columns.numbers
        identity = [events.column(name) for name in names]
        buckets = bucket_numbers(identity, self._buckets)
        if self._pinned is not None:
            pinned = [column.combine_chunks() for column in self._pinned.columns]
            buckets[match_codes(identity, pinned)[0] >= 0] = 0
        yield from self._split.add(events, buckets)

    def finish(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the buckets and the events of the remaining pieces."""
        yield from self._split.finish()


def moved_keys(events: pa.RecordBatch, columns: ChangeColumns) -> pa.Table:
    """Return the keys of changes of a key that did not send all values: the old and the new one.

    ``c0``, … the key, and ``_commit_lsn``.
    """
    is_moved = mask_of(events.column("moved"))
    if is_moved.any():
        is_moved &= mask_of(events.column("_unchanged").is_valid())
    names = [*columns.key_numbers, "_commit_lsn"]
    return pa.Table.from_batches([events.select(names).filter(pa.array(is_moved))])


def merge_events(
    target: TableFiles,
    events: pa.RecordBatch,
    columns: ChangeColumns,
    kept: pa.Schema | None = None,
) -> TableMerge:
    """Return the merge of the events of a bucket; see :func:`merge_rows`, :func:`merge_counts`."""
    if not columns.keys:
        return merge_counts(target, count_events(events, columns))
    return merge_rows(target, fold_events(events, columns), columns.deleted, kept)
