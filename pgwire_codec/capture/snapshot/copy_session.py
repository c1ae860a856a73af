"""CopySession: a connection that reads tables under an exported snapshot."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.interrupt import Interrupted
from pgwire_codec.capture.connection.session_settings import disable_timeouts, pin
from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgwire_codec.capture.catalog.published_tables import PublishedTable
    from pgwire_codec.capture.catalog.sessions import ServerSession
    from pgwire_codec.capture.connection.interrupt import Interrupt

#: For the lock of a table. Shorter than deadlock_timeout, after which the server would end one of
#: the transactions, perhaps not this one.
LOCK_TIMEOUT: Final = "500ms"

_SETTINGS: Final = {
    # An error, not fewer rows, if a policy would hide some: the stream has all.
    "row_security": "off",
    # Every plan reads a table, or a range of its pages, once and in the order of its pages.
    "enable_indexscan": "off",
    "enable_bitmapscan": "off",
    "enable_seqscan": "on",
    "enable_tidscan": "on",
    "max_parallel_workers_per_gather": "0",
    "synchronize_seqscans": "off",
}


class CopySession:
    """A connection whose transaction uses an exported snapshot, and holds locks of the tables.

    Parameters
    ----------
    dsn : str
        Of the database.
    snapshot : str
        Name of the snapshot.
    tables : sequence of PublishedTable
        Tables to lock in ACCESS SHARE mode.
    interrupt : Interrupt
        Ends the connection's statements, and the attempts to open it.
    keeper : ServerSession, optional
        The session that exports the snapshot. After a restart, the server may use the name again
        for another snapshot.
    """

    def __init__(
        self,
        dsn: str,
        snapshot: str,
        tables: Sequence[PublishedTable],
        interrupt: Interrupt,
        keeper: ServerSession | None = None,
    ) -> None:
        self._dsn = dsn
        self._snapshot = snapshot
        self._tables = tables
        self._interrupt = interrupt
        self._keeper = keeper
        self._lock = Lock()  # of the two below
        self._connection: Any = None
        self._is_ended = False

    def open(self) -> None:
        """Open the connection, in place of an earlier one.

        Raises
        ------
        CaptureError
            Transient, when another transaction has locked a table, or when the snapshot does not
            exist any more.
        Interrupted
            When :meth:`end` was called.
        psycopg2.Error
            When the server refuses for another reason.
        """
        self.close()
        connection = connect(self._dsn, self._interrupt)
        with self._lock:
            self._connection = connection
        cursor = self.cursor()
        pin(cursor)
        disable_timeouts(cursor)
        for name, value in _SETTINGS.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
        cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        self._use_snapshot(cursor)
        self._lock_tables(cursor)

    @property
    def connection(self) -> Any:
        """The open connection; raises ``Interrupted`` after :meth:`end`."""
        with self._lock:
            if self._is_ended:
                raise Interrupted
            return self._connection

    def cursor(self) -> Any:
        """Return a cursor of the open connection; raise ``Interrupted`` after :meth:`end`."""
        return self.connection.cursor()

    def end(self) -> None:
        """End the statement, and do not allow another one; called from another thread."""
        with self._lock:
            self._is_ended = True
            if self._connection is not None:
                self._interrupt.end(self._connection)

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            self._interrupt.release(connection)
            connection.close()

    def _use_snapshot(self, cursor: Any) -> None:
        errors = load_psycopg2().errors
        try:
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (self._snapshot,))
        except (errors.InvalidParameterValue, errors.UndefinedObject) as error:
            raise _lost() from error
        if self._keeper is not None and not self._keeper.is_alive(cursor):
            raise _lost()

    def _lock_tables(self, cursor: Any) -> None:
        cursor.execute("SET LOCAL lock_timeout = %s", (LOCK_TIMEOUT,))
        for table in self._tables:
            try:
                cursor.execute(table.lock_command())
            except load_psycopg2().errors.LockNotAvailable as error:
                raise CaptureError(
                    f"table {table.name} is locked by a transaction that alters, truncates or "
                    "drops it",
                    hint="Take the snapshot when that transaction has ended.",
                    is_transient=True,
                ) from error
        cursor.execute("SET LOCAL lock_timeout = 0")


def _lost() -> CaptureError:
    return CaptureError(
        "the server does not have the snapshot any more",
        hint="The session that exported it has ended. Take the snapshot again.",
        is_transient=True,
    )
