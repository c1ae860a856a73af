"""Memory of commands that run for long."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Commands that run for months.
_LONG_RUNNING: Final = ("capture", "mirror")

#: Variable from which Arrow takes its allocator, once, when pyarrow is imported.
_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"

#: Variables from which glibc takes the same as from ``mallopt``.
_OF_GLIBC: Final = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

#: Settings of Spark that set a variable of its Python workers.
_OF_WORKERS: Final = "spark.executorEnv."

_M_MMAP_THRESHOLD: Final = -3  # in glibc's malloc.h

#: Bytes from which a block is returned to the system when it is freed.
_RETURNED: Final = 256 << 10


@contextmanager
def allocator_of_command() -> Iterator[None]:
    """Have a command that runs for long return freed memory to the system.

    Arrow allocates by the C library, if pyarrow is imported inside of the context, and the
    environment names no allocator. Arrow's default, mimalloc, keeps memory that one thread
    allocated and another one freed, also after ``MemoryPool.release_unused``. A capture that never
    used more than 9 MB of it had 72 MB after an hour.

    Processes that the command starts have the defaults; see :func:`settings_of_workers`.
    """
    is_long_running = len(sys.argv) > 1 and sys.argv[1] in _LONG_RUNNING
    if is_long_running:
        _return_large_blocks()
    if not is_long_running or _POOL in os.environ:
        yield
        return
    os.environ[_POOL] = "system"
    try:
        yield
    finally:
        del os.environ[_POOL]


def settings_of_workers() -> dict[str, str]:
    """Return settings of Spark by which its Python workers return freed memory, too.

    The two that mirrored 1,000,000 rows had at most 204 to 230 MiB each, and 245 to 277 without.
    Variables that this process has are theirs, too, and are not replaced.
    """
    settings = {}
    if _POOL not in os.environ:
        settings[f"{_OF_WORKERS}{_POOL}"] = "system"
    if not any(name in os.environ for name in _OF_GLIBC):
        settings[f"{_OF_WORKERS}{_OF_GLIBC[0]}"] = str(_RETURNED)
    return settings


def _return_large_blocks() -> None:
    """Fix the size from which glibc returns a freed block to the system, see mallopt(3).

    By default, glibc raises it to that of each larger block that is freed, up to 32 MiB. Blocks
    below it come to lie between smaller ones that last, in a heap for each thread.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _OF_GLIBC):
        return
    import ctypes

    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # another C library may lack it
        library.mallopt(_M_MMAP_THRESHOLD, _RETURNED)
