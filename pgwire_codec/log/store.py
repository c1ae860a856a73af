"""The files of a log: on a local disk, where they grow and are locked, or in an object store."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
from pyarrow import fs

from pgwire_codec.errors import LogError
from pgwire_codec.log.lock import locked

_TEMPORARY: Final = ".tmp"
LOCK: Final = "lock"

#: Permissions of a log's files: its owner's alone, as PostgreSQL's data directory.
FILE_MODE: Final = 0o600

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
    """A flat directory of files. Its methods raise ``LogError`` where the file system fails."""

    name: str  #: for people
    grows: bool  #: whether a file can be read, and is durable up to some byte, while it grows

    def names(self) -> list[str]:
        """Give the names of the files, ascending; none where there is no such directory."""

    def size(self, name: str) -> int:
        """Give a file's length in bytes."""

    def read(self, name: str) -> bytes | None:
        """Give a file's bytes; None where there is no such file."""

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        """Return so many bytes of a file: a view of the mapped file where it is local."""

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a whole file, or put it in another's place: durable, and all of it or nothing."""

    def create(self, name: str) -> Appender:
        """Begin a new file."""

    def finish(self, name: str, length: int, end: bytes) -> None:
        """Cut a file at a length, append its end, and make it durable."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def lock(self) -> Any:
        """Give a context in which nobody else may write; ``LogError`` where somebody does."""


def open_store(
    uri: str | os.PathLike[str],
    filesystem: fs.FileSystem | None = None,
    *,
    file_mode: int = FILE_MODE,
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


@contextmanager
def _reading(path: object, *, is_remote: bool = False) -> Iterator[None]:
    """Turn errors of the file system into ``LogError``."""
    try:
        yield
    except FileNotFoundError:
        raise LogError(
            f"{path} is missing",
            hint="If the log was pruned meanwhile, open it again. Else restore the file from a "
            "copy of the log.",
        ) from None
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise LogError(f"cannot read {path}: {reason}", is_transient=is_remote) from error


@contextmanager
def _making(path: object, *, is_remote: bool = False) -> Iterator[None]:
    """Turn errors of the creation of a log's folder into ``LogError``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise LogError(
            f"cannot create the log {path}: {getattr(error, 'strerror', None) or error}",
            hint="Remove the cause, or capture into a log elsewhere.",
            is_transient=is_remote or _is_full(error),
        ) from error


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def _writing(path: object, *, is_remote: bool = False) -> Iterator[None]:
    """Turn errors of the file system into ``LogError``."""
    try:
        yield
    except OSError as error:
        is_full = _is_full(error)
        advice = "Free some space" if is_full else "Remove the cause"
        raise LogError(
            f"cannot write {path}: {error.strerror or error}",
            hint=f"{advice} and open the log again. What was flushed is safe.",
            is_transient=is_full or is_remote,
        ) from error


