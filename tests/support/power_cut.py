"""Power cuts: the files that are on a disk if it stops at any moment, by what was synced.

The process writes to a real folder. Each sync of a file or of a folder is recorded, and delta-rs,
which is not seen, syncs nothing. From the folder and the record, a state of the disk is made for
each moment before a write, and after delta-rs. See :data:`MODELS`.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

#: Content of each file of a state, by its path.
State = dict[str, bytes]

#: Contents of a disk. ``journalled``: all operations in order, and files whose data were not synced
#: are empty, or missing. ``torn``: the same, but these files are cut. ``late``: only entries of
#: folders that were synced.
MODELS: Final = ("journalled", "missing", "torn", "late")


class Disk:
    """Writes of this process below a folder.

    Parameters
    ----------
    root : pathlib.Path
        An existing folder, which is durable with the folders in it.
    pins : pathlib.Path
        Folder of the same file system for links, so that no inode's number is used twice.
    every : int
        Number of moments of which one has its states made.
    """

    def __init__(self, root: Path, pins: Path, every: int = 1) -> None:
        self._root = root
        self._every = every
        self._pins = pins
        pins.mkdir()
        self._synced: dict[int, bytes] = {}  # content of files by inode
        self._entries: dict[int, dict[str, int]] = {}  # inodes of folders' entries
        self._folders: dict[int, int] = {}  # descriptors of folders, by inode
        #: Different states, with the model and the number of the first moment that has them.
        self.states: dict[frozenset[tuple[str, bytes]], tuple[str, int]] = {}
        self.moments = 0
        self._lock = threading.RLock()  # a mirror writes by several threads

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the states of the moments in the ``with`` block, and of its end."""
        import deltalake

        with pytest.MonkeyPatch.context() as patch:
            for folder, _, _ in os.walk(self._root) if not self._entries else ():
                self._sync_folder(os.open(folder, os.O_RDONLY))
            for name in ("fsync", "fdatasync"):
                patch.setattr(os, name, self._sync)
            for name in ("hardlink_to", "replace", "unlink", "mkdir", "open"):
                patch.setattr(Path, name, self._before(getattr(Path, name)))
            for name in ("create_checkpoint", "cleanup_metadata"):
                write = self._after(getattr(deltalake.DeltaTable, name))
                patch.setattr(deltalake.DeltaTable, name, write)
            yield
            self._record()

    def close(self) -> None:
        """Release the folders."""
        for descriptor in self._folders.values():
            os.close(descriptor)

    def _before(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(path: Path, *arguments: Any, **options: Any) -> Any:
            is_read = write.__name__ == "open" and "r" in (*arguments, "r")[0]
            with self._lock:
                if not is_read and path.is_relative_to(self._root):
                    self._record()
                return write(path, *arguments, **options)

        return recorded

    def _after(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self._record()
                result = write(*arguments, **options)
                self._record()
                return result

        return recorded

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        if not path.readlink().is_relative_to(self._root) and path.readlink() != self._root:
            return
        found = os.fstat(descriptor)
        with self._lock:
            self._record()
            if stat.S_ISDIR(found.st_mode):
                self._sync_folder(os.dup(descriptor))
            else:
                self._pin(path.resolve(), found.st_ino)
                self._synced[found.st_ino] = path.read_bytes()

    def _sync_folder(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if self._folders.setdefault(inode, descriptor) != descriptor:
            os.close(descriptor)
        path = Path(f"/proc/self/fd/{self._folders[inode]}")
        self._entries[inode] = {}
        for entry in path.iterdir():
            found = entry.stat()
            self._entries[inode][entry.name] = found.st_ino
            if not stat.S_ISDIR(found.st_mode):
                self._pin(entry.resolve(), found.st_ino)
            elif found.st_ino not in self._folders:
                self._folders[found.st_ino] = os.open(entry, os.O_RDONLY)

    def _pin(self, path: Path, inode: int) -> None:
        if not (pin := self._pins / str(inode)).exists():
            os.link(path, pin)

    def _record(self) -> None:
        self.moments += 1
        if self.moments % self._every:
            return
        for model in MODELS:
            if model == "late":
                state = dict(self._late(self._root.stat().st_ino, ""))
            else:
                state = dict(self._present(model))
            self.states.setdefault(frozenset(state.items()), (model, self.moments))

    def _present(self, model: str) -> Iterator[tuple[str, bytes]]:
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder, name)
                content = self._synced.get(path.stat().st_ino)
                if content is None and model == "missing":
                    continue
                if content is None:
                    data = path.read_bytes()
                    content = data[: len(data) // 2] if model == "torn" else b""
                yield path.relative_to(self._root).as_posix(), content

    def _late(self, folder: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        for name, inode in self._entries.get(folder, {}).items():
            if inode in self._folders:
                yield from self._late(inode, f"{prefix}{name}/")
            else:
                yield prefix + name, self._synced.get(inode, b"")


def restore(state: frozenset[tuple[str, bytes]], folder: Path) -> None:
    """Write the files of a state into a new folder."""
    folder.mkdir()
    for name, content in state:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
