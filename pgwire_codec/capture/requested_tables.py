"""RequestedTables: the requests of a log to copy tables, as its capture fulfils them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import CaptureError, LogError

if TYPE_CHECKING:
    from pgwire_codec.log.table_requests import TableRequest, TableRequests

_LOCAL_SECONDS: Final = 1.0  # between two looks for requests
_REMOTE_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 60.0  # after an error that can pass by itself


class RequestedTables:
    """Requests that are to be fulfilled.

    No error of a request ends the capture: it goes on with the stream.

    Parameters
    ----------
    log : str or path
        Location of the log.

    Attributes
    ----------
    notes : tuple of str
        What prevents the requests from being fulfilled.
    """

    def __init__(self, log: str | os.PathLike[str]) -> None:
        self._log = log
        self._next_look = 0.0
        self._pending: Mapping[str, TableRequest] = {}
        self.notes: tuple[str, ...] = ()

    @cached_property
    def _requests(self) -> TableRequests:
        from pgwire_codec.log.table_requests import TableRequests

        return TableRequests(self._log)

    def are_due(self) -> bool:
        """Return whether there are requests, as of the last look."""
        now = monotonic()
        if now >= self._next_look:
            self._look()
            seconds = _LOCAL_SECONDS if self._requests.is_local else _REMOTE_SECONDS
            self._next_look = monotonic() + seconds
        return bool(self._pending)

    def fulfil(self, add: Callable[[Sequence[str]], None]) -> None:
        """Have the tables of each request copied."""
        pending, self._pending, self.notes = self._pending, {}, ()
        for name, request in pending.items():
            try:
                add(request.tables)
            except CaptureError as error:
                self.notes += (f"not copied: {', '.join(request.tables)}: {error}",)
                if error.is_transient:
                    self._requests.postpone(name, request, error.primary)
                    self._next_look = monotonic() + _RETRY_SECONDS
                    continue
                if not request.is_automatic:
                    self._requests.fail(name, request, error.primary, error.hint)
                    continue
            self._requests.remove(name)

    def _look(self) -> None:
        try:
            self._pending = self._requests.pending()
        except LogError as error:
            self.notes = (f"the requests of tables cannot be read: {error}",)
