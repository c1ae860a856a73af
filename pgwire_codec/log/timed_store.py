"""TimedStore: a store whose writes are timed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from pgwire_codec.log.store import Appender, Store


class WriteTimes(Protocol):
    """Receives the times of a log's writer, which enters a context for each call.

    The contexts are entered by the thread that writes. A call that hangs is in its context for as
    long as it hangs.
    """

    def flush(self) -> AbstractContextManager[None]:
        """Return the context of a flush, with all its writes."""

    def write(self) -> AbstractContextManager[None]:
        """Return the context of a write that need not be durable yet."""

    def sync(self) -> AbstractContextManager[None]:
        """Return the context of a call that makes a file durable, as fsync or PUT."""


class TimedStore:
    """A store whose writes are timed. See :class:`Store`.

    Parameters
    ----------
    store : Store
    times : WriteTimes
    """

    def __init__(self, store: Store, times: WriteTimes) -> None:
        self._store = store
        self._times = times
        self.name = store.name
        self.grows = store.grows

    def names(self) -> list[str]:
        return self._store.names()

    def size(self, name: str) -> int:
        return self._store.size(name)

    def read(self, name: str) -> bytes | None:
        return self._store.read(name)

    def read_buffer(self, name: str, offset: int, length: int) -> pa.Buffer:
        return self._store.read_buffer(name, offset, length)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        with self._times.sync():
            self._store.write(name, data)

    def overwrite(self, name: str, data: bytes) -> None:
        with self._times.sync():
            self._store.overwrite(name, data)

    def create(self, name: str) -> TimedAppender:
        with self._times.write():
            return TimedAppender(self._store.create(name), self._times)

    def finish(self, name: str, length: int, end: bytes) -> None:
        with self._times.sync():
            self._store.finish(name, length, end)

    def remove(self, *names: str) -> None:
        with self._times.write():
            self._store.remove(*names)

    def lock(self) -> Any:
        return self._store.lock()

    def free_bytes(self) -> int | None:
        return self._store.free_bytes()

    def pruning_lock(self) -> Any:
        return self._store.pruning_lock()

    def compaction_lock(self) -> Any:
        return self._store.compaction_lock()


class TimedAppender:
    """A new file whose writes are timed. See :class:`Appender`."""

    def __init__(self, file: Appender, times: WriteTimes) -> None:
        self._file = file
        self._times = times

    def write(self, data: Any) -> None:
        with self._times.write():
            self._file.write(data)

    def sync(self) -> None:
        with self._times.sync():
            self._file.sync()

    def close(self) -> None:
        with self._times.sync():
            self._file.close()

    def abandon(self) -> None:
        self._file.abandon()
