"""Shares of messages or rows, and the threads that work on them at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_SMALLEST: Final = 4096  # messages or rows that are worth a thread

Result = TypeVar("Result")

#: Rows that have a tuple, and the unchanged rows of each column.
Share = tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]


def shares_of(count: int, threads: int, block: int) -> list[int]:
    """Return the edges of shares of so many, of whole blocks but for the last share."""
    size = -(-count // threads)
    size = max(-(-size // block) * block, _SMALLEST)
    return [*range(0, count, size), count] if count else [0, 0]


def together(decode_share: Callable[[int], Share], edges: Sequence[int]) -> Share:
    """Decode all shares at the same time, and return the joined results."""
    done = in_threads(decode_share, len(edges) - 1)
    if len(done) == 1:
        return done[0]
    unchanged = [
        np.concatenate([rows + first for rows, first in zip(pieces, edges, strict=False)])
        for pieces in zip(*(rows for _, rows in done), strict=True)
    ]
    return np.concatenate([present for present, _ in done]), unchanged


def in_threads(work: Callable[[int], Result], count: int) -> list[Result]:
    """Return the results of calls with 0, 1, …, at the same time; the first is in this thread.

    Raises the exception of the first call that has one, after the end of all.
    """
    if count == 1:
        return [work(0)]
    from concurrent.futures import wait

    others = [_pool(count - 1).submit(work, number) for number in range(1, count)]
    try:
        first = work(0)
    finally:
        wait(others)  # they write into memory that belongs to this call
    return [first, *(other.result() for other in others)]


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool of that many threads; to start a thread takes as long as 1,000 rows or so."""
    if threads not in _POOLS:
        from concurrent.futures import ThreadPoolExecutor

        _POOLS[threads] = ThreadPoolExecutor(threads, thread_name_prefix="pgwire_codec")
    return _POOLS[threads]


_POOLS: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)  # the threads stay with the parent
