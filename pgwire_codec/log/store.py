"""Store: access to the files of a log, on a local disk or in an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs

from pgwire_codec.errors import LogError
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.object_store import ObjectStore
from pgwire_codec.options import SegmentOptions


class Appender(Protocol):
    """A new file that is written from its start."""

    def write(self, data: Any) -> None:
        """Append bytes, or an Arrow buffer."""

    def sync(self) -> None:
        """Make the bytes written so far durable."""

    def close(self) -> None:
        """Make it durable and complete, and close it."""

    def abandon(self) -> None:
        """Close it, complete or not."""


class Store(Protocol):
    """A flat directory of files. Its methods raise ``LogError`` when the file system fails."""

    name: str  #: in errors
    grows: bool  #: whether a file can be read, and is durable up to some byte, while it grows

    def names(self) -> list[str]:
        """Return the names of the files, ascending; none if the directory does not exist."""

    def size(self, name: str) -> int:
        """Return a file's length in bytes."""

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if it does not exist."""

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        """Return some bytes of a file: a view of the mapped file if it is local."""

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write or replace a whole file, durably and atomically."""

    def overwrite(self, name: str, data: bytes) -> None:
        """Overwrite one of the two sectors at the beginning of a file in place, in turns.

        It is durable afterwards. It is not atomic to those who read the file at the same time. Only
        a store where a file grows has it.
        """

    def create(self, name: str) -> Appender:
        """Create a file, to be written from its start."""

    def finish(self, name: str, length: int, end: bytes) -> None:
        """Cut a file at a length, append its end, and make it durable."""

    def remove(self, *names: str) -> None:
        """Remove files, as far as they exist: those of a segment, side by side, in this order."""

    def free_bytes(self) -> int | None:
        """Return the room on the disk; None if it does not fill up, as an object store."""

    def lock(self) -> Any:
        """Return a context that excludes other writers. Raise ``LogError`` when there is one."""

    def pruning_lock(self) -> Any:
        """Return a context that excludes other prunings, which are waited for, of an existing log.

        Raise ``LogError`` when one does not end.
        """

    def compaction_lock(self) -> Any:
        """Return a context that excludes other compactions of an existing log.

        Raise ``LogError`` when there is one.
        """


def open_existing(
    uri: str | os.PathLike[str], filesystem: fs.FileSystem | None, name: str
) -> Store:
    """Return the store of a log, whose new files get the permissions of one of its files."""
    store = open_store(uri, filesystem)
    return store.with_mode_of(name) if isinstance(store, LocalStore) else store


def open_store(
    uri: str | os.PathLike[str],
    filesystem: fs.FileSystem | None = None,
    *,
    file_mode: int = SegmentOptions.file_mode,
) -> Store:
    """Return the store of a log: a directory, a URI, or a path in a ``pyarrow.fs`` filesystem."""
    if filesystem is None:
        text = os.fspath(uri)
        if "://" not in text:
            return LocalStore(Path(text).absolute(), file_mode)
        try:
            filesystem, path = fs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise LogError(
                f"unsupported log URI {text!r}: {error}",
                hint="Use a local path or a URI that pyarrow.fs understands.",
            ) from error
        except OSError as error:
            raise LogError(f"cannot reach {text}: {error}", is_transient=True) from error
    else:
        path = os.fspath(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalStore(Path(path).absolute(), file_mode)
    return ObjectStore(filesystem, path.rstrip("/"))
