"""KeptSnapshot: a session of the server that keeps a snapshot after the death of its capture.

A server does not notice that the client of a session is gone as long as it executes a statement
(``client_connection_check_interval``). The statement of this session waits until the session of the
capture has ended, and then some minutes more. Its transaction keeps the snapshot for as long.

PostgreSQL documentation, "Snapshot Synchronization Functions" and "Advisory Lock Functions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.catalog.sessions import ServerSession
from pgwire_codec.capture.connection.libpq import load_libpq
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgwire_codec.capture.catalog.published_tables import PublishedTable
    from pgwire_codec.capture.connection.interrupt import Interrupt

#: Seconds that a snapshot is kept, and its tables are locked, after the death of the capture.
KEEP_SECONDS: Final = 600

#: Class of the advisory locks, "pgwc"; the object is the process ID of the capture's session.
_LOCK_CLASS: Final = 0x70677763


class KeptSnapshot:
    """A session that keeps a snapshot and locks of its tables.

    Parameters
    ----------
    dsn : str
        Of the database.
    snapshot : str
        Name of the snapshot, which another session exports.
    tables : sequence of PublishedTable
        Tables to lock.
    owner
        Cursor of the capture's session, whose end begins the last minutes.
    interrupt : Interrupt
        Ends the session's statement.
    keeper : ServerSession, optional
        The session that exports the snapshot.

    Attributes
    ----------
    name : str
        Name under which this session exports the snapshot.
    keeper : ServerSession
        The session, for other connections.
    session : CopySession
        The session; it can be used before :meth:`keep` is called.
    """

    def __init__(
        self,
        dsn: str,
        snapshot: str,
        tables: Sequence[PublishedTable],
        owner: Any,
        interrupt: Interrupt,
        keeper: ServerSession | None = None,
    ) -> None:
        self._owner = owner
        self.session = CopySession(dsn, snapshot, tables, interrupt, keeper)
        try:
            self.session.open()
            cursor = self.session.cursor()
            cursor.execute(
                "SELECT set_config(name, '0', false) FROM pg_settings"
                " WHERE name = 'client_connection_check_interval'"
            )
            cursor.execute("SELECT pg_export_snapshot()")
            (self.name,) = cursor.fetchone()
            self.keeper = ServerSession.of(cursor)
        except BaseException:
            self.session.close()
            raise

    def keep(self) -> None:
        """Begin to keep the snapshot; after that, the session cannot be used."""
        self._owner.execute("SELECT pg_advisory_lock(%s, pg_backend_pid())", (_LOCK_CLASS,))
        owner_pid = self._owner.connection.info.backend_pid
        statement = f"SELECT pg_advisory_lock({_LOCK_CLASS}, {owner_pid}), pg_sleep({KEEP_SECONDS})"
        connection = self.session.cursor().connection
        if not load_libpq().PQsendQuery(connection.pgconn_ptr, statement.encode()):
            raise CaptureError("the connection was lost", is_transient=True)

    def end(self) -> None:
        """End the session; the snapshot is lost."""
        self.keeper.end(self._owner)

    def close(self) -> None:
        """Close the connection, which does not end the session at once."""
        self.session.close()
