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

import ctypes
import selectors
from typing import Any

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


_SQLSTATE = ord("C")  # PG_DIAG_SQLSTATE


def _load_libpq() -> ctypes.CDLL:
    """Give the libpq that psycopg2 is linked with, whichever that is."""
    import psycopg2._psycopg

    # A symbol is looked up in the module and in what the module depends on.
    libpq = ctypes.CDLL(psycopg2._psycopg.__file__)
    signatures: list[tuple[str, Any, list[Any]]] = [
        ("PQgetCopyData", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]),
        ("PQputCopyData", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
        ("PQflush", ctypes.c_int, [ctypes.c_void_p]),
        ("PQconsumeInput", ctypes.c_int, [ctypes.c_void_p]),
        ("PQfreemem", None, [ctypes.c_void_p]),
        ("PQerrorMessage", ctypes.c_char_p, [ctypes.c_void_p]),
        ("PQgetResult", ctypes.c_void_p, [ctypes.c_void_p]),
        ("PQclear", None, [ctypes.c_void_p]),
        ("PQresultErrorMessage", ctypes.c_char_p, [ctypes.c_void_p]),
        ("PQresultErrorField", ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
    ]
    for name, result, arguments in signatures:
        try:
            function = getattr(libpq, name)
        except AttributeError as error:
            raise CaptureError(
                f"This build of psycopg2 does not give access to libpq ({name} is missing). "
                "Install a wheel of psycopg2-binary for Linux or macOS, or build psycopg2 against "
                "a shared libpq."
            ) from error
        function.restype = result
        function.argtypes = arguments
    return libpq


class CopyBoth:
    """One connection in COPY BOTH mode, as START_REPLICATION leaves it.

    Owns the psycopg2 connection: nothing else may use it from here on.
    """

    def __init__(self, connection: Any) -> None:
        self._libpq = _load_libpq()
        self._connection = connection
        self._pointer: int | None = connection.pgconn_ptr
        self._buffer = ctypes.c_void_p()
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection.fileno(), selectors.EVENT_READ)

    def read(self) -> bytes | None:
        """Give the next frame that has arrived; None when there is none yet.

        Raises
        ------
        StreamEnded
            When there will be none any more.
        """
        pointer = self._require_open()
        length: int = self._libpq.PQgetCopyData(pointer, ctypes.byref(self._buffer), 1)
        if length > 0:
            data = ctypes.string_at(self._buffer.value or 0, length)
            self._libpq.PQfreemem(self._buffer)
            return data
        if length == 0:
            return None
        if length == -1:
            raise self._result()
        raise self._broken()

    def wait(self, seconds: float) -> None:
        """Wait until something arrives, or the time is over."""
        pointer = self._require_open()
        if self._selector.select(max(seconds, 0.0)) and not self._libpq.PQconsumeInput(pointer):
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
        self._selector.close()
        self._connection.close()

    def _require_open(self) -> int:
        # libpq would crash on the freed pointer.
        if self._pointer is None:
            raise CaptureError("The capture is closed. Open a new one to go on.")
        return self._pointer

    def _broken(self) -> StreamEnded:
        text = self._libpq.PQerrorMessage(self._pointer)
        return StreamEnded(_text(text) or "the connection broke", "08006")

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
