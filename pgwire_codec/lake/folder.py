"""Files below a folder, on a local disk or in an object store, as tables need them.

A file that is created is durable, with the folders that it is in, and does not overwrite another
one. obstore is the object store of delta-rs for Python: its options and credentials are the same.
"""

from __future__ import annotations

import io
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import pyarrow as pa

from pgwire_codec.errors import missing_extra

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Options of delta-rs about its own commits, which are not options of the store.
_OF_COMMITS: Final = ("aws_s3_", "conditional_put", "copy_if_not_exists")

#: Options of the HTTP client, which obstore keeps apart from those of the store. delta-rs has some
#: of them with the prefix ``aws_``, too.
_OF_CLIENT: Final = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
    "http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url",
    "timeout", "user_agent",
})  # fmt: skip

#: Beginning of a URI, or of a path with a drive.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

#: Names of files that are being created, and seconds after which nothing creates them any more.
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f-]{36}\.tmp")
_ABANDONED_SECONDS: Final = 3600.0


class Folder(Protocol):
    """Files below a folder. Paths are relative to it, with slashes."""

    uri: str

    def names(self, directory: str, after: str = "") -> list[str]:
        """Return the names of the files in a directory that follow another one, sorted."""

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files, by path."""

    def modified(self, directory: str) -> dict[str, float]:
        """Return when the files in a directory were written, by name, in seconds since 1970."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file, or a part. Raises ``FileNotFoundError``."""

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to be read at any place. Raises ``FileNotFoundError``."""

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Create a file as a whole. Raises ``FileExistsError``, and then writes nothing."""

    def writer(self, path: str) -> Any:
        """Return a context with a file to write a new file into; it is removed after an error."""

    def move(self, path: str, target: str) -> None:
        """Move a file, and replace the target if it exists. Raises ``FileNotFoundError``.

        An object store copies the file first.
        """

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""

    def sync(self, *paths: str) -> None:
        """Make files of one directory durable that another program has written."""

    def abandoned(self, directory: str) -> list[str]:
        """Return paths of files that processes had begun to create when they ended."""


def open_folder(uri: str, options: Mapping[str, str] | None = None) -> Folder:
    """Return the folder with a path or URI; ``options`` are those of delta-rs's stores."""
    if "://" not in uri:
        return LocalFolder(Path(uri))
    if uri.startswith("file://"):
        return LocalFolder(Path(uri.removeprefix("file://")))
    return ObjectFolder(uri.rstrip("/"), options or {})


def is_inside(path: str) -> bool:
    """Return whether a path relative to a folder is below it; one with a scheme is not relative."""
    parts = path.replace("\\", "/").split("/")
    return bool(parts[0]) and not _SCHEME.match(path) and ".." not in parts


