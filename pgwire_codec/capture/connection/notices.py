"""Notices of a server: warnings beside the results of a connection, as libpq receives them.

libpq handles a notice when it comes to it among the frames, so that its place among the messages
is exact. psycopg2 has only the text of notices, which is in the server's language.

PostgreSQL documentation, "Notice Processing" (libpq) and "Error and Notice Message Fields".
"""

from __future__ import annotations

import ctypes
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec.capture.connection.error_hints import server_text
from pgwire_codec.capture.connection.libpq import load_libpq, result_fields
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import format_lsn

#: PG_DIAG_SQLSTATE, _MESSAGE_PRIMARY, _MESSAGE_DETAIL, _CONTEXT and _SOURCE_FUNCTION.
_FIELDS: Final = b"CMDWR"
#: Function of pgoutput.c whose notice is that it leaves out a missing publication, from PostgreSQL
#: 18 on. The text is in the server's language, and the SQLSTATE is of other notices, too.
_LOADS_PUBLICATIONS: Final = "LoadPublications"
_MOST_NOTES: Final = 10

_Receiver = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice or warning of the server.

    Attributes
    ----------
    sqlstate : str
    primary : str
        Primary text, in the server's language.
    text : str
        All of its text, in one line.
    function : str
        Function of the server's source that reported it.
    """

    sqlstate: str
    primary: str
    text: str
    function: str

    def skips_publication(self) -> bool:
        """Return whether pgoutput goes on without a publication that does not exist."""
        return self.function == _LOADS_PUBLICATIONS


class NoticeListener:
    """Receives the notices of a connection in place of psycopg2, until it is closed.

    Parameters
    ----------
    connection : psycopg2.extensions.connection
    forwards : bool
        Whether psycopg2 receives them as well.

    Attributes
    ----------
    count_messages : callable
        Returns the number of messages that were read before a notice.
    """

    def __init__(self, connection: Any, *, forwards: bool = False) -> None:
        self.count_messages: Callable[[], int] = lambda: 0
        self._heard: deque[tuple[Notice, int]] = deque()
        self._failure: BaseException | None = None
        self._forwards = forwards
        self._libpq = load_libpq()
        self._pointer: int | None = connection.pgconn_ptr
        self._receiver = _Receiver(self._receive)  # libpq keeps no reference
        receiver = ctypes.cast(self._receiver, ctypes.c_void_p)
        self._previous = self._libpq.PQsetNoticeReceiver(self._pointer, receiver, None)

    def take(self) -> Iterator[tuple[Notice, int]]:
        """Yield each notice once, with the number of messages that were read before it.

        Raises the error with which one could not be received, such as ``MemoryError``.
        """
        while self._heard:
            yield self._heard.popleft()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Return the notices to psycopg2 from now on; a second call does nothing."""
        if self._pointer is not None:
            self._libpq.PQsetNoticeReceiver(self._pointer, self._previous, None)
            self._pointer = None

    def _receive(self, _: int | None, result: int) -> None:
        try:
            fields = result_fields(self._libpq, result, _FIELDS)
            sqlstate, primary, detail, context, function = fields
            notice = Notice(sqlstate, primary, server_text(primary, detail, context), function)
            self._heard.append((notice, self.count_messages()))
            if self._forwards:
                _Receiver(self._previous)(None, result)
        except BaseException as error:  # noqa: BLE001  (C cannot pass it on; take raises it)
            self._failure = error


class ServerNotices:
    """Notices of the connections of a capture, as notes and as numbers.

    Any thread may read it.

    Attributes
    ----------
    notes : tuple of str
        The last different ones.
    counts : dict of str to int
        Number of notices by SQLSTATE.
    """

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self.counts: dict[str, int] = {}

    def add(self, notice: Notice) -> None:
        """Count a notice."""
        count = self.counts.get(notice.sqlstate, 0) + 1
        self.counts = {**self.counts, notice.sqlstate: count}
        note = f"the server reported: {notice.text}"
        if note not in self.notes:
            self.notes = (*self.notes, note)[-_MOST_NOTES:]


def missing_publication(
    notice: Notice, publications: Sequence[str], lsn: int, slot: str
) -> CaptureError:
    """Return the error for a publication that pgoutput skips after an LSN."""
    named = [name for name in publications if _is_named(name, notice.primary)]
    names = ", ".join(f'"{name}"' for name in named or publications)
    return CaptureError(
        f"publication {names} does not exist at a change after {format_lsn(lsn)}: from there on, "
        f'rows are missing from the stream of replication slot "{slot}"',
        hint="The publication was dropped, or the slot is older than it, and the server sends the "
        "other changes without an error. Create the publication, then a new slot, and begin a new "
        "log with a snapshot.",
        sqlstate=notice.sqlstate,
    )


def _is_named(name: str, text: str) -> bool:
    """Return whether a text in any language has a name in quotation marks."""
    return re.search(rf"[^\w\s]\s?{re.escape(name)}\s?[^\w\s]", text) is not None
