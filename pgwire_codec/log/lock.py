"""One writer at a time: a lock on a file, which ends with the process that holds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pgwire_codec.errors import LogError

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # behind what the file holds, which others could not read otherwise

    def _try_lock(file: BinaryIO) -> None:
        file.seek(_LOCKED_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(file: BinaryIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path, log: str) -> Iterator[None]:
    """Hold the lock; ``LogError`` where another process does.

    Parameters
    ----------
    path : pathlib.Path
        The file, which then tells the holder's process id.
    log : str
        Name of what is locked, for people.
    """
    with path.open("a+b") as file:
        try:
            _try_lock(file)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            holder = file.read().decode("ascii", "replace") or "unknown"
            raise LogError(
                f"the log {log} is being written by another process (pid {holder}); "
                "a log has one writer at a time"
            ) from None
        file.truncate(0)
        file.write(b"%d" % os.getpid())
        file.flush()
        yield  # closing the file lets go of the lock
