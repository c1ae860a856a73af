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

import math
import select
import time
from typing import Any, Final

from pgwire_codec.capture.frames import Frames, Outcome, open_frames
from pgwire_codec.capture.libpq import load_libpq
from pgwire_codec.capture.problems import CONNECTION_LOST
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
_FEW_BYTES: Final = 8 << 10  # half of the buffer that libpq begins with
_GATHER_SECONDS: Final = 0.00005


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
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._arrived = 0  # bytes of messages since the last wait
        self.frames: Frames = open_frames(self._libpq, connection.pgconn_ptr)

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int) -> Outcome:
        """Take in what has arrived; see :meth:`pgwire_codec.capture.frames.Frames.read`.

        Raises
        ------
        StreamEnded
            When nothing will come any more.
        """
        self._require_open()
        before = self.frames.nbytes
        outcome = Outcome(self.frames.read(max_messages, max_bytes, stop_lsn))
        self._arrived += self.frames.nbytes - before
        if outcome is Outcome.ENDED:
            raise self._result()
        if outcome is Outcome.BROKEN:
            raise self._broken()
        return outcome

    def wait(self, seconds: float) -> None:
        """Wait until something arrives, or the time is over."""
        pointer = self._require_open()
        if not self._poll.poll(math.ceil(max(seconds, 0.0) * 1000)):
            return
        # A server that is slower than we are is heard of message by message, and each time costs
        # more than the message does.
        if 0 < self._arrived < _FEW_BYTES:
            time.sleep(_GATHER_SECONDS)
        self._arrived = 0
        if not self._libpq.PQconsumeInput(pointer):
            raise self._broken()

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