class LocalStore:
    """Files on a local disk. See :class:`Store`.

    Parameters
    ----------
    directory : pathlib.Path
    file_mode : int
        Permissions of files that are created. A directory that is created can be searched by
        whoever can read these.
    """

    grows = True

    def __init__(self, directory: Path, file_mode: int = FILE_MODE) -> None:
        self._directory = directory
        self._file_mode = file_mode
        self.name = str(directory)

    def names(self) -> list[str]:
        with _reading(self._directory):
            try:
                with os.scandir(self._directory) as entries:
                    return sorted(entry.name for entry in entries if entry.is_file())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def size(self, name: str) -> int:
        path = self._directory / name
        with _reading(path):
            return path.stat().st_size

    def read(self, name: str) -> bytes | None:
        path = self._directory / name
        with _reading(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        path = self._directory / name
        with _reading(path):
            size = path.stat().st_size
            if offset + length > size:
                raise _too_short(path, size, offset + length)
            with pa.memory_map(str(path)) as file:
                file.seek(offset)
                return file.read_buffer(length)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._directory / name
        temporary = self._directory / (name + _TEMPORARY)
        with _writing(path):
            with self._open_new(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            self._sync_directory()

    def create(self, name: str) -> Appender:
        path = self._directory / name
        with _writing(path):
            return _LocalAppender(path, self._open_new(path, "xb"), self._sync_directory)

    def finish(self, name: str, length: int, end: bytes) -> None:
        path = self._directory / name
        with _writing(path), path.open("r+b") as file:
            file.truncate(length)
            file.seek(length)
            file.write(end)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, name: str) -> None:
        path = self._directory / name
        with _writing(path):
            with suppress(FileNotFoundError):
                path.unlink()
            self._sync_directory()

    @contextmanager
    def lock(self) -> Iterator[None]:
        with _making(self._directory):
            self._make_directory()
        path = self._directory / LOCK
        with ExitStack() as held:
            with _writing(path):
                held.enter_context(locked(path, self.name, self._file_mode))
            yield

    def _make_directory(self) -> None:
        search = (self._file_mode & 0o444) >> 2  # who may read may search
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self._directory.mkdir(mode=0o700)
            self._directory.chmod(0o700 | self._file_mode | search)
        if not self._directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _open_new(self, path: Path, how: str) -> BinaryIO:
        def opener(name: str, flags: int) -> int:
            descriptor = os.open(name, flags, self._file_mode)
            if sys.platform != "win32":
                os.fchmod(descriptor, self._file_mode)  # whatever the umask
            return descriptor

        return open(path, how, opener=opener)  # type: ignore[return-value]

    def _sync_directory(self) -> None:
        if sys.platform == "win32":  # which keeps directories by itself
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _too_short(path: object, size: int, wanted: int) -> LogError:
    return LogError(
        f"{path} has {size} bytes, and {wanted} of it belong to the log",
        hint="Restore it from a copy of the log.",
    )


class _LocalAppender:
    def __init__(self, path: Path, file: BinaryIO, sync_directory: Any) -> None:
        self._path = path
        self._file = file
        self._sync_directory = sync_directory
        self._is_new = True

    def write(self, data: Any) -> None:
        view = memoryview(data)
        with _writing(self._path):
            for start in range(0, len(view), _WRITE_BYTES):
                self._file.write(view[start : start + _WRITE_BYTES])

    def sync(self) -> None:
        with _writing(self._path):
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
        with _reading(self.name, is_remote=True):
            files = self._filesystem.get_file_info(selector)
        return sorted(file.base_name for file in files if file.type == fs.FileType.File)

    def size(self, name: str) -> int:
        with _reading(self._label(name), is_remote=True):
            size: int | None = self._filesystem.get_file_info(self._path(name)).size
            if size is None:
                raise FileNotFoundError
            return size

    def read(self, name: str) -> bytes | None:
        with _reading(self._label(name), is_remote=True):
            try:
                with self._filesystem.open_input_stream(self._path(name), compression=None) as file:
                    data: bytes = file.read()
            except FileNotFoundError:
                return None
            return data

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        with _reading(self._label(name), is_remote=True):
            with self._filesystem.open_input_file(self._path(name)) as file:
                data = file.read_at(length, offset)
            if len(data) < length:
                raise _too_short(self._label(name), offset + len(data), offset + length)
            return pa.py_buffer(data)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        with (
            _writing(self._label(name), is_remote=True),
            self._filesystem.open_output_stream(self._path(name), compression=None) as file,
        ):
            file.write(data)

    def create(self, name: str) -> Appender:
        return _ObjectAppender(self, name)

    def finish(self, name: str, length: int, end: bytes) -> None:
        raise LogError(
            f"{self.name} has a segment {name} that is not sealed, which only a local log can have",
            hint="Open the log for writing where it was written, then copy it again.",
        )

    def remove(self, name: str) -> None:
        with _writing(self._label(name), is_remote=True), suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path(name))

    @contextmanager
    def lock(self) -> Iterator[None]:
        with _making(self.name, is_remote=True):
            self._filesystem.create_dir(self._directory)
        yield

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _label(self, name: str) -> str:
        return f"{self.name}/{name}"


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
