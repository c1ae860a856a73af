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


@contextmanager
def allocator_of_command() -> Iterator[None]:
    """Have Arrow allocate by the C library in a command that runs for long.

    That is so if pyarrow is imported inside of the context, and the environment names no allocator.
    Processes that the command starts, such as Spark's workers, have Arrow's default.

    That default, mimalloc, keeps memory that one thread allocated and another one freed, also after
    ``MemoryPool.release_unused``. A capture that never used more than 9 MB of it had 72 MB after an
    hour.
    """
    if _POOL in os.environ or not set(sys.argv[1:2]) & set(_LONG_RUNNING):
        yield
        return
    os.environ[_POOL] = "system"
    try:
        yield
    finally:
        del os.environ[_POOL]
