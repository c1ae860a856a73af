"""The files of a log: on a local disk, where they grow and are locked, or in an object store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import fs

from pgwire_codec.errors import LogError
from pgwire_codec.log.lock import locked

TEMPORARY: Final = ".tmp"
LOCK: Final = "lock"

#: Bytes written at once. Linux takes 8 MB in one call at a tenth of the speed that it has with
#: 1 MB: it looks for as large a stretch of free memory.
_WRITE_BYTES: Final = 1 << 20


class Appender(Protocol):
    """A new file that is written from its start."""

    def write(self, data: Any) -> None:
        """Append bytes, or an Arrow buffer."""

    def sync(self) -> None:
        """Make what was written durable."""

    def close(self) -> None:
        """Make it durable and complete, and close it."""

    def abandon(self) -> None:
        """Let go of it as it is."""


class Store(Protocol):
    """A flat directory of files."""

    name: str  #: for people
    grows: bool  #: whether a file can be read, and is durable up to some byte, while it grows

    def names(self) -> list[str]:
        """Give the names of the files, ascending; none where there is no such directory."""

    def size(self, name: str) -> int:
        """Give a file's length in bytes."""

    def read(self, name: str) -> bytes | None:
        """Give a file's bytes; None where there is no such file."""

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        """Give bytes of a file: a view of the mapped file where it is local."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, or put it in another's place: durable, and all of it or nothing."""

    def create(self, name: str) -> Appender:
        """Begin a new file."""

    def finish(self, name: str, length: int, end: bytes) -> None:
        """Cut a file at a length, append its end, and make it durable."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def lock(self) -> Any:
        """Give a context in which nobody else may write; ``LogError`` where somebody does."""


def open_store(uri: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> Store:
    """Give the store of a log: a directory, a URI, or a path in a ``pyarrow.fs`` filesystem."""
    if filesystem is None:
        text = os.fspath(uri)
        if "://" not in text:
            return LocalStore(Path(text).absolute())
        try:
            filesystem, path = fs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise LogError(f"{text} is no place for a log: {error}") from error
    else:
        path = os.fspath(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalStore(Path(path).absolute())
    return ObjectStore(filesystem, path.rstrip("/"))


class LocalStore:
    """Files on a local disk. See :class:`Store`."""

    grows = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = str(directory)

    def names(self) -> list[str]:
        try:
            return sorted(path.name for path in self._directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, name: str) -> int:
        return (self._directory / name).stat().st_size

    def read(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        with pa.memory_map(str(self._directory / name)) as file:
            file.seek(offset)
            return file.read_buffer(length)

    def write(self, name: str, data: bytes) -> None:
        temporary = self._directory / (name + TEMPORARY)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._directory / name)
        self._sync_directory()

    def create(self, name: str) -> Appender:
        return _LocalAppender(self._directory / name, self._sync_directory)

    def finish(self, name: str, length: int, end: bytes) -> None:
        with (self._directory / name).open("r+b") as file:
            file.truncate(length)
            file.seek(length)
            file.write(end)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, name: str) -> None:
        (self._directory / name).unlink()
        self._sync_directory()

    @contextmanager
    def lock(self) -> Iterator[None]:
        self._directory.mkdir(parents=True, exist_ok=True)
        with locked(self._directory / LOCK, self.name):
            yield

    def _sync_directory(self) -> None:
        if sys.platform == "win32":  # which keeps directories by itself
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _LocalAppender:
    def __init__(self, path: Path, sync_directory: Any) -> None:
        self._file = path.open("xb")
        self._sync_directory = sync_directory
        self._is_new = True

    def write(self, data: Any) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _WRITE_BYTES):
            self._file.write(view[start : start + _WRITE_BYTES])

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._is_new:
            self._sync_directory()
            self._is_new = False

    def close(self) -> None:
        self.sync()
        self._file.close()

    def abandon(self) -> None:
        # Closing writes what is buffered; where that fails there is nothing to be lost.
        with suppress(OSError):
            self._file.close()


class ObjectStore:
    """Objects, which are written whole. See :class:`Store`.

    There is no lock: that one process only writes to the log is up to its users.
    """

    grows = False

    def __init__(self, filesystem: fs.FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self.name = f"{filesystem.type_name}:{directory}"

    def names(self) -> list[str]:
        selector = fs.FileSelector(self._directory, allow_not_found=True)
        files = self._filesystem.get_file_info(selector)
        return sorted(file.base_name for file in files if file.type == fs.FileType.File)

    def size(self, name: str) -> int:
        size: int = self._filesystem.get_file_info(self._path(name)).size
        return size

    def read(self, name: str) -> bytes | None:
        try:
            with self._filesystem.open_input_stream(self._path(name), compression=None) as file:
                data: bytes = file.read()
        except FileNotFoundError:
            return None
        return data

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        with self._filesystem.open_input_file(self._path(name)) as file:
            return pa.py_buffer(file.read_at(length, offset))

    def write(self, name: str, data: bytes) -> None:
        with self._filesystem.open_output_stream(self._path(name), compression=None) as file:
            file.write(data)

    def create(self, name: str) -> Appender:
        return _ObjectAppender(self, name)

    def finish(self, name: str, length: int, end: bytes) -> None:
        raise LogError(
            f"{self.name} has a segment {name} that is not sealed, which only a local log can have:"
            " open the log where it was written, once, before you copy it"
        )

    def remove(self, name: str) -> None:
        self._filesystem.delete_file(self._path(name))

    @contextmanager
    def lock(self) -> Iterator[None]:
        self._filesystem.create_dir(self._directory)
        yield

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


class _ObjectAppender:
    """Gathers an object's bytes: nothing is to be seen of it before it is complete."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name
        self._pieces: list[Any] = []

    def write(self, data: Any) -> None:
        self._pieces.append(data)

    def sync(self) -> None:
        raise AssertionError("an object is durable when it is closed")

    def close(self) -> None:
        self._store.write(self._name, b"".join(self._pieces))

    def abandon(self) -> None:
        self._pieces.clear()
