"""Pruner: removes what a log need not keep while it is captured into."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import os

    from pgwire_codec.log import Retention

_SECONDS: Final = 60.0  # between two prunings
_END_SECONDS: Final = 1.0  # in which a pruning may end after the capture; it can be interrupted


class Pruner:
    """Prunes a log at once, and then each minute, in a thread of its own.

    A context manager. An error does not end the capture: nothing is removed then, and the next
    pruning may succeed.

    Parameters
    ----------
    log : str or path
        Location of an existing log.
    retention : Retention
    seconds : float
        Time between two prunings.

    Attributes
    ----------
    removed : int
        Number of segments that were removed.
    notes : tuple of str
        The error of the last pruning, if it failed.
    """

    def __init__(
        self, log: str | os.PathLike[str], retention: Retention, seconds: float = _SECONDS
    ) -> None:
        self._log = log
        self._retention = retention
        self._seconds = seconds
        self._stopping = threading.Event()
        # A daemon: a file system that does not answer keeps no process alive.
        self._thread = threading.Thread(target=self._run, name="pruner", daemon=True)
        self.removed = 0
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Pruner:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        import pyarrow as pa

        from pgwire_codec.log import retain

        while True:
            try:
                self.removed += len(retain(self._log, self._retention))
                pa.default_memory_pool().release_unused()  # which was needed for the log's index
                self.notes = ()
            except Exception as error:  # noqa: BLE001  (shown as a note)
                self.notes = (f"the log is not pruned: {error}",)
            if self._stopping.wait(self._seconds):
                break
