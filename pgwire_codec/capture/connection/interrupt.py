"""Ending what another thread waits for: connection attempts, and statements.

psycopg2's ``cancel()`` is not used: it opens a connection of its own and waits until the server has
closed that, for ever if the server does not answer. Here a daemon thread does the same through
libpq. A statement that has not ended soon after that ends because its socket is shut down. An
attempt to connect cannot be ended, so it is made in a daemon thread that can be left to itself.
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
_LIFE_SECONDS: Final = 5.0  # between looks at whether a thread lives; without memory it may die


class Interrupted(Exception):
    """What was waited for has been given up."""


class Interrupt:
    """Ends what connections wait for, from another thread than theirs.

    All methods can be called from any thread, though not from a signal handler. None waits for a
    server but :meth:`connect`.

    Attributes
    ----------
    event : threading.Event
        Is set from :meth:`set` to :meth:`clear`.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._attempts: set[Future[Any]] = set()
        self._connections: dict[int, _Connection] = {}

    def set(self) -> None:
        """End what is waited for, and every attempt to connect until :meth:`clear`."""
        with self._lock:
            self.event.set()
            for attempt in self._attempts:
                attempt.cancel()
            for connection in self._connections.values():
                connection.end()

    def clear(self) -> None:
        """Let connections be opened again."""
        self.event.clear()

    def connect(self, open_connection: Callable[[], Any]) -> Any:
        """Return the psycopg2 connection that a function opens, and can take long to open.

        What the connection waits for can be ended until it is passed to :meth:`release`.

        Raises
        ------
        Interrupted
            When :meth:`set` was called. The attempt ends by itself, in a daemon thread.
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
        except RuntimeError as error:  # there is no memory for a thread
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
        """End what one connection waits for, and then the connection."""
        with self._lock:
            self._connections[id(connection)].end()

    def release(self, *connections: Any) -> None:
        """Leave connections alone from here on; all of them where none is given."""
        with self._lock:
            for key in map(id, connections) if connections else tuple(self._connections):
                if (released := self._connections.pop(key, None)) is not None:
                    released.close()


def _result(attempt: Future[Any], thread: threading.Thread) -> Any:
    """Wait for the result, as long as the thread lives that is to give it."""
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
    """Ends what a connection waits for."""

    def __init__(self, connection: Any) -> None:
        self._libpq = load_libpq()
        # A descriptor of its own: psycopg2's may be closed, and its number used for something else.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._cancel: int | None = self._libpq.PQgetCancel(connection.pgconn_ptr)
        self._lock = threading.Lock()

    def end(self) -> None:
        """Have the server cancel the statement, and shut the socket down if it does not."""
        cancel, self._cancel = self._cancel, None
        if cancel is None:  # that is being done
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
        # Whether that succeeds shows in the statement.
        self._libpq.PQcancel(cancel, ctypes.create_string_buffer(_ERROR_BYTES), _ERROR_BYTES)
        self._libpq.PQfreeCancel(cancel)

    def _shut_down(self) -> None:
        with self._lock, suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
