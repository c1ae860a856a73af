"""Direct calls of the libpq that psycopg2 is linked with, for what psycopg2 lacks."""

from __future__ import annotations

import ctypes
import re
import select
import time
from functools import cache
from typing import Any, Final

from pgwire_codec.capture.connection.error_hints import server_text
from pgwire_codec.errors import CaptureError

_SIGNATURES: Final[tuple[tuple[str, Any, list[Any]], ...]] = (
    ("PQgetCopyData", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]),
    ("PQputCopyData", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
    ("PQsendQuery", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    ("PQflush", ctypes.c_int, [ctypes.c_void_p]),
    ("PQconsumeInput", ctypes.c_int, [ctypes.c_void_p]),
    ("PQfreemem", None, [ctypes.c_void_p]),
    ("PQerrorMessage", ctypes.c_char_p, [ctypes.c_void_p]),
    ("PQgetResult", ctypes.c_void_p, [ctypes.c_void_p]),
    ("PQresultStatus", ctypes.c_int, [ctypes.c_void_p]),
    ("PQclear", None, [ctypes.c_void_p]),
    ("PQresultErrorMessage", ctypes.c_char_p, [ctypes.c_void_p]),
    ("PQresultErrorField", ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]),
    ("PQsetNoticeReceiver", ctypes.c_void_p, [ctypes.c_void_p] * 3),
    ("PQconnectStart", ctypes.c_void_p, [ctypes.c_char_p]),
    ("PQconnectPoll", ctypes.c_int, [ctypes.c_void_p]),
    ("PQconnectionNeedsPassword", ctypes.c_int, [ctypes.c_void_p]),
    ("PQsocket", ctypes.c_int, [ctypes.c_void_p]),
    ("PQsetErrorVerbosity", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    ("PQfinish", None, [ctypes.c_void_p]),
    ("PQgetCancel", ctypes.c_void_p, [ctypes.c_void_p]),
    ("PQcancel", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
    ("PQfreeCancel", None, [ctypes.c_void_p]),
)

#: PG_DIAG_SQLSTATE, _MESSAGE_PRIMARY, _MESSAGE_DETAIL, _CONTEXT and _MESSAGE_HINT.
_ERROR_FIELDS: Final = b"CMDWH"
_CONNECTED: Final = 3  # PGRES_POLLING_OK
_EVENTS: Final = {1: select.POLLIN, 2: select.POLLOUT}  # PGRES_POLLING_READING, _WRITING
_SQLSTATE_ONLY: Final = 3  # PQERRORS_SQLSTATE, from libpq 12 on
_WRONG_PASSWORD: Final = "28P01"


@cache
def load_libpq() -> ctypes.CDLL:
    """Return the libpq that psycopg2 is linked with."""
    import psycopg2._psycopg

    # A symbol is looked up in the module and in what the module depends on.
    libpq = ctypes.CDLL(psycopg2._psycopg.__file__)
    for name, result, arguments in _SIGNATURES:
        try:
            function = getattr(libpq, name)
        except AttributeError as error:
            raise CaptureError(
                f"unsupported build of psycopg2: libpq's {name} is missing",
                hint="Install a wheel of psycopg2-binary for Linux or macOS, or build psycopg2 "
                "against a shared libpq.",
            ) from error
        function.restype = result
        function.argtypes = arguments
    return libpq


def addresses_of(*functions: Any) -> list[int]:
    """Return the addresses of some of its functions, for compiled code."""
    return [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions]


def server_error(libpq: Any, result: int) -> tuple[str, str, str]:
    """Return SQLSTATE, text and hint of the error of a result; each is empty if it has none."""
    sqlstate, primary, detail, context, hint = result_fields(libpq, result, _ERROR_FIELDS)
    text = server_text(primary, detail, context)
    return sqlstate, text or _text(libpq.PQresultErrorMessage(result)), hint


def result_fields(libpq: Any, result: int, fields: bytes) -> list[str]:
    """Return fields of a result's error or notice by their codes; empty for each that it lacks."""
    return [_text(libpq.PQresultErrorField(result, field)) for field in fields]


def connection_error(libpq: Any, connection: int | None) -> str:
    """Return the text of what broke a connection."""
    return _text(libpq.PQerrorMessage(connection)) or "the connection broke"


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").strip()


def failed_connection_codes(dsn: str, seconds: float = 10.0) -> list[str]:
    """Try to connect, and return the SQLSTATEs with which servers refused the connection.

    psycopg2 has only the text of a refusal, which is in the server's language. The list is empty
    if the connection succeeds, or if no server answers.
    """
    libpq = load_libpq()
    connection = libpq.PQconnectStart(dsn.encode())
    if not connection:
        return []
    try:
        libpq.PQsetErrorVerbosity(connection, _SQLSTATE_ONLY)
        deadline = time.monotonic() + seconds
        status = 2  # first wait for the socket to be writable
        while status in _EVENTS and time.monotonic() < deadline:
            socket = libpq.PQsocket(connection)
            if socket < 0:  # no address to connect to
                break
            poll = select.poll()
            poll.register(socket, _EVENTS[status])
            poll.poll(100)
            status = libpq.PQconnectPoll(connection)
        if status == _CONNECTED:
            return []
        if libpq.PQconnectionNeedsPassword(connection):
            return [_WRONG_PASSWORD]
        text = (libpq.PQerrorMessage(connection) or b"").decode("utf-8", "replace")
        return re.findall(r":\s+([0-9A-Z]{5})$", text, re.MULTILINE)
    finally:
        libpq.PQfinish(connection)
