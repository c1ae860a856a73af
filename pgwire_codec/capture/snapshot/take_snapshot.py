"""Snapshot of the published tables where a new slot starts, as one transaction before its stream.

Creating the slot exports a snapshot. Transactions that are committed in it are copied; those that
commit later are in the stream. The copy is one synthetic plain transaction with xid 0.

PostgreSQL documentation, "Exporting a Snapshot" (logical decoding) and "Snapshot Synchronization
Functions".
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pgwire_codec.capture.catalog.failover import check_failover_supported
from pgwire_codec.capture.catalog.publications import ensure_publications
from pgwire_codec.capture.catalog.published_tables import (
    PublishedTable,
    check_readable,
    check_unchanged,
    published_tables,
)
from pgwire_codec.capture.connection.connect import (
    check_wal_level,
    connect,
    connect_walsender,
    load_psycopg2,
)
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.connection.session_settings import disable_timeouts, pin
from pgwire_codec.capture.snapshot.copy_session import LOCK_TIMEOUT, CopySession
from pgwire_codec.capture.snapshot.kept_snapshot import KeptSnapshot
from pgwire_codec.capture.snapshot.logged_rows import LoggedRows, NotResumable, rounds
from pgwire_codec.capture.snapshot.progress import SnapshotProgress
from pgwire_codec.capture.snapshot.resumption import (
    check_rows,
    check_slot,
    check_tables,
    keeper_of,
    plan_of,
    ranges_of,
)
from pgwire_codec.capture.snapshot.snapshot_slot import SnapshotSlot
from pgwire_codec.capture.snapshot.snapshot_transaction import SnapshotTransaction
from pgwire_codec.capture.snapshot.table_copies import TableCopies
from pgwire_codec.capture.snapshot.table_ranges import table_ranges
from pgwire_codec.errors import CaptureError, LogError
from pgwire_codec.protocol.lsn import parse_lsn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pgwire_codec.capture.catalog.sessions import ServerSession
    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.snapshot.table_copies import CopiedRows
    from pgwire_codec.capture.snapshot.table_ranges import TableRange
    from pgwire_codec.capture.start_replication import StreamRequest
    from pgwire_codec.log import LogSource, LogWriter
    from pgwire_codec.log.snapshot_record import SnapshotPlan


class _TableLocked(CaptureError):
    """A transaction is about to change a published table."""


class SnapshotTaker:
    """Creates a slot and writes the published tables to a log that contains nothing else.

    Parameters
    ----------
    dsn : str
        Of the database.
    request : StreamRequest
        The slot to create, and the options of its stream: rows are copied in the same form.
    source : LogSource
        The slot and its server.
    jobs : int
        Number of connections to copy over; one table may use all of them.
    interrupt : Interrupt
        Ends any wait for the server from another thread.
    created : callable
        Called with the slot's LSN when it has been created.
    copied : callable
        Called with the rows as they arrive, and the progress with them; an exception from it ends
        the snapshot.
    noted : callable
        Called with a remark for the user.

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
        source: LogSource,
        jobs: int,
        *,
        interrupt: Interrupt,
        created: Callable[[int], None],
        copied: Callable[[CopiedRows, SnapshotProgress], None],
        noted: Callable[[str], None],
    ) -> None:
        self._dsn = dsn
        self._request = request
        self._slot = SnapshotSlot(request)
        self._source = source
        self._jobs = jobs
        self._interrupt = interrupt
        self._created = created
        self._copied = copied
        self._noted = noted

    def take(self, writer: LogWriter) -> None:
        """Take the snapshot, or continue an interrupted one.

        Parameters
        ----------
        writer : LogWriter
            Of a log with nothing confirmed or without messages. Messages are of an interrupted
            snapshot. If that cannot be continued, its slot is dropped. The slot of a log with a
            confirmed LSN is dropped unless another consumer has read from it. On return everything
            is durable, and ``confirm_lsn`` is the LSN at which the new slot starts.

        Raises
        ------
        CaptureError
            When the slot exists and is not that of an interrupted snapshot, or when the server
            refuses. After a transient one, the next call may continue.
        Interrupted
            When ``interrupt`` is set; the slot is dropped then.
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
        self._check(commands, catalog)
        try:
            tables = self._published(catalog)
        except _TableLocked:
            # By a transaction that may wait for the snapshot that is kept since the last attempt.
            plan = self._interrupted(writer)
            if plan is not None:
                keeper_of(plan).end(catalog)
            raise
        check_readable(catalog, [table.relation.oid for table in tables])
        self._is_recorded = False
        writer.flush()
        plan = self._interrupted(writer)
        if plan is None:
            self._begin(writer, commands, catalog, tables)
        elif writer.delivered_lsn == plan.lsn - 1:  # it was only not confirmed
            _confirm(writer, plan.lsn)
        else:
            self._resume_or_begin(writer, commands, catalog, tables, plan)

    def _interrupted(self, writer: LogWriter) -> SnapshotPlan | None:
        """Return the plan of an interrupted snapshot."""
        try:
            return writer.snapshot_record.plan()
        except LogError as error:
            self._note_restart(str(error))
            return None

    def _note_restart(self, reason: str) -> None:
        self._noted(f"an interrupted snapshot was taken again from its beginning: {reason}")

    def _begin(
        self, writer: LogWriter, commands: Any, catalog: Any, tables: Sequence[PublishedTable]
    ) -> None:
        """Create the slot, and copy the tables."""
        self._slot.remove_old(catalog, writer)
        writer.snapshot_record.remove()
        if writer.confirm_lsn:
            writer.forget_positions()  # of the dropped slot: the log begins with the new one
        catalog.execute(
            "SELECT pg_current_wal_flush_lsn(), (extract(epoch FROM now()) * 1000000)::bigint"
        )
        lsn, now = catalog.fetchone()
        # An attempt may have been interrupted by a failover.
        transaction = SnapshotTransaction(writer, np.datetime64(now, "us"), self._source)
        # The log then contains messages, by which the next attempt recognises the slot as its own.
        transaction.begin(parse_lsn(lsn))
        writer.flush()

        # Creating the slot waits for transactions to end, one of which may be about to alter a
        # table. If the tables were locked before, both would wait for ever.
        self._slot.create(commands)
        with self._owned_slot(writer, commands):
            _, consistent_point, snapshot, _ = commands.fetchone()
            begin_lsn = parse_lsn(consistent_point)
            self._created(begin_lsn)
            with self._kept(snapshot, tables, catalog) as kept:
                commands.execute("SHOW server_version")  # the exporting session was alive, too
                current = self._published(catalog)
                check_unchanged(catalog, kept.session.cursor(), tables, current)
                ranges = table_ranges(kept.session.cursor(), tables)
                kept.keep()
                # A transaction may commit exactly where the slot starts, and a decoder skips what
                # is at or before the last commit as a repetition. So the snapshot commits before.
                transaction.begin(begin_lsn - 1)
                transaction.describe(tables)
                writer.flush()
                plan = plan_of(
                    kept,
                    tables,
                    ranges,
                    lsn=begin_lsn,
                    time=transaction.time,
                    binary=self._request.options.binary,
                )
                writer.snapshot_record.write_plan(plan)
                self._is_recorded = True
                self._copy(writer, transaction, tables, ranges, kept, LoggedRows(writer, begin_lsn))
        transaction.commit(begin_lsn)  # from here on the slot belongs to the log
        _confirm(writer, begin_lsn)

    def _resume_or_begin(
        self,
        writer: LogWriter,
        commands: Any,
        catalog: Any,
        tables: Sequence[PublishedTable],
        plan: SnapshotPlan,
    ) -> None:
        """Continue an interrupted snapshot, or take it again."""
        logged = LoggedRows(writer, plan.lsn)
        try:
            check_slot(catalog, self._request.slot, plan)
            check_tables(plan, tables, binary=self._request.options.binary)
            logged.restore(writer.snapshot_record)
            check_rows(plan, logged)
            self._resume(writer, commands, catalog, tables, plan, logged)
        except NotResumable as reason:
            self._note_restart(str(reason))
            keeper_of(plan).end(catalog)
            self._begin(writer, commands, catalog, tables)

    def _resume(
        self,
        writer: LogWriter,
        commands: Any,
        catalog: Any,
        tables: Sequence[PublishedTable],
        plan: SnapshotPlan,
        logged: LoggedRows,
    ) -> None:
        self._is_recorded = True
        keeper = keeper_of(plan)
        with (
            self._owned_slot(writer, commands),
            self._kept(plan.name, tables, catalog, keeper) as kept,
        ):
            kept.keep()
            pid, start = kept.keeper.pid, kept.keeper.start
            writer.snapshot_record.write_plan(
                replace(plan, name=kept.name, keeper_pid=pid, keeper_start=start)
            )
            keeper.end(catalog)
            self._created(plan.lsn)
            self._noted(f"an interrupted snapshot was continued after {logged.total:,} rows")
            transaction = SnapshotTransaction(writer, np.datetime64(plan.commit_time, "us"))
            transaction.resume(plan.lsn - 1)
            self._copy(writer, transaction, tables, ranges_of(plan, tables), kept, logged)
        transaction.commit(plan.lsn)
        _confirm(writer, plan.lsn)

    def _check(self, commands: Any, catalog: Any) -> None:
        """Check the server, and that it has the publications."""
        pin(commands)
        check_wal_level(commands)
        if self._request.failover:
            check_failover_supported(commands.connection.server_version)
        options = self._request.options
        ensure_publications(
            commands,
            options.publications,
            self._request.create_publication,
            may_be_empty=options.messages is True,
        )
        disable_timeouts(catalog)

    def _published(self, catalog: Any) -> list[PublishedTable]:
        """Return the published tables, also while another session has their locks.

        Some catalog functions lock the tables, too. They wait for a transaction that is to alter
        one, and it waits for the end of the snapshot. The server cannot see that these two wait
        for each other.
        """
        catalog.execute("SET lock_timeout = %s", (LOCK_TIMEOUT,))
        try:
            return published_tables(catalog, self._request.options.publications)
        except load_psycopg2().errors.LockNotAvailable as error:
            raise _TableLocked(
                "a published table is locked by a transaction that alters, truncates or drops it",
                hint="Take the snapshot when that transaction has ended.",
                is_transient=True,
            ) from error
        finally:
            catalog.execute("SET lock_timeout = 0")

    def _copy(
        self,
        writer: LogWriter,
        transaction: SnapshotTransaction,
        tables: Sequence[PublishedTable],
        ranges: Sequence[TableRange],
        kept: KeptSnapshot,
        logged: LoggedRows,
    ) -> None:
        """Copy the rows that the log does not have."""
        progress = SnapshotProgress(len(tables), ranges)
        progress.restore(logged, ranges)
        left = [each for each in ranges if each.number not in logged.complete]
        binary = self._request.options.binary
        with self._sessions(kept, tables) as sessions:
            copies = TableCopies(sessions, binary=binary, interrupt=self._interrupt)
            # After an error, it ends before its sessions do.
            with closing(copies.rows(left, logged.rows)) as copied:
                for group in rounds(self._counted(copied, progress)):
                    logged.record(group)
                    for rows in group:
                        transaction.append(rows.messages, rows.offsets)
                    writer.flush()

    def _counted(
        self, copied: Iterator[CopiedRows], progress: SnapshotProgress
    ) -> Iterator[CopiedRows]:
        for rows in copied:
            progress.add(rows)
            self._copied(rows, progress)
            yield rows

    @contextmanager
    def _owned_slot(self, writer: LogWriter, commands: Any) -> Iterator[None]:
        """Drop the slot after an error, unless the next attempt may continue."""
        try:
            yield
        except BaseException as error:
            if not self._may_continue(error):
                self._slot.drop_new(commands)
                writer.snapshot_record.remove()
            raise

    @contextmanager
    def _kept(
        self,
        snapshot: str,
        tables: Sequence[PublishedTable],
        catalog: Any,
        keeper: ServerSession | None = None,
    ) -> Iterator[KeptSnapshot]:
        """Yield a session that keeps the snapshot: for the next attempt, if that may continue."""
        kept = KeptSnapshot(self._dsn, snapshot, tables, catalog, self._interrupt, keeper)
        with closing(kept):
            try:
                yield kept
            except BaseException as error:
                if not self._may_continue(error):
                    with suppress(load_psycopg2().Error):  # it ends by itself, only later
                        kept.end()
                raise
            kept.end()

    def _may_continue(self, error: BaseException) -> bool:
        """Return whether the next attempt may continue after an error."""
        if not self._is_recorded:
            return False
        if isinstance(error, load_psycopg2().Error):
            error = capture_error(error, self._request.slot)
        if isinstance(error, CaptureError):
            return error.is_transient
        return isinstance(error, (LogError, MemoryError))

    @contextmanager
    def _sessions(
        self, kept: KeptSnapshot, tables: Sequence[PublishedTable]
    ) -> Iterator[list[CopySession]]:
        """Yield open connections, each of which locks all tables.

        Otherwise one of them could wait for a transaction that waits to alter a table, and that for
        another of these connections.
        """
        sessions = []
        with ExitStack() as stack:
            for _ in range(self._jobs):
                session = CopySession(self._dsn, kept.name, tables, self._interrupt, kept.keeper)
                sessions.append(stack.enter_context(closing(session)))
                session.open()
            yield sessions


def _confirm(writer: LogWriter, begin_lsn: int) -> None:
    """Make the snapshot durable, from where on the slot belongs to the log."""
    writer.flush(confirm_lsn=begin_lsn, received_lsn=begin_lsn)
    writer.snapshot_record.remove()
