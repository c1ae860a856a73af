"""Lock of a log's writer: a lock on a file, which ends with the process that holds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pgwire_codec.errors import LogError, MissingExtraError

_PID_DIGITS: Final = 20  # more than any system's process IDs have
_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def locked(path: Path, log: str, mode: int) -> Iterator[None]:
    """Hold the lock of a log.

    Parameters
    ----------
    path : pathlib.Path
        The lock file, which contains the holder's process ID. It is kept when the lock is released:
        others may already wait for it.
    log : str
        Name of the log in errors.
    mode : int
        Permissions of the lock file.

    Raises
    ------
    LogError
        When another writer holds the lock, in this process or another one, or when the file is a
        symbolic link, which is not followed.
    MissingExtraError
        When filelock is not installed.
    """
    filelock = _load_filelock()
    lock = filelock.FileLock(
        path,
        timeout=0,
        mode=mode,
        thread_local=False,  # another thread may close the log
        fallback_to_soft=False,  # a lock that outlives its process would have to be broken by hand
        preserve_lock_file=True,
        on_acquired=_write_pid,
    )
    try:
        lock.acquire()
    except filelock.Timeout:
        pid = _read_pid(path)
        whom = "another writer of this process" if pid == os.getpid() else "another process"
        raise LogError(
            f"the log {log} is being written by {whom} (pid {pid or 'unknown'})",
            hint="A log has one writer at a time. End the other one, or write to another log.",
            is_transient=True,
        ) from None
    except OSError as error:
        if path.is_symlink():
            raise LogError(
                f"the lock file {path} is a symbolic link",
                hint="A log never creates one. Remove it.",
            ) from error
        raise
    try:
        yield
    finally:
        lock.release()


def _load_filelock() -> Any:
    try:
        import filelock
    except ImportError as error:
        raise MissingExtraError(
            "writing a log needs filelock",
            hint="Install it with: pip install 'pgwire-codec[log]'",
        ) from error
    return filelock


def _write_pid(descriptor: int) -> None:
    """Write this process's ID into the lock file, which is locked."""
    os.ftruncate(descriptor, 0)
    os.write(descriptor, b"%d" % os.getpid())


def _read_pid(path: Path) -> int | None:
    """Return the ID of the process that holds the lock, if the file contains one."""
    try:
        with open(os.open(path, os.O_RDONLY | _NOFOLLOW), "rb") as file:  # noqa: PTH123
            text = file.read(_PID_DIGITS)
    except OSError:  # on some systems others cannot read a locked file
        return None
    return int(text) if text.isdigit() else None
