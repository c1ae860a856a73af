"""HttpServer: a small HTTP server in a thread of this process."""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import StringIO
from socketserver import TCPServer, ThreadingMixIn
from time import monotonic
from typing import IO, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from pgwire_codec.errors import OptionError, PgwireError
from pgwire_codec.format import printable

_LOGGER: Final = logging.getLogger("pgwire_codec.metrics")
_SILENT_SECONDS: Final = 10.0  # in which a client has to send, or to take, the next bytes
_REQUEST_SECONDS: Final = 30.0  # for a request and its response
_MOST_CONNECTIONS: Final = 32
_CUT_SECONDS: Final = 1.0  # in which a connection that is cut ends
_TRANSIENT: Final = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)

#: Function that begins a response of WSGI.
Start = Callable[..., Any]

#: Application of WSGI.
Answer = Callable[[dict[str, Any], Start], Iterable[bytes]]


class HttpServer:
    """HTTP server of one application. A context manager.

    Making it listens on the address. Requests are answered from :meth:`serve` on, and leaving the
    context ends it.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, with brackets around an IPv6 address.

    Attributes
    ----------
    port : int

    Raises
    ------
    OptionError
        For text that is not an address.
    PgwireError
        When the address cannot be listened on, as if another process does.
    """

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        self._server = _listen(host, port)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def serve(self, answer: Answer) -> None:
        """Begin to answer requests."""
        self._server.set_app(_guarded(answer))
        self._thread.start()


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address. Raises ``OptionError`` if it is invalid."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise OptionError(
            f"invalid address {address!r}", hint="Use HOST:PORT, as 127.0.0.1:9187 or [::1]:9187."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def plain_text(start: Start, status: str, text: str) -> list[bytes]:
    """Return the body of a response of plain text, which is begun with this status."""
    start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
    return [f"{text}\n".encode()]


def _listen(host: str, port: int) -> _Server:
    try:
        return _Server(host, port)
    except OSError as error:
        raise PgwireError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Use another address for the metrics, or end the process that has this one.",
            is_transient=error.errno in _TRANSIENT,
        ) from error


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is Python's)
        pass

    def get_stderr(self) -> IO[str]:
        return StringIO()  # of the traceback when a client does not take its response


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        address: Any = found[0][4]
        self._ends: dict[socket.socket, float] = {}  # latest end of each connection, oldest first
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        super().__init__(address[:2], _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without HTTPServer's search for the host's full name
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            # Clients that hold a connection for long do not lock out others.
            for oldest in list(self._ends)[:1]:
                _cut(oldest)
            if not self._free.acquire(timeout=_CUT_SECONDS):
                self.shutdown_request(request)
                return
        self._ends[request] = monotonic() + _REQUEST_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        if self._ends.pop(request, None) is not None:
            self._free.release()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        now = monotonic()
        for request, end in list(self._ends.items()):
            if now >= end:
                _cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # the client is slow or gone
            _LOGGER.warning("could not answer a request for metrics: %s", printable(repr(error)))


def _cut(connection: socket.socket) -> None:
    """End the reads and writes of a connection, whichever thread waits in them."""
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)


def _guarded(answer: Answer) -> Answer:
    """Return an application that answers an error with status 500, and logs it."""

    def guarded(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        try:
            return answer(environ, start)
        except Exception as error:  # noqa: BLE001  (whatever a page fails of)
            path = environ["PATH_INFO"]
            _LOGGER.warning("could not answer %s: %s", printable(path), printable(repr(error)))
            return plain_text(start, "500 Internal Server Error", "failed: see the process's log")

    return guarded
