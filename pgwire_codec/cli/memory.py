"""Memory of commands that run for long."""

from __future__ import annotations

import os

_CHOSEN = "ARROW_DEFAULT_MEMORY_POOL"


def use_c_allocator() -> None:
    """Have Arrow allocate by the C library's malloc, unless the environment names another pool.

    Arrow's default, mimalloc, keeps memory that one thread allocated and another one freed, also
    after ``MemoryPool.release_unused``. A capture that never used more than 9 MB of it had 72 MB
    after an hour.
    """
    import pyarrow as pa

    if _CHOSEN not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
