"""A small disk that can be filled, with or without root: a tmpfs in a mount namespace."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FILLER = "filler"


class SmallDisk:
    """A folder on a disk of its own.

    Attributes
    ----------
    path : Path
        The folder. It is in the namespace of a process, and goes with it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / _FILLER

    @property
    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Fill the disk, except for so many bytes."""
        with self._filler.open("wb") as file:
            while (size := self.free - leave) > 0:
                with suppress(_FullError):
                    _allocate(file.fileno(), size)

    def empty(self) -> None:
        """Undo :meth:`fill`."""
        self._filler.unlink(missing_ok=True)


class NoSmallDiskError(Exception):
    """This machine has no namespaces for this user."""


class _FullError(Exception):
    """Another process took some of the bytes."""


def _allocate(descriptor: int, size: int) -> None:
    try:
        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _FullError from error


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs over a folder, visible only to a process that holds it, and by way of that.

    Other users than root need a kernel that lets them have user namespaces.
    """
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = f"mount -t tmpfs -o size={size} soak '{folder}' && echo mounted && exec cat"
    with subprocess.Popen(
        ["unshare", *as_root, "--mount", "sh", "-c", mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            raise NoSmallDiskError(
                "no tmpfs could be mounted: run the soak as root, or --without 'full disk' "
                "--without 'nearly full disk'"
            )
        yield SmallDisk(Path(f"/proc/{holder.pid}/root{folder}"))
