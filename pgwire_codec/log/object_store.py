"""Files of a log in an object store, which are written whole."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from pgwire_codec.errors import LogError
from pgwire_codec.log.store_errors import creating, reading, too_short, writing

#: Requests at once: each takes some ten milliseconds, whatever its size.
REQUESTS: Final = 16


class ObjectStore:
    """Objects, which are written whole. See :class:`Store`.

    It has no locks: users must ensure that only one process writes to the log, and that one at a
    time prunes or compacts it.
    """

    grows = False

    def __init__(self, filesystem: fs.FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self.name = f"{filesystem.type_name}:{directory}"

    def names(self) -> list[str]:
        selector = fs.FileSelector(self._directory, allow_not_found=True)
        with reading(self.name, is_remote=True):
            files = self._filesystem.get_file_info(selector)
        return sorted(file.base_name for file in files if file.type == fs.FileType.File)

    def size(self, name: str) -> int:
        with reading(self._label(name), is_remote=True):
            size: int | None = self._filesystem.get_file_info(self._path(name)).size
            if size is None:
                raise FileNotFoundError
            return size

    def read(self, name: str) -> bytes | None:
        with reading(self._label(name), is_remote=True):
            try:
                with self._filesystem.open_input_stream(self._path(name), compression=None) as file:
                    data: bytes = file.read()
            except FileNotFoundError:
                return None
            return data

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        with reading(self._label(name), is_remote=True):
            with self._filesystem.open_input_file(self._path(name)) as file:
                data = file.read_at(length, offset)
            if len(data) < length:
                raise too_short(self._label(name), offset + len(data), offset + length)
            return pa.py_buffer(data)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        with (
            writing(self._label(name), is_remote=True),
            self._filesystem.open_output_stream(self._path(name), compression=None) as file,
        ):
            file.write(data)

    def overwrite(self, name: str, data: bytes) -> None:
        raise AssertionError("an object is written whole")

    def create(self, name: str) -> ObjectAppender:
        return ObjectAppender(self, name)

    def finish(self, name: str, length: int, end: bytes) -> None:
        raise LogError(
            f"{self.name} has a segment {name} that is not sealed, which only a local log can have",
            hint="Open the log for writing where it was written, then copy it again.",
        )

    def remove(self, *names: str) -> None:
        """Remove objects, as far as they exist: those of a segment in this order."""
        of_segments = [list(each) for _, each in groupby(names, lambda name: name.split(".")[0])]
        with ThreadPoolExecutor(REQUESTS) as threads:
            for _ in threads.map(self._remove, of_segments):
                pass  # which raises the first error

    def _remove(self, names: list[str]) -> None:
        for name in names:
            with writing(self._label(name), is_remote=True), suppress(FileNotFoundError):
                self._filesystem.delete_file(self._path(name))

    @contextmanager
    def lock(self) -> Iterator[None]:
        with creating(self.name, is_remote=True):
            self._filesystem.create_dir(self._directory)
        yield

    def free_bytes(self) -> int | None:
        return None

    def pruning_lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def compaction_lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _label(self, name: str) -> str:
        return f"{self.name}/{name}"


class ObjectAppender:
    """A new object, which does not exist before it is closed. See :class:`Appender`."""

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
