"""Runner: gives tasks their work, and collects what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from pgwire_codec.lake.tasks import BucketKey, ChangeFacts, MergeOutcome, Piece
from pgwire_codec.log.partition import LogPartition

T = TypeVar("T")
R = TypeVar("R")

#: Splits the changes of a partition.
Split = Callable[[LogPartition], Iterator[Piece | ChangeFacts]]

#: Merges the changes of a bucket.
Merge = Callable[[BucketKey, Sequence[pa.RecordBatch]], MergeOutcome]


class Runner(Protocol):
    """Runs tasks, some of them side by side."""

    def map(self, task: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
        """Return what a task returns for each item, in their order; ``size`` is that of the work.

        It is in bytes.
        """

    def exchange(
        self, split: Split, partitions: Sequence[LogPartition], merge: Merge, message_bytes: int
    ) -> tuple[list[ChangeFacts], list[MergeOutcome]]:
        """Split partitions, and merge what has the same key.

        ``message_bytes`` are the bytes of the partitions' messages.
        """
