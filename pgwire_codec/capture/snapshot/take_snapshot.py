"""The tables as they are where a new slot begins, as one transaction in front of its stream.

The slot's creation exports the snapshot: what is committed in it is copied, what commits after it
the stream tells. All is one synthetic plain transaction with xid 0.

PostgreSQL documentation, "Exporting a Snapshot" (logical decoding) and "Snapshot Synchronization
Functions".
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.batch import EPOCH
from pgwire_codec.capture.catalog.publications import CreatePublication, ensure_publications
from pgwire_codec.capture.catalog.published_tables import check_readable, files_of, published_tables
from pgwire_codec.capture.catalog.slots import drop_slot, is_replaceable, slot_exists
from pgwire_codec.capture.connection.connect import (
    check_wal_level,
    connect,
    connect_walsender,
    load_psycopg2,
)
from pgwire_codec.capture.connection.error_hints import explain
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.connection.session_settings import allow_to_last, pin
from pgwire_codec.capture.options import quote_identifier, quote_literal
from pgwire_codec.capture.snapshot.table_copies import CopiedRows, TableCopies
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.protocol.messages import Begin, Commit
from pgwire_codec.reference import encode_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pgwire_codec.capture.options import PluginOptions
    from pgwire_codec.log import LogWriter

_XID: Final = 0  # which no transaction of a server has


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """What is copied, and how.

    Attributes
    ----------
    slot : str
        Name of the slot that is created.
    options : PluginOptions
        As for the stream: rows come in the same form.
    create_publication : False, "all tables" or list of str
        As for ``Capture``.
    jobs : int
        How many tables are copied at once, each over a connection of its own.
    slot_patience : float
        Seconds to wait for a slot that is to be dropped and is in use.
    """

    slot: str
    options: PluginOptions
    create_publication: CreatePublication
    jobs: int
    slot_patience: float


def take_snapshot(
    dsn: str,
    wanted: SnapshotOptions,
    writer: LogWriter,
    *,
    interrupt: Interrupt,
    created: Callable[[int], None],
    copied: Callable[[CopiedRows], None],
) -> None:
    """Create the slot and write the published tables to a log that holds nothing else.

    Parameters
    ----------
    dsn : str
        Of the database.
    wanted : SnapshotOptions
    writer : LogWriter
        Of a log with nothing confirmed or without messages. Messages are of a snapshot that was
        broken off: its slot is dropped. So is the slot of a log with a confirmed position, unless
        somebody else has read from it. On return all is durable, and ``confirm_lsn`` is where the
        new slot begins.
    interrupt : Interrupt
        Ends from another thread whatever the server is waited for.
    created : callable
        Is given the position of the slot when it has been created.
    copied : callable
        Is given the rows as they are written; an exception of it ends the snapshot.

    Raises
    ------
    CaptureError
        When the slot exists and is not one of a broken-off snapshot, or the server refuses.
    Interrupted
        When ``interrupt`` is set.

    Notes
    -----
    While they are copied the tables are locked in ACCESS SHARE mode: they can be read and written,
    but not altered, truncated or dropped. PostgreSQL's ALTER TABLE that writes a table anew and its
    TRUNCATE are not visible to older snapshots alone, so a copy would lose rows. Where one came
    between the slot and the locks, that is an error, which goes by itself when it is tried again.
    """
    psycopg2 = load_psycopg2()
    walsender = connect_walsender(dsn, interrupt)
    try:
        with closing(walsender), closing(connect(dsn, interrupt)) as ordinary:
            _take(dsn, wanted, writer, walsender, ordinary, interrupt, created, copied)
    except psycopg2.Error as error:
        raise explain(error, wanted.slot) from error
    finally:
        interrupt.release()


def _take(
    dsn: str,
    wanted: SnapshotOptions,
    writer: LogWriter,
    walsender: Any,
    ordinary: Any,
    interrupt: Interrupt,
    created: Callable[[int], None],
    copied: Callable[[CopiedRows], None],
) -> None:
    commands = walsender.cursor()
    pin(commands)
    check_wal_level(commands)
    options = wanted.options
    ensure_publications(
        commands,
        options.publications,
        wanted.create_publication,
        may_be_empty=options.messages is True,
    )
    catalog = ordinary.cursor()
    allow_to_last(catalog)
    tables = published_tables(catalog, options.publications)
    check_readable(catalog, tables)
    _make_way_for_slot(catalog, wanted, writer)
    if writer.confirm_lsn:
        writer.forget_positions()  # of the slot that is gone: the log begins with the new one
    catalog.execute(
        "SELECT pg_current_wal_flush_lsn(), (extract(epoch FROM now()) * 1000000)::bigint"
    )
    lsn, now = catalog.fetchone()
    transaction = _Transaction(writer, np.datetime64(now, "us"))
    # A slot that is found again is known for ours by what stands in the log.
    transaction.begin(parse_lsn(lsn))
    writer.flush()

    # It waits for transactions to end, of which one may be about to alter a table: who locked the
    # tables before would wait for ever.
    commands.execute(_create_command(wanted, walsender.server_version))
    is_complete = False
    try:
        _, consistent_point, snapshot, _ = commands.fetchone()
        begin_lsn = parse_lsn(consistent_point)
        created(begin_lsn)
        with TableCopies(
            dsn, snapshot, tables, wanted.jobs, binary=options.binary, interrupt=interrupt
        ) as copies:
            # Locked now. What was done to them between the snapshot and the lock cannot be copied.
            now_published = published_tables(catalog, options.publications)
            if set(now_published) != set(tables) or files_of(catalog, tables) != copies.files():
                raise CaptureError(
                    "The published tables changed while their snapshot was being taken.",
                    is_transient=True,
                )
            # A transaction may commit right where the slot begins, and a decoder takes what comes
            # at or before the last commit for a repetition. So this one commits before.
            transaction.begin(begin_lsn - 1)
            for rows in copies.rows():
                transaction.append(rows.messages, rows.offsets)
                copied(rows)
        transaction.commit(begin_lsn)
        is_complete = True  # from here on the log may say so, and the slot belongs to it
        writer.flush(confirm_lsn=begin_lsn, received_lsn=begin_lsn)
    finally:
        if not is_complete:
            _drop_slot(commands, wanted.slot)


def _drop_slot(commands: Any, slot: str) -> None:
    """Drop a slot that was just created; one that cannot be is dropped by the next snapshot."""
    psycopg2 = load_psycopg2()
    for _ in range(2):
        try:
            commands.execute(f"DROP_REPLICATION_SLOT {quote_identifier(slot)} WAIT")
        except psycopg2.errors.QueryCanceled:
            continue  # meant for the statement before, which had ended when it came
        except psycopg2.Error:
            return
        return


class _Transaction:
    """The synthetic transaction, in a session of its own of the log."""

    def __init__(self, writer: LogWriter, time: np.datetime64) -> None:
        self._writer = writer
        self._time = time
        self._commit_time = int((time - EPOCH).astype(np.int64))
        self._lsn = 0

    def begin(self, commit_lsn: int) -> None:
        self._lsn = commit_lsn
        self._writer.new_session(snapshot=True)
        self._append_one(Begin(final_lsn=commit_lsn, commit_time=self._commit_time, xid=_XID))

    def append(self, data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None:
        """Append messages on end."""
        import pyarrow as pa

        count = len(offsets) - 1
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        self._writer.append(
            pa.Array.from_buffers(pa.binary(), count, buffers),
            np.full(count, self._lsn, np.uint64),
            np.full(count, self._time),
        )

    def commit(self, end_lsn: int) -> None:
        self._append_one(
            Commit(flags=0, commit_lsn=self._lsn, end_lsn=end_lsn, commit_time=self._commit_time)
        )

    def _append_one(self, message: Begin | Commit) -> None:
        data = np.frombuffer(encode_message(message), np.uint8)
        self.append(data, np.array([0, len(data)], np.int32))


def _make_way_for_slot(cursor: Any, wanted: SnapshotOptions, writer: LogWriter) -> None:
    """See that there is no slot of the name, dropping one that belongs to the log alone."""
    if not slot_exists(cursor, wanted.slot):
        return
    is_of_broken_off_snapshot = writer.end_ordinal > 0
    if not is_of_broken_off_snapshot and not is_replaceable(
        cursor, wanted.slot, writer.confirm_lsn
    ):
        raise CaptureError(
            f'Replication slot "{wanted.slot}" exists already, and a snapshot begins with a new '
            f"one. Use another name, run SELECT pg_drop_replication_slot('{wanted.slot}'); when "
            "nobody needs it, or capture its stream without a snapshot."
        )
    drop_slot(cursor, wanted.slot, patience=wanted.slot_patience)


def _create_command(wanted: SnapshotOptions, server_version: int) -> str:
    head = f"CREATE_REPLICATION_SLOT {quote_identifier(wanted.slot)} LOGICAL pgoutput"
    if server_version < 150000:  # where two_phase cannot be asked for
        return f"{head} EXPORT_SNAPSHOT"
    two_phase = ", TWO_PHASE" if wanted.options.two_phase else ""
    return f"{head} (SNAPSHOT {quote_literal('export')}{two_phase})"
