"""A replication connection in COPY BOTH mode, read and written through libpq itself.

psycopg2's ``read_message`` cannot be used, because it can lose data. It compares the last confirmed
position with that of the last message, and on a keepalive confirms everything if the first is not
smaller. But positions do not rise from message to message: a Relation comes with 0, a streamed
transaction with those of its early changes. After one of these it confirms transactions that the
caller has not made durable. It also hides keepalives, which are needed to know that a position was
reached. psycopg2 documents ``connection.pgconn_ptr`` for use with ctypes, as here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final

from pgwire_codec.capture.connection.error_hints import CONNECTION_LOST
from pgwire_codec.capture.connection.frames import Frames, ReadOutcome, open_frames
from pgwire_codec.capture.connection.libpq import connection_error, load_libpq, server_error
from pgwire_codec.capture.connection.notices import Notice, NoticeListener, ServerNotices
from pgwire_codec.errors import CaptureError


class ReplicationEnded(Exception):
    """The server ended the stream.

    Attributes
    ----------
    message : str
        Text of the error; may be empty.
    sqlstate : str
        Code of the error; empty if the stream ended without one.
    """

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message, sqlstate)
        self.message = message
        self.sqlstate = sqlstate


class PublicationSkipped(ReplicationEnded):
    """The server goes on without a publication that does not exist.

    Attributes
    ----------
    notice : Notice
        The server's notice of it.
    """

    def __init__(self, notice: Notice) -> None:
        super().__init__(notice.text, notice.sqlstate)
        self.notice = notice


_LONGEST_WAIT: Final = 60.0  # seconds; poll counts milliseconds in 32 bits
_MOST_WAKES: Final = 1 << 16  # to forget at once


#: By their numbers: a call of the class takes longer.
_OUTCOMES: Final = tuple(ReadOutcome)


class ReplicationConnection:
    """A connection in COPY BOTH mode, as START_REPLICATION leaves it.

    It owns the psycopg2 connection, which nothing else may use from then on.

    Parameters
    ----------
    connection : psycopg2.extras.LogicalReplicationConnection
    listener : NoticeListener
        Of its notices, from before START_REPLICATION: the first frame may be one.
    notices : ServerNotices
        Receives those that do not end the stream.

    Attributes
    ----------
    frames : Frames
        Messages that :meth:`read` has read.
    """

    def __init__(self, connection: Any, listener: NoticeListener, notices: ServerNotices) -> None:
        self._libpq = load_libpq()
        self._connection = connection
        self._pointer: int | None = connection.pgconn_ptr
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self.frames: Frames = open_frames(
            self._libpq, connection.pgconn_ptr, connection.fileno(), self._woken
        )
        self._notices = notices
        self._listener = listener
        listener.count_messages = lambda: self.frames.count

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> ReadOutcome:
        """Read frames; see :meth:`pgwire_codec.capture.connection.frames.Frames.read`.

        Raises
        ------
        ReplicationEnded
            When no more frames will arrive.
        PublicationSkipped
            When a publication does not exist. Messages that came after the notice are dropped.
        """
        self._require_open()
        self._take_notices()
        seconds = min(seconds, _LONGEST_WAIT)
        outcome = _OUTCOMES[self.frames.read(max_messages, max_bytes, stop_lsn, seconds)]
        self._take_notices()
        if outcome is ReadOutcome.ENDED:
            raise self._result()
        if outcome is ReadOutcome.BROKEN:
            raise self._broken()
        if outcome is ReadOutcome.WOKEN:
            os.read(self._woken, _MOST_WAKES)
        return outcome

    def wake(self) -> None:
        """Make :meth:`read` return in the thread that waits in it, or calls it next."""
        with suppress(BlockingIOError):  # woken up often enough
            os.write(self._wake, b"\0")

    def write(self, frame: bytes) -> None:
        """Send one frame."""
        pointer = self._require_open()
        if self._libpq.PQputCopyData(pointer, frame, len(frame)) != 1:
            raise self._broken()
        if self._libpq.PQflush(pointer) != 0:
            raise self._broken()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        if self._pointer is not None:
            self._pointer = None
            os.close(self._woken)
            os.close(self._wake)
            self._listener.close()
        self._connection.close()

    def _take_notices(self) -> None:
        for notice, count in self._listener.take():
            if notice.skips_publication():
                self.frames.cut(count)
                raise PublicationSkipped(notice)
            self._notices.add(notice)

    def _require_open(self) -> int:
        # libpq would crash on the freed pointer.
        if self._pointer is None:
            raise CaptureError("the capture has been closed", hint="Open a new one to go on.")
        return self._pointer

    def _broken(self) -> ReplicationEnded:
        return ReplicationEnded(connection_error(self._libpq, self._pointer), CONNECTION_LOST)

    def _result(self) -> ReplicationEnded:
        result = self._libpq.PQgetResult(self._pointer)
        if not result:
            return ReplicationEnded("", "")
        try:
            sqlstate, text, _ = server_error(self._libpq, result)
            return ReplicationEnded(text, sqlstate)
        finally:
            self._libpq.PQclear(result)
