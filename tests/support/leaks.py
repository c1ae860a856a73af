"""Check that a piece of work keeps no memory, for a process of its own."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable

PEAK = 50_000_000  # bytes that the process may grow by, once its caches are full


def assert_nothing_kept(once: Callable[[], object], rounds: int) -> None:
    """Raise AssertionError if `once` keeps a block of Python's memory each time, or much memory.

    A leak shows in every window of `rounds` calls. A cache that fills does not: the interpreter's
    free lists took 300 blocks in one window of some processes, and 30 in the ten after it.
    """
    for _ in range(rounds):  # caches fill: pyarrow's, and the interpreter's
        once()
    windows, peak = [], _peak()
    for _ in range(3):
        before = _blocks()
        for _ in range(rounds):
            once()
        windows.append(_blocks() - before)
    assert min(windows) < rounds // 2, windows
    assert _peak() - peak < PEAK, (peak, _peak())


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def _peak() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