class LocalFolder:
    """Files on a local disk. See :class:`Folder`."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.uri = str(self._path)

    def names(self, directory: str, after: str = "") -> list[str]:
        try:
            names = os.listdir(self._path / directory)  # noqa: PTH208  (names only)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name > after)

    def exists(self, path: str) -> bool:
        return (self._path / path).exists()

    def sizes(self) -> dict[str, int]:
        sizes = {}
        for directory, _, names in os.walk(self._path):
            for name in names:
                path = Path(directory, name)
                with suppress(FileNotFoundError):
                    sizes[path.relative_to(self._path).as_posix()] = path.stat().st_size
        return sizes

    def modified(self, directory: str) -> dict[str, float]:
        times = {}
        with suppress(FileNotFoundError), os.scandir(self._path / directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    if entry.is_file():
                        times[entry.name] = entry.stat().st_mtime
        return times

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with (self._path / path).open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def open(self, path: str) -> pa.NativeFile:
        return pa.memory_map(str(self._path / path))

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        target = self._path / path
        temporary = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
        try:
            with _new_file(temporary) as file:
                file.write(data)
            # Unlike a rename, a link does not replace a file.
            target.hardlink_to(temporary)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_directory(target.parent)

    @contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        target = self._path / path
        try:
            with _new_file(target) as file:
                yield file
        except FileExistsError:
            raise
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)

    def move(self, path: str, target: str) -> None:
        moved = self._path / target
        _make_directory(moved.parent)
        (self._path / path).replace(moved)
        _sync_directory(moved.parent)

    def remove(self, path: str) -> None:
        (self._path / path).unlink(missing_ok=True)

    def sync(self, *paths: str) -> None:
        for path in paths:
            with (self._path / path).open("r+b") as file:
                os.fsync(file.fileno())
        for directory in {(self._path / path).parent for path in paths}:
            _sync_directory(directory)

    def abandoned(self, directory: str) -> list[str]:
        before = time.time() - _ABANDONED_SECONDS
        return [
            f"{directory}/{name}" if directory else name
            for name, written in self.modified(directory).items()
            if _TEMPORARY.fullmatch(name) and written < before
        ]


#: Directories whose entries in those above them this process has made durable.
_DURABLE: Final[set[Path]] = set()


def _make_directory(path: Path) -> None:
    """Create a directory if need be; it is durable then, with those above it.

    A process that created it may have ended before. So one that exists is durable only once this
    process has made it so: up to the mount point, or to a directory that it cannot have changed.
    """
    if path in _DURABLE and path.is_dir():
        return
    parent = path.parent
    if not path.exists():
        _make_directory(parent)
        path.mkdir(exist_ok=True)
        _sync_directory(parent)
    elif os.access(parent, os.W_OK) and path.stat().st_dev == parent.stat().st_dev:
        if path != parent:
            _make_directory(parent)
        _sync_directory(parent)
    _DURABLE.add(path)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file, whose content is on disk at the end."""
    _make_directory(path.parent)
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    if os.name == "nt":
        return  # it has no such call
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectFolder:
    """Files in an object store. See :class:`Folder`."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self.uri = uri
        self._store = _open_store(uri, options)

    def names(self, directory: str, after: str = "") -> list[str]:
        prefix = f"{directory}/" if directory else ""
        listed = self._store.list(prefix or None, offset=prefix + after if after else None)
        names = (entry["path"].removeprefix(prefix) for chunk in listed for entry in chunk)
        return sorted(name for name in names if "/" not in name)

    def exists(self, path: str) -> bool:
        try:
            self._store.head(path)
        except FileNotFoundError:
            return False
        return True

    def sizes(self) -> dict[str, int]:
        return {entry["path"]: entry["size"] for chunk in self._store.list() for entry in chunk}

    def modified(self, directory: str) -> dict[str, float]:
        prefix = f"{directory}/" if directory else ""
        listed = self._store.list_with_delimiter(prefix or None)["objects"]
        return {
            entry["path"].removeprefix(prefix): entry["last_modified"].timestamp()
            for entry in listed
        }

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if length is not None:
            return bytes(self._store.get_range(path, start=offset, length=length))
        options: Any = {"range": {"offset": offset}} if offset else None
        return bytes(self._store.get(path, options=options).bytes())

    def open(self, path: str) -> pa.NativeFile:
        from obstore import open_reader

        return pa.PythonFile(_ObjectReader(open_reader(self._store, path)), "r")

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(path, data, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            raise FileExistsError(f"{self.uri}/{path} exists") from error

    @contextmanager
    def writer(self, path: str) -> Iterator[Any]:
        from obstore import open_writer

        # Its name is unique: nothing else creates it.
        with open_writer(self._store, path) as file:
            yield _ObjectWriter(file)

    def move(self, path: str, target: str) -> None:
        self._store.rename(path, target, overwrite=True)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._store.delete(path)

    def sync(self, *paths: str) -> None:
        """Do nothing: an object is durable once it exists."""

    def abandoned(self, directory: str) -> list[str]:
        return []  # an object exists as a whole


class _ObjectReader(io.RawIOBase):
    """obstore's reader of an object, as a file of Python's."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        return bytes(self._reader.read(None if size is None or size < 0 else size))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        position: int = self._reader.seek(offset, whence)
        return position

    def tell(self) -> int:
        position: int = self._reader.tell()
        return position


class _ObjectWriter(io.RawIOBase):
    """obstore's writer of an object, as a file of Python's."""

    def __init__(self, writer: Any) -> None:
        self._writer, self._size = writer, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._writer.write(data)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size


def _open_store(uri: str, options: Mapping[str, str]) -> ObjectStore:
    try:
        from obstore.store import from_url
    except ImportError:
        raise missing_extra("tables in an object store need obstore", "lake") from None
    config: Any = {}
    client: Any = {}
    for name, value in options.items():
        lower = name.lower()
        if (of_client := lower.removeprefix("aws_")) in _OF_CLIENT:
            client[of_client] = value
        elif not lower.startswith(_OF_COMMITS):
            config[lower] = value
    return from_url(uri, config=config, client_options=client)
