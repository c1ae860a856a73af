"""Snapshot of some tables in the midst of a log, as one transaction between two others.

A temporary slot exports a snapshot where it begins. The log is continued up to that LSN, and ends
before the first transaction that commits after it. Then the rows follow, as one synthetic
transaction that truncates the tables first, and after it the stream goes on.

PostgreSQL documentation, "Exporting a Snapshot" (logical decoding) and "Snapshot Synchronization
Functions".
"""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.catalog.published_tables import (
    PublishedTable,
    check_readable,
    check_unchanged,
    published_tables,
)
from pgwire_codec.capture.connection.connect import connect, connect_walsender, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.connection.session_settings import disable_timeouts, pin
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.capture.snapshot.logged_rows import rounds
from pgwire_codec.capture.snapshot.progress import SnapshotProgress
from pgwire_codec.capture.snapshot.snapshot_slot import create_exporting
from pgwire_codec.capture.snapshot.snapshot_transaction import SnapshotTransaction
from pgwire_codec.capture.snapshot.table_copies import TableCopies
from pgwire_codec.capture.snapshot.table_ranges import table_ranges
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.protocol.quoting import qualified_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.snapshot.table_copies import CopiedRows
    from pgwire_codec.capture.start_replication import StreamRequest
    from pgwire_codec.log import LogWriter

#: Seconds to wait for a table that a transaction alters, truncates or drops.
_LOCK_SECONDS: Final = 2

#: Seconds to wait for the transactions in progress, while the stream is not read.
_CREATE_SECONDS: Final = 30.0


class TableAdder:
    """Copies published tables into a log that already has transactions.

    Parameters
    ----------
    dsn : str
        Of the database.
    request : StreamRequest
        Publications, and the form of the values.
    jobs : int
        Number of connections to copy over.
    interrupt : Interrupt
        Ends any wait for the server from another thread.
    caught_up : callable
        Called with an LSN: the log must then have all transactions that commit before it, and no
        part of a later one that is not abandoned.
    copied : callable
        Called with the rows as they arrive, and the progress with them; an exception from it ends
        the snapshot.
    """

    def __init__(
        self,
        dsn: str,
        request: StreamRequest,
        jobs: int,
        *,
        interrupt: Interrupt,
        caught_up: Callable[[int], None],
        copied: Callable[[CopiedRows, SnapshotProgress], None],
    ) -> None:
        self._dsn = dsn
        self._request = request
        self._jobs = jobs
        self._interrupt = interrupt
        self._caught_up = caught_up
        self._copied = copied

    def add(self, writer: LogWriter, names: Sequence[str]) -> None:
        """Copy tables; on return everything is durable.

        An interrupted copy is in the log without its Commit, so that no reader sees it.

        Parameters
        ----------
        writer : LogWriter
            Of a log with a confirmed LSN, whose stream is not being read.
        names : sequence of str
            Names of the tables, ``schema.table``.

        Raises
        ------
        CaptureError
            When a table is not published, or when the server refuses.
        Interrupted
            When ``interrupt`` is set.
        """
        psycopg2 = load_psycopg2()
        walsender = connect_walsender(self._dsn, self._interrupt)
        try:
            with closing(walsender), closing(connect(self._dsn, self._interrupt)) as ordinary:
                self._add(writer, walsender, ordinary.cursor(), names)
        except psycopg2.Error as error:
            raise capture_error(error, self._request.slot) from error
        finally:
            self._interrupt.release()

    def _add(self, writer: LogWriter, walsender: Any, catalog: Any, names: Sequence[str]) -> None:
        disable_timeouts(catalog)
        # Some catalog functions lock the tables, and meanwhile the stream is not read.
        catalog.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
        tables = self._published(catalog, names)
        check_readable(catalog, [table.relation.oid for table in tables])
        lsn, snapshot = self._export(walsender)
        with self._sessions(snapshot, tables) as sessions:
            cursor = sessions[0].cursor()
            check_unchanged(catalog, cursor, tables, self._published(catalog, names))
            ranges = table_ranges(cursor, tables)
            cursor.execute("SELECT (extract(epoch FROM now()) * 1000000)::bigint")
            (now,) = cursor.fetchone()
            self._caught_up(lsn)
            transaction = SnapshotTransaction(writer, np.datetime64(now, "us"))
            # As for a log's first snapshot: a transaction may commit exactly at this LSN.
            transaction.begin(lsn - 1)
            transaction.describe(tables)
            transaction.truncate(tables)
            progress = SnapshotProgress(len(tables), ranges)
            binary = self._request.options.binary
            copies = TableCopies(sessions, binary=binary, interrupt=self._interrupt)
            with closing(copies.rows(ranges, {})) as copied:
                for group in rounds(copied):
                    for rows in group:
                        progress.add(rows)
                        self._copied(rows, progress)
                        transaction.append(rows.messages, rows.offsets)
                    writer.flush()
        transaction.commit(lsn)
        writer.flush(confirm_lsn=lsn, received_lsn=lsn)

    def _published(self, catalog: Any, names: Sequence[str]) -> list[PublishedTable]:
        """Return the tables; raise ``CaptureError`` unless all of them are published."""
        publications = self._request.options.publications
        found = {
            qualified_name(table.schema, table.relation.name): table
            for table in published_tables(catalog, publications)
        }
        missing = [name for name in names if name not in found]
        if missing:
            raise CaptureError(
                f"no such table is published: {', '.join(missing)}",
                hint=f"Add it to the publication ({', '.join(publications)}): ALTER PUBLICATION "
                "... ADD TABLE ...; Partitions can be published under the name of their root.",
            )
        return [table for name, table in found.items() if name in names]

    def _export(self, walsender: Any) -> tuple[int, str]:
        """Create a temporary slot; return its LSN and its snapshot, valid until the next command.

        Creating it waits for the end of all transactions that have written.
        """
        commands = walsender.cursor()
        pin(commands)
        disable_timeouts(commands)
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._interrupt.end(walsender)

        timer = threading.Timer(_CREATE_SECONDS, give_up)
        timer.daemon = True
        timer.start()
        try:
            create_exporting(commands, f"pgwire_codec_{uuid.uuid4().hex}", temporary=True)
        except load_psycopg2().Error as error:
            if not is_late.is_set() or self._interrupt.event.is_set():
                raise
            raise CaptureError(
                f"transactions that were in progress did not end within {_CREATE_SECONDS:.0f} s, "
                "and a snapshot begins after them",
                hint="SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT "
                "NULL ORDER BY xact_start; shows them.",
                is_transient=True,
            ) from error
        finally:
            timer.cancel()
        _, consistent_point, snapshot, _ = commands.fetchone()
        return parse_lsn(consistent_point), snapshot

    @contextmanager
    def _sessions(
        self, snapshot: str, tables: Sequence[PublishedTable]
    ) -> Iterator[list[CopySession]]:
        with ExitStack() as stack:
            sessions = []
            for _ in range(self._jobs):
                session = CopySession(self._dsn, snapshot, tables, self._interrupt)
                sessions.append(stack.enter_context(closing(session)))
                session.open()
            yield sessions
