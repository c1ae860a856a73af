"""Files of a log on a local disk, and the lock of its writer, which ends with its process."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from pgwire_codec.errors import LogError, missing_extra
from pgwire_codec.log.store_errors import LogInUseError, creating, reading, too_short, writing
from pgwire_codec.options import SegmentOptions

_TEMPORARY: Final = ".tmp"
LOCK: Final = "lock"
_PRUNING_LOCK: Final = "pruning-lock"
_COMPACTION_LOCK: Final = "compaction-lock"
_PRUNING_SECONDS: Final = 10.0  # that a pruning waits for another one
_PID_DIGITS: Final = 20  # more than any system's process IDs have
_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)

#: Bytes written at once. Linux writes 8 MB in one call at a tenth of the speed that it has with
#: 1 MB: it looks for a run of free memory of that size.
_WRITE_BYTES: Final = 1 << 20


def free_bytes(folder: Path) -> int | None:
    """Return the room on the disk of a folder, which need not exist; None if it does not fill up.

    Raises ``OSError`` when the disk cannot be read.
    """
    while True:
        try:
            found = shutil.disk_usage(folder)
        except OSError:
            if folder == folder.parent:
                raise
            folder = folder.parent
        else:
            return found.free if found.total else None  # such as /proc


class LocalStore:
    """Files on a local disk. See :class:`Store`.

    Parameters
    ----------
    directory : pathlib.Path
    file_mode : int
        Permissions of files that are created. Those who may read them may search a directory
        that is created.
    """

    grows = True

    @property
    def file_mode(self) -> int:
        """Permissions of files that are created."""
        return self._file_mode

    def __init__(self, directory: Path, file_mode: int = SegmentOptions.file_mode) -> None:
        self._directory = directory
        self._file_mode = file_mode
        self._sector = 1  # the next one to be overwritten, of the only file with sectors
        self.name = str(directory)

    def with_mode_of(self, name: str) -> LocalStore:
        """Return the store with the permissions that a file has for those that are created."""
        path = self._directory / name
        with reading(path):
            mode = path.lstat().st_mode
        # A symbolic link has none of its own, and is replaced.
        return self if stat.S_ISLNK(mode) else LocalStore(self._directory, stat.S_IMODE(mode))

    def names(self) -> list[str]:
        return self._entries(os.DirEntry.is_file)

    def folders(self) -> list[str]:
        """Return the names of the folders in the directory, ascending."""
        return self._entries(os.DirEntry.is_dir)

    def _entries(self, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with reading(self._directory):
            try:
                with os.scandir(self._directory) as entries:
                    return sorted(entry.name for entry in entries if is_wanted(entry))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def size(self, name: str) -> int:
        path = self._directory / name
        with reading(path):
            return path.stat().st_size

    def read(self, name: str) -> bytes | None:
        path = self._directory / name
        with reading(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        path = self._directory / name
        with reading(path):
            size = path.stat().st_size
            if offset + length > size:
                raise too_short(path, size, offset + length)
            with pa.memory_map(str(path)) as file:
                file.seek(offset)
                return file.read_buffer(length)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        path = self._directory / name
        # Others that may write to the directory cannot guess it, nor do writers share it.
        temporary = self._directory / f"{name}.{uuid.uuid4().hex}{_TEMPORARY}"
        with writing(path):
            try:
                with self._open_new(temporary) as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            except Exception:
                with suppress(OSError):  # the first error is the one that matters
                    temporary.unlink()
                raise
            sync_directory(self._directory)

    def overwrite(self, name: str, data: bytes) -> None:
        path = self._directory / name
        with writing(path):
            descriptor = os.open(path, os.O_WRONLY | _BINARY)
            try:
                os.lseek(descriptor, self._sector * len(data), os.SEEK_SET)
                rest = memoryview(data)
                while rest:  # a disk that is almost full takes a part
                    rest = rest[os.write(descriptor, rest) :]
                _sync_data(descriptor)
            finally:
                os.close(descriptor)
        self._sector ^= 1  # the one that is written stays, should the next write be cut short

    def create(self, name: str) -> LocalAppender:
        path = self._directory / name
        with writing(path):
            return LocalAppender(path, self._open_new(path))

    def finish(self, name: str, length: int, end: bytes) -> None:
        path = self._directory / name
        with writing(path), path.open("r+b") as file:
            file.truncate(length)
            file.seek(length)
            file.write(end)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, *names: str) -> None:
        for name in names:
            path = self._directory / name
            with writing(path), suppress(FileNotFoundError):
                path.unlink()
        with writing(self._directory):
            sync_directory(self._directory)

    @contextmanager
    def lock(self) -> Iterator[None]:
        with creating(self._directory):
            self.make_directory()
        with self._lock_of(LOCK, self._being_written):
            yield

    def free_bytes(self) -> int | None:
        return free_bytes(self._directory)

    def pruning_lock(self) -> AbstractContextManager[None]:
        return self._lock_of(_PRUNING_LOCK, self._being_pruned, _PRUNING_SECONDS)

    def compaction_lock(self) -> AbstractContextManager[None]:
        return self._lock_of(_COMPACTION_LOCK, self._being_compacted)

    @contextmanager
    def _lock_of(
        self, name: str, error_of: Callable[[int | None], LogError], seconds: float = 0.0
    ) -> Iterator[None]:
        path = self._directory / name
        with ExitStack() as held:
            with writing(path):
                held.enter_context(_locked(path, self._file_mode, error_of, seconds))
            yield

    def _being_written(self, pid: int | None) -> LogError:
        writer = _holder("writer", pid)
        return LogInUseError(
            f"the log {self.name} is being written by {writer}",
            hint="A log has one writer at a time. End the other one, or write to another log.",
            writer=writer,
        )

    def _being_pruned(self, pid: int | None) -> LogError:
        return LogError(
            f"the log {self.name} is being pruned by {_holder('thread', pid)}",
            hint="Prune it again when the other pruning has ended.",
            is_transient=True,
        )

    def _being_compacted(self, pid: int | None) -> LogError:
        return LogError(
            f"the log {self.name} is being compacted by {_holder('thread', pid)}",
            hint="Compact it again when the other compaction has ended.",
            is_transient=True,
        )

    def make_directory(self) -> None:
        """Create the directory durably, with its parents, if it does not exist."""
        search = (self._file_mode & 0o444) >> 2  # those who may read may search
        _make_parents(self._directory.parent)
        with suppress(FileExistsError):
            self._directory.mkdir(mode=0o700)
            self._directory.chmod(0o700 | self._file_mode | search)
            sync_directory(self._directory.parent)
        if not self._directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _open_new(self, path: Path) -> BinaryIO:
        """Create a file, which must not exist: not even as a symbolic link."""

        def opener(name: str, flags: int) -> int:
            descriptor = os.open(name, flags | _NOFOLLOW, self._file_mode)
            if sys.platform != "win32":
                os.fchmod(descriptor, self._file_mode)  # whatever the umask
            return descriptor

        return open(path, "xb", opener=opener)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":  # which makes directories durable itself
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_parents(directory: Path) -> None:
    """Create a directory and its parents durably, with the usual permissions."""
    if not directory.exists():
        _make_parents(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


class LocalAppender:
    """A new file on a local disk. See :class:`Appender`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._is_new = True

    def write(self, data: Any) -> None:
        view = memoryview(data)
        with writing(self._path):
            for start in range(0, len(view), _WRITE_BYTES):
                self._file.write(view[start : start + _WRITE_BYTES])

    def sync(self) -> None:
        with writing(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            if self._is_new:
                sync_directory(self._path.parent)
                self._is_new = False

    def close(self) -> None:
        self.sync()
        self._file.close()

    def abandon(self) -> None:
        # Closing writes buffered bytes, which may fail: nothing durable is lost.
        with suppress(OSError):
            self._file.close()


def _sync_data(descriptor: int) -> None:
    """Make the bytes of a file durable that has kept its length."""
    if sys.platform in ("win32", "darwin"):  # which have no fdatasync
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


@contextmanager
def _locked(
    path: Path, mode: int, error_of: Callable[[int | None], LogError], seconds: float = 0.0
) -> Iterator[None]:
    """Hold a lock of a log.

    Parameters
    ----------
    path : pathlib.Path
        The lock file, which contains the holder's process ID. It is kept when the lock is released:
        others may already wait for it.
    mode : int
        Permissions of the lock file.
    error_of : callable
        Returns the error for the holder's process ID, if that is known.
    seconds : float
        Time to wait for the lock.

    Raises
    ------
    LogError
        When it is held, in this process or another one, or when the file is a symbolic link, which
        is not followed.
    MissingExtraError
        When filelock is not installed.
    """
    filelock = _load_filelock()
    lock = filelock.FileLock(
        path,
        timeout=seconds,
        mode=mode,
        thread_local=False,  # another thread may close the log
        fallback_to_soft=False,  # a lock that outlives its process would have to be broken by hand
        preserve_lock_file=True,
        on_acquired=_write_pid,
    )
    try:
        lock.acquire()
    except filelock.Timeout:
        raise error_of(_read_pid(path)) from None
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


def _holder(kind: str, pid: int | None) -> str:
    whom = f"another {kind} of this process" if pid == os.getpid() else "another process"
    return f"{whom} (pid {pid or 'unknown'})"


def _load_filelock() -> Any:
    try:
        import filelock
    except ImportError as error:
        raise missing_extra("writing a log needs filelock", "log") from error
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
