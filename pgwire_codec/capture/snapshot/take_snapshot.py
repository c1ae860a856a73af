"""Snapshot of the published tables where a new slot starts, as one transaction before its stream.

Creating the slot exports a snapshot. Transactions that are committed in it are copied; those that
commit later are in the stream. The copy is one synthetic plain transaction with xid 0.

PostgreSQL documentation, "Exporting a Snapshot" (logical decoding) and "Snapshot Synchronization
Functions".
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.batch import EPOCH
from pgwire_codec.capture.catalog.publications import ensure_publications
from pgwire_codec.capture.catalog.published_tables import (
    PublishedTable,
    check_readable,
    files_of,
    published_tables,
)
from pgwire_codec.capture.catalog.slots import drop_slot, is_replaceable, slot_exists
from pgwire_codec.capture.connection.connect import (
    check_wal_level,
    connect,
    connect_walsender,
    load_psycopg2,
)
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.connection.session_settings import disable_timeouts, pin
from pgwire_codec.capture.snapshot.table_copies import CopiedRows, TableCopies
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.protocol.messages import Begin, Commit
from pgwire_codec.protocol.quoting import quote_identifier, quote_literal
from pgwire_codec.reference import encode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.start_replication import StreamRequest
    from pgwire_codec.log import LogWriter

_XID: Final = 0  # which no transaction of a server has


class _SnapshotTransaction:
    """A synthetic plain transaction, in a session of its own of the log.

    Parameters
    ----------
    writer : LogWriter
    time : numpy.datetime64
        Commit time, in microseconds.
    """

    def __init__(self, writer: LogWriter, time: np.datetime64) -> None:
        self._writer = writer
        self._time = time
        self._commit_time = int((time - EPOCH).astype(np.int64))
        self._lsn = 0

    def begin(self, commit_lsn: int) -> None:
        """Write the Begin of a new session; an earlier one is abandoned."""
        self._lsn = commit_lsn
        self._writer.new_session(snapshot=True)
        self._append_one(Begin(final_lsn=commit_lsn, commit_time=self._commit_time, xid=_XID))

    def append(self, data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None:
        """Write concatenated messages."""
        import pyarrow as pa

        count = len(offsets) - 1
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        self._writer.append(
            pa.Array.from_buffers(pa.binary(), count, buffers),
            np.full(count, self._lsn, np.uint64),
            np.full(count, self._time),
        )

    def commit(self, end_lsn: int) -> None:
        """Write the Commit."""
        self._append_one(
            Commit(flags=0, commit_lsn=self._lsn, end_lsn=end_lsn, commit_time=self._commit_time)
        )

    def _append_one(self, message: Begin | Commit) -> None:
        data = np.frombuffer(encode_message(message), np.uint8)
        self.append(data, np.array([0, len(data)], np.int32))


class SnapshotTaker:
    """Creates a slot and writes the published tables to a log that contains nothing else.

    Parameters
    ----------
    dsn : str
        Of the database.
    request : StreamRequest
        The slot to create, and the options of its stream: rows are copied in the same form.
    jobs : int
        Number of tables to copy at once, each over a connection of its own.
    interrupt : Interrupt
        Ends any wait for the server from another thread.
    created : callable
        Called with the slot's LSN when it has been created.
    copied : callable
        Called with the rows as they are written; an exception from it ends the snapshot.

    Notes
    -----
    While they are copied, the tables are locked in ACCESS SHARE mode: they can be read and written,
    but not altered, truncated or dropped. An ALTER TABLE that rewrites a table and a TRUNCATE are
    not MVCC-safe, so a copy would lose rows. If one happened between the creation of the slot and
    the locks, a transient error is raised.
    """

    def __init__(
        self,
        dsn: str,
        request: StreamRequest,
        jobs: int,
        *,
        interrupt: Interrupt,
        created: Callable[[int], None],
        copied: Callable[[CopiedRows], None],
    ) -> None:
        self._dsn = dsn
        self._request = request
        self._jobs = jobs
        self._interrupt = interrupt
        self._created = created
        self._copied = copied

    def take(self, writer: LogWriter) -> None:
        """Take the snapshot.

        Parameters
        ----------
        writer : LogWriter
            Of a log with nothing confirmed or without messages. Messages are of an interrupted
            snapshot, whose slot is dropped. The slot of a log with a confirmed LSN is dropped
            unless another consumer has read from it. On return everything is durable, and
            ``confirm_lsn`` is the LSN at which the new slot starts.

        Raises
        ------
        CaptureError
            When the slot exists and is not that of an interrupted snapshot, or when the server
            refuses.
        Interrupted
            When ``interrupt`` is set.
        """
        psycopg2 = load_psycopg2()
        walsender = connect_walsender(self._dsn, self._interrupt)
        try:
            with closing(walsender), closing(connect(self._dsn, self._interrupt)) as ordinary:
                self._take(writer, walsender, ordinary.cursor())
        except psycopg2.Error as error:
            raise capture_error(error, self._request.slot) from error
        finally:
            self._interrupt.release()

    def _take(self, writer: LogWriter, walsender: Any, catalog: Any) -> None:
        commands = walsender.cursor()
        tables = self._check(commands, catalog)
        self._remove_old_slot(catalog, writer)
        if writer.confirm_lsn:
            writer.forget_positions()  # of the dropped slot: the log begins with the new one
        catalog.execute(
            "SELECT pg_current_wal_flush_lsn(), (extract(epoch FROM now()) * 1000000)::bigint"
        )
        lsn, now = catalog.fetchone()
        transaction = _SnapshotTransaction(writer, np.datetime64(now, "us"))
        # The log then contains messages, by which the next attempt recognises the slot as its own.
        transaction.begin(parse_lsn(lsn))
        writer.flush()

        # Creating the slot waits for transactions to end, one of which may be about to alter a
        # table. If the tables were locked before, both would wait for ever.
        commands.execute(self._create_command(walsender.server_version))
        is_complete = False
        try:
            _, consistent_point, snapshot, _ = commands.fetchone()
            begin_lsn = parse_lsn(consistent_point)
            self._created(begin_lsn)
            self._copy(catalog, tables, snapshot, begin_lsn, transaction)
            is_complete = True  # from here on the log may record it, and the slot belongs to it
            writer.flush(confirm_lsn=begin_lsn, received_lsn=begin_lsn)
        finally:
            if not is_complete:
                self._drop_new_slot(commands)

    def _check(self, commands: Any, catalog: Any) -> list[PublishedTable]:
        """Check server and publications; return the tables, all rows of which can be read."""
        pin(commands)
        check_wal_level(commands)
        options = self._request.options
        ensure_publications(
            commands,
            options.publications,
            self._request.create_publication,
            may_be_empty=options.messages is True,
        )
        disable_timeouts(catalog)
        tables = published_tables(catalog, options.publications)
        check_readable(catalog, [table.relation.oid for table in tables])
        return tables

    def _copy(
        self,
        catalog: Any,
        tables: Sequence[PublishedTable],
        snapshot: str,
        begin_lsn: int,
        transaction: _SnapshotTransaction,
    ) -> None:
        options = self._request.options
        with TableCopies(
            self._dsn,
            snapshot,
            tables,
            self._jobs,
            binary=options.binary,
            interrupt=self._interrupt,
        ) as copies:
            # The tables are locked now. A change between the snapshot and the lock is not copied.
            current = published_tables(catalog, options.publications)
            if set(current) != set(tables) or files_of(catalog, tables) != copies.files():
                raise CaptureError(
                    "the published tables changed while their snapshot was being taken",
                    is_transient=True,
                )
            # A transaction may commit exactly where the slot starts, and a decoder skips what is at
            # or before the last commit as a repetition. So the snapshot commits before it.
            transaction.begin(begin_lsn - 1)
            for rows in copies.rows():
                transaction.append(rows.messages, rows.offsets)
                self._copied(rows)
        transaction.commit(begin_lsn)

    def _remove_old_slot(self, cursor: Any, writer: LogWriter) -> None:
        """Drop an existing slot of the name if it belongs to the log alone."""
        slot = self._request.slot
        if not slot_exists(cursor, slot):
            return
        is_of_interrupted_snapshot = writer.end_ordinal > 0
        if not is_of_interrupted_snapshot and not is_replaceable(cursor, slot, writer.confirm_lsn):
            raise CaptureError(
                f'replication slot "{slot}" already exists, and a snapshot begins with a new one',
                hint="Use another name, run SELECT "
                f"pg_drop_replication_slot({quote_literal(slot)}); if the slot is not needed, or "
                "capture its stream without a snapshot.",
            )
        drop_slot(cursor, slot, timeout=self._request.slot_timeout)

    def _drop_new_slot(self, commands: Any) -> None:
        """Drop the slot that was just created; if that fails, the next snapshot drops it."""
        psycopg2 = load_psycopg2()
        command = f"DROP_REPLICATION_SLOT {quote_identifier(self._request.slot)} WAIT"
        for _ in range(2):
            try:
                commands.execute(command)
            except psycopg2.errors.QueryCanceled:
                continue  # it was meant for the previous statement, which had ended before
            except psycopg2.Error:
                return
            return

    def _create_command(self, server_version: int) -> str:
        request = self._request
        head = f"CREATE_REPLICATION_SLOT {quote_identifier(request.slot)} LOGICAL pgoutput"
        if server_version < 150000:  # two_phase is not available
            return f"{head} EXPORT_SNAPSHOT"
        two_phase = ", TWO_PHASE" if request.options.two_phase else ""
        return f"{head} (SNAPSHOT {quote_literal('export')}{two_phase})"
