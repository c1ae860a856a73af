"""The frames of a replication connection, read and written through libpq itself.

psycopg2's own ``read_message`` cannot be used where nothing may be lost. It compares the position
last confirmed with that of the last message, and on a keepalive confirms everything when the first
is not smaller. But positions do not rise from message to message: a Relation comes with 0, a
streamed transaction with those of its early changes. After one of these it confirms transactions
that the caller has not made durable. It also hides keepalives, without which nobody can tell when
a position was reached. psycopg2 documents ``connection.pgconn_ptr`` for use with ctypes; that is
what happens here.
"""

from __future__ import annotations

from typing import Any, Final

from pgwire_codec.capture.connection.error_hints import CONNECTION_LOST
from pgwire_codec.capture.connection.frames import Frames, Outcome, open_frames
from pgwire_codec.capture.connection.libpq import load_libpq
from pgwire_codec.errors import CaptureError


class StreamEnded(Exception):
    """The server ended the stream.

    Attributes
    ----------
    message : str
        What it said; may be empty.
    sqlstate : str
        The error's code; empty when it ended without an error.
    """

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message, sqlstate)
        self.message = message
        self.sqlstate = sqlstate


_SQLSTATE: Final = ord("C")  # PG_DIAG_SQLSTATE
_LONGEST_WAIT: Final = 60.0  # seconds; poll counts milliseconds in 32 bits


class CopyBoth:
    """One connection in COPY BOTH mode, as START_REPLICATION leaves it.

    Owns the psycopg2 connection: nothing else may use it from here on.

    Attributes
    ----------
    frames : Frames
        The messages that :meth:`read` took in.
    """

    def __init__(self, connection: Any) -> None:
        self._libpq = load_libpq()
        self._connection = connection
        self._pointer: int | None = connection.pgconn_ptr
        self.frames: Frames = open_frames(self._libpq, connection.pgconn_ptr, connection.fileno())

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> Outcome:
        """Take in what arrives; see :meth:`pgwire_codec.capture.connection.frames.Frames.read`.

        Raises
        ------
        StreamEnded
            When nothing will come any more.
        """
        self._require_open()
        seconds = min(seconds, _LONGEST_WAIT)
        outcome = Outcome(self.frames.read(max_messages, max_bytes, stop_lsn, seconds))
        if outcome is Outcome.ENDED:
            raise self._result()
        if outcome is Outcome.BROKEN:
            raise self._broken()
        return outcome

    def write(self, frame: bytes) -> None:
        """Send one frame."""
        pointer = self._require_open()
        if self._libpq.PQputCopyData(pointer, frame, len(frame)) != 1:
            raise self._broken()
        if self._libpq.PQflush(pointer) != 0:
            raise self._broken()

    def close(self) -> None:
        """Close the connection; again does nothing."""
        self._pointer = None
        self._connection.close()

    def _require_open(self) -> int:
        # libpq would crash on the freed pointer.
        if self._pointer is None:
            raise CaptureError("The capture is not open any more. Open a new one to go on.")
        return self._pointer

    def _broken(self) -> StreamEnded:
        text = self._libpq.PQerrorMessage(self._pointer)
        return StreamEnded(_text(text) or "the connection broke", CONNECTION_LOST)

    def _result(self) -> StreamEnded:
        result = self._libpq.PQgetResult(self._pointer)
        if not result:
            return StreamEnded("", "")
        try:
            message = _text(self._libpq.PQresultErrorMessage(result))
            sqlstate = _text(self._libpq.PQresultErrorField(result, _SQLSTATE))
            return StreamEnded(message, sqlstate)
        finally:
            self._libpq.PQclear(result)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").strip()
