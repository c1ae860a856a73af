"""Runner: gives tasks their work, and collects what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F")


class BucketKey(NamedTuple):
    """Rows that one task merges: some of the keys of a relation."""

    relation_oid: int
    bucket: int


class Piece(NamedTuple):
    """Rows on their way to the task that merges them."""

    key: BucketKey
    rows: pa.RecordBatch


#: Merges the pieces of a key, which it takes out of the list: they are large.
Merge = Callable[[BucketKey, list[pa.RecordBatch]], R]


class Runner(Protocol):
    """Runs tasks, some of them side by side."""

    def map(self, task: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
        """Return what a task returns for each item, in their order; ``size`` is that of the work.

        It is in bytes.
        """

    def exchange(
        self,
        split: Callable[[T], Iterable[Piece | F]],
        items: Sequence[T],
        merge: Merge[R],
        size: int,
    ) -> tuple[list[F], list[R]]:
        """Split items into pieces, and merge those with the same key.

        Return the facts that the split yields beside pieces, and what the merge returns for each
        key. ``size`` is that of the work in bytes.
        """
