"""Interruption of another thread's connection attempts and statements.

psycopg2's ``cancel()`` is not used: it opens a connection of its own and waits until the server has
closed that, for ever if the server does not answer. Here a daemon thread does the same through
libpq. If a statement has not ended soon after that, its socket is shut down. An attempt to connect
cannot be ended, so it is made in a daemon thread that can be abandoned.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FuturesTimeoutError
from contextlib import suppress
from typing import Any, Final

from pgwire_codec.capture.connection.libpq import load_libpq

_CANCEL_SECONDS: Final = 0.75  # for the server to end a statement, before the socket is shut down
_ERROR_BYTES: Final = 256
_LIFE_SECONDS: Final = 5.0  # between checks that a thread is alive; without memory it may die


class Interrupted(Exception):
    """A connection attempt or statement was interrupted."""


class Interrupt:
    """Interruption of connection attempts and statements from another thread.

    All methods can be called from any thread, though not from a signal handler. Only
    :meth:`connect` waits for a server.

    Attributes
    ----------
    event : threading.Event
        Set from :meth:`set` to :meth:`clear`.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._attempts: set[Future[Any]] = set()
        self._connections: dict[int, _Connection] = {}

    def set(self) -> None:
        """End running statements, and every attempt to connect until :meth:`clear`."""
        with self._lock:
            self.event.set()
            for attempt in self._attempts:
                attempt.cancel()
            for connection in self._connections.values():
                connection.end()

    def clear(self) -> None:
        """Allow connections to be opened again."""
        self.event.clear()

    def connect(self, open_connection: Callable[[], Any]) -> Any:
        """Return the psycopg2 connection that a slow function opens.

        Its statements can be interrupted until it is passed to :meth:`release`.

        Raises
        ------
        Interrupted
            When :meth:`set` was called. The attempt goes on in a daemon thread until it ends.
        """
        attempt: Future[Any] = Future()
        with self._lock:
            if self.event.is_set():
                raise Interrupted
            self._attempts.add(attempt)
        thread = threading.Thread(
            target=_connect, args=(open_connection, attempt), name="connect", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no memory for a thread
            raise MemoryError(str(error)) from error
        try:
            connection = _result(attempt, thread)
        except CancelledError:
            raise Interrupted from None
        finally:
            with self._lock:
                self._attempts.discard(attempt)
        with self._lock:
            self._connections[id(connection)] = _Connection(connection)
            if self.event.is_set():
                self._connections[id(connection)].end()
        return connection

    def end(self, connection: Any) -> None:
        """End one connection's statement, and then the connection."""
        with self._lock:
            self._connections[id(connection)].end()

    def release(self, *connections: Any) -> None:
        """Stop managing these connections, or all of them if none is passed."""
        with self._lock:
            for key in map(id, connections) if connections else tuple(self._connections):
                if (released := self._connections.pop(key, None)) is not None:
                    released.close()


def _result(attempt: Future[Any], thread: threading.Thread) -> Any:
    """Return the result of an attempt, waiting as long as its thread is alive."""
    while True:
        alive = thread.is_alive()
        with suppress(TimeoutError, FuturesTimeoutError):
            return attempt.result(_LIFE_SECONDS)
        if not alive:
            raise MemoryError("the thread that connects ended without a result")


def _connect(open_connection: Callable[[], Any], attempt: Future[Any]) -> None:
    try:
        connection = open_connection()
    except BaseException as error:  # noqa: BLE001  (raised where the result is waited for)
        if attempt.set_running_or_notify_cancel():
            attempt.set_exception(error)
        return
    if attempt.set_running_or_notify_cancel():
        attempt.set_result(connection)
    else:
        connection.close()


class _Connection:
    """A connection whose statement can be interrupted."""

    def __init__(self, connection: Any) -> None:
        self._libpq = load_libpq()
        # A descriptor of its own: psycopg2's may be closed, and its number reused.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._cancel: int | None = self._libpq.PQgetCancel(connection.pgconn_ptr)
        self._lock = threading.Lock()

    def end(self) -> None:
        """Ask the server to cancel the statement, and shut the socket down if it does not."""
        cancel, self._cancel = self._cancel, None
        if cancel is None:  # already requested
            return
        threading.Thread(
            target=self._request_cancel, args=(cancel,), name="cancel", daemon=True
        ).start()
        timer = threading.Timer(_CANCEL_SECONDS, self._shut_down)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        with self._lock:
            self._socket.close()
        if self._cancel is not None:
            self._libpq.PQfreeCancel(self._cancel)
            self._cancel = None

    def _request_cancel(self, cancel: int) -> None:
        # The result is of no use: the statement ends, or the socket is shut down.
        self._libpq.PQcancel(cancel, ctypes.create_string_buffer(_ERROR_BYTES), _ERROR_BYTES)
        self._libpq.PQfreeCancel(cancel)

    def _shut_down(self) -> None:
        with self._lock, suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
