"""DiskRoom: the room on the disk of a log, below which a capture waits."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from pgwire_codec.format import format_size
from pgwire_codec.log.local_store import free_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgwire_codec.capture.status import StatusBoard

_SECONDS: Final = 1.0  # between two looks at the disk


class DiskRoom:
    """Room that is to stay free on the disk of a log, so that a write never fails for lack of it.

    Parameters
    ----------
    log : str or path
        Location of the log. An object store has no end.
    min_free_bytes : int
    stopping : threading.Event
        Set to end a wait.
    status_board : StatusBoard
        Shows that the capture waits.
    """

    def __init__(
        self,
        log: str | os.PathLike[str],
        min_free_bytes: int,
        stopping: Event,
        status_board: StatusBoard,
    ) -> None:
        self._folder = os.fspath(log)
        self._least = 0 if "://" in self._folder else min_free_bytes
        self._stopping = stopping
        self._status_board = status_board
        self._looked = -_SECONDS

    def is_short(self) -> bool:
        """Return whether there is too little room, as of the last second."""
        now = monotonic()
        if not self._least or now - self._looked < _SECONDS:
            return False
        self._looked = now
        return self._free() < self._least

    def wait(self, keep_alive: Callable[[], None]) -> None:
        """Wait until there is room, or for the stop, and keep a connection alive meanwhile."""
        state = self._status_board.status.state
        while (free := self._free()) < self._least and not self._stopping.is_set():
            self._status_board.update(
                state="waiting",
                problem=f"the disk of {self._folder} is nearly full: {format_size(free)} are free "
                f"of the {format_size(self._least)} that are to stay free (`min_free_bytes`)",
            )
            keep_alive()
            self._stopping.wait(_SECONDS)
        self._status_board.update(state=state, problem=None)

    def _free(self) -> int:
        found = free_bytes(Path(self._folder).absolute())
        return self._least if found is None else found
