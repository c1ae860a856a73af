"""Splits of rows into buckets by their key, for the tasks that merge them.

Equal keys have the same bucket in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Numbers, mask_of
from pgwire_codec.lake.fold import key_events
from pgwire_codec.lake.key_codes import match_codes
from pgwire_codec.lake.row_counts import split_updates
from pgwire_codec.lake.row_hashes import row_hashes

_PIECE_BYTES: Final = 4 << 20  # bytes of rows of a bucket that go to another task at once


def bucket_numbers(columns: Sequence[pa.Array], count: int) -> Numbers:
    """Return the number of each row's bucket, below ``count``: equal rows have the same."""
    numbers = (row_hashes(columns) >> np.uint64(32)) % np.uint64(count)
    buckets: Numbers = numbers.astype(np.int64)
    return buckets


class BucketSplit:
    """Splits rows into ``count`` buckets, a piece of some megabytes at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: dict[int, list[pa.RecordBatch]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, rows: pa.RecordBatch, buckets: Numbers) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Take rows of some buckets; yield the pieces that are complete, with their buckets."""
        if self._count == 1:
            yield from self._take(0, rows)
            return
        order = np.argsort(buckets, kind="stable")
        ordered = rows.take(pa.array(order))
        bounds = np.searchsorted(buckets[order], np.arange(self._count + 1))
        for bucket in np.flatnonzero(np.diff(bounds)).tolist():
            begin, end = int(bounds[bucket]), int(bounds[bucket + 1])
            yield from self._take(bucket, ordered.slice(begin, end - begin))

    def finish(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the remaining pieces, with their buckets."""
        for bucket in list(self._pieces):
            yield self._piece(bucket)

    def _take(self, bucket: int, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        self._pieces.setdefault(bucket, []).append(rows)
        self._sizes[bucket] = self._sizes.get(bucket, 0) + rows.nbytes
        if self._sizes[bucket] >= _PIECE_BYTES:
            yield self._piece(bucket)

    def _piece(self, bucket: int) -> tuple[int, pa.RecordBatch]:
        rows = pa.concat_batches(self._pieces.pop(bucket))
        self._sizes[bucket] = 0
        return bucket, rows


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
