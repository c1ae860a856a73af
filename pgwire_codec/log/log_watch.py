"""LogWatch: waits until a log grows."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.log.bounds import WATERMARK
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.store import open_store

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: Shortest and longest seconds between two looks at the log: on a disk, and in an object store,
#: where each is a request.
_PAUSES: Final = (0.005, 0.25)
_STORE_PAUSES: Final = (0.1, 2.0)

_GROWTH: Final = 1.5  # of the pause, while nothing is found

#: Seconds between two looks while the platform reports changes: it does not report those that
#: another machine makes.
_CHECK_SECONDS: Final = 0.5

#: Milliseconds between two looks of the library at what the platform reported: after the log grew,
#: and once it has been quiet for some seconds.
_STEPS: Final = (10, 50)
_QUIET_SECONDS: Final = 5.0


class LogWatch:
    """Waits until a log grows. A context manager.

    On a local disk, a change of the log's files ends the wait, if watchfiles is installed and the
    platform reports it. Otherwise it looks at the log in pauses that grow while nothing is found.

    Parameters
    ----------
    uri : str or path
        Location of an existing log.
    filesystem : pyarrow.fs.FileSystem, optional
        File system in which ``uri`` is a path.
    """

    def __init__(
        self, uri: str | os.PathLike[str], *, filesystem: FileSystem | None = None
    ) -> None:
        self._store = open_store(uri, filesystem)
        is_local = isinstance(self._store, LocalStore)
        self._changes = _watched(Path(self._store.name)) if is_local else None
        self._shortest, self._longest = _PAUSES if is_local else _STORE_PAUSES
        self._pause = self._shortest
        self._known = self._read()
        self._last_growth = monotonic()

    def wait(self, seconds: float, stopped: Event | None = None) -> bool:
        """Wait until the log grows; return whether it has, since the last call that returned True.

        The first call counts from the creation of this object.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        stopped : threading.Event, optional
            Ends the wait when it is set.

        Raises
        ------
        LogError
            When the log cannot be read.
        """
        stopped = stopped or Event()
        end = monotonic() + seconds
        while True:
            found = self._read()
            if found != self._known:
                self._known, self._pause = found, self._shortest
                self._last_growth = monotonic()
                return True
            left = end - monotonic()
            if left <= 0 or stopped.is_set():
                return False
            if self._changes is None:
                stopped.wait(min(self._pause, left))
                self._pause = min(self._pause * _GROWTH, self._longest)
            else:
                self._await_change(self._changes, min(_CHECK_SECONDS, left), stopped)

    def close(self) -> None:
        """End the watching of the files."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def __enter__(self) -> LogWatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> bytes | None:
        """Return the content of the file that each flush changes."""
        return self._store.read(WATERMARK)

    def _await_change(self, changes: Any, seconds: float, stopped: Event) -> None:
        step = _STEPS[monotonic() - self._last_growth > _QUIET_SECONDS]
        if changes.watch(1, step, max(int(seconds * 1000), 1), stopped) == "signal":
            raise KeyboardInterrupt


def _watched(directory: Path) -> Any:
    """Return the reports of changes in a directory; None if they cannot be had."""
    try:
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError
    except ImportError:
        return None
    try:
        return RustNotify([str(directory)], False, False, 0, False, False)
    except (OSError, WatchfilesRustInternalError):  # the platform limits their number
        return None
