"""Buckets of rows by a hash of their key, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pgwire_codec.lake.comparison import Numbers
from pgwire_codec.lake.row_hashes import row_hashes

#: Bytes of rows of a bucket that go to another task at once.
_PIECE_BYTES: Final = 4 << 20


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
