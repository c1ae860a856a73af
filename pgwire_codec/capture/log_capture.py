"""Capture of a replication slot into a durable log, across interruptions of either side."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pgwire_codec.capture.checked_start import CheckedStart
from pgwire_codec.capture.connection.backoff import Backoff
from pgwire_codec.capture.connection.connect import current_lsn
from pgwire_codec.capture.connection.interrupt import Interrupt, Interrupted
from pgwire_codec.capture.connection.notices import ServerNotices
from pgwire_codec.capture.disk_room import DiskRoom
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.capture.log_continuity import check_begins_with_snapshot, midway_note
from pgwire_codec.capture.new_tables import NewTables
from pgwire_codec.capture.options import (
    FLUSH_SECONDS,
    OBJECT_FLUSH_SECONDS,
    RECEIVE_TIMEOUT,
    SLOT_TIMEOUT,
    SNAPSHOT_JOBS,
    PluginOptions,
)
from pgwire_codec.capture.pruner import Pruner
from pgwire_codec.capture.receive_loop import ReceiveLoop
from pgwire_codec.capture.requested_tables import RequestedTables
from pgwire_codec.capture.snapshot.add_tables import TableAdder
from pgwire_codec.capture.snapshot.take_snapshot import SnapshotTaker
from pgwire_codec.capture.start_replication import StreamRequest, identify
from pgwire_codec.capture.status import Status, StatusBoard
from pgwire_codec.capture.type_recorder import TypeRecorder
from pgwire_codec.errors import CaptureError, OptionError, PgwireError
from pgwire_codec.options import MIN_FREE_BYTES, SegmentOptions, check_min_free_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.capture.capture import Capture
    from pgwire_codec.capture.catalog.publications import CreatePublication
    from pgwire_codec.capture.options import PluginKeywords
    from pgwire_codec.capture.snapshot.progress import SnapshotProgress
    from pgwire_codec.capture.snapshot.table_copies import CopiedRows
    from pgwire_codec.log import LogSource, LogWriter, Retention, WriteTimes

_Result = TypeVar("_Result")

_STEADY_SECONDS: Final = 60.0  # a connection that lasted this long resets the backoff


class LogCapture:
    """Captures a replication slot into a log, each transaction once.

    Nothing is confirmed to the server before it is durable in the log. After a crash, a disconnect
    or a server restart, the capture resumes at the log's last durable position.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI of the database to capture from.
    log : str or path
        The log's directory or URI, see :mod:`pgwire_codec.log`. It is created if it does not exist,
        and then begins where the slot is.
    slot : str
        Name of the replication slot.
    options : PluginOptions, optional
        Options of pgoutput. Its fields can also be passed as keyword arguments, and
        ``publication`` has to be passed in one of the two ways.
    create_slot : bool
        Create the slot for a new log, if it does not exist.
    create_publication : False, "all tables" or list of str
        Create the publication if it does not exist, for these tables.
    failover : bool
        As for :class:`~pgwire_codec.capture.Capture`; also the slot of a snapshot is such a slot.
    snapshot : bool
        Begin a log with a copy of the published tables, and create the slot for it. An interrupted
        snapshot is continued if the server still has it, which is so for 10 minutes after the death
        of the capture. Otherwise it is taken again. Nothing is done for a log that begins with a
        snapshot, or whose beginning was pruned. A log without messages that has been captured from
        a slot is begun again: that slot is dropped and a new one is created.
    snapshot_jobs : int
        Number of connections to copy the tables over. One large table uses all of them if the
        server is PostgreSQL 14 or later.
    add_new_tables : bool
        Copy the rows of each published table that the log has nothing of, also of one that joins
        the publication later. See :class:`pgwire_codec.log.TableRequests`.
    segments : SegmentOptions
        Compression, limits and permissions of the log's segments.
    flush_seconds : float, optional
        Minimum seconds from the beginning of a flush to that of the next. A complete transaction
        is made durable, and confirmed, as soon as it has arrived, if this time has passed. None:
        5 ms on a local disk, and 1 s in an object store, where each flush writes a segment.
        Under load the time grows up to 1 s, so that flushes are large.
    max_retries : int, optional
        Maximum number of consecutive failed attempts to connect to retry; None: any number.
    retention : Retention, optional
        What the log keeps: the other segments are removed while it is captured into. An error of
        this does not end the capture, and is a note of the status.
    min_free_bytes : int
        Room that stays free on a local disk. With less, the capture waits: it reads nothing more,
        so the server keeps its WAL, and it goes on when there is room. Its status has the problem.
    receive_timeout, slot_timeout
        As for :class:`~pgwire_codec.capture.Capture`.
    **keywords
        Fields of :class:`PluginOptions`; they go over those of ``options``.

    Attributes
    ----------
    slot : str
        Name of the replication slot.
    write_times : pgwire_codec.log.WriteTimes or None
        Receives the times of the log's writer; set it before :meth:`run`.

    Examples
    --------
    >>> capture = LogCapture("dbname=shop", "shop.log", slot="s", publication="p")
    >>> capture.run(idle_seconds=5).messages
    1200
    """

    def __init__(
        self,
        dsn: str,
        log: str | os.PathLike[str],
        *,
        slot: str,
        options: PluginOptions | None = None,
        create_slot: bool = False,
        create_publication: CreatePublication = False,
        failover: bool = False,
        snapshot: bool = False,
        snapshot_jobs: int = SNAPSHOT_JOBS,
        add_new_tables: bool = False,
        segments: SegmentOptions | None = None,
        flush_seconds: float | None = None,
        max_retries: int | None = None,
        retention: Retention | None = None,
        min_free_bytes: int = MIN_FREE_BYTES,
        receive_timeout: float = RECEIVE_TIMEOUT,
        slot_timeout: float = SLOT_TIMEOUT,
        **keywords: Unpack[PluginKeywords],
    ) -> None:
        if flush_seconds is not None and not flush_seconds > 0:
            raise OptionError(f"flush_seconds must be above 0, not {flush_seconds}")
        check_min_free_bytes(min_free_bytes)
        if snapshot_jobs < 1:
            raise OptionError(f"snapshot_jobs must be at least 1, not {snapshot_jobs}")
        self.slot = slot
        self.write_times: WriteTimes | None = None
        self._dsn = dsn
        self._log = log
        self._request = StreamRequest(
            slot=slot,
            options=PluginOptions.of(options, keywords),
            slot_timeout=slot_timeout,
            create_slot=create_slot,
            create_publication=create_publication,
            failover=failover,
        )
        self._snapshot = snapshot
        self._snapshot_jobs = snapshot_jobs
        self._add_new_tables = add_new_tables
        self._segments = segments or SegmentOptions()
        self._flush_seconds = flush_seconds
        self._backoff = Backoff(max_retries)
        self._retention = retention
        self._pruner: Pruner | None = None
        self._requested = RequestedTables(log)
        self._min_free_bytes = min_free_bytes
        self._receive_timeout = receive_timeout
        self._status_board = StatusBoard()
        self._notes: list[str] = []  # that apply to the whole run
        self._notices = ServerNotices()
        self._interrupt = Interrupt()

    @property
    def status(self) -> Status:
        """Current status; may be read from any thread."""
        status, pruner, notices = self._status_board.status, self._pruner, self._notices
        notes = (*status.notes, *notices.notes, *self._requested.notes)
        if pruner is not None:
            status = replace(status, pruned_segments=pruner.removed)
            notes += pruner.notes
        return replace(status, notes=notes, notices=notices.counts)

    @property
    def stalled_seconds(self) -> float:
        """Seconds for which the stream was not read, or a flush has not ended; 0 if all is well.

        It may be read from any thread. It is 0 unless the state is ``streaming``.
        """
        return self._status_board.stalled_seconds

    def lag_meter(self) -> LagMeter:
        """Return a meter of this capture's lag and slot, over a connection of its own."""
        return LagMeter(self._dsn, self.slot)

    def stop(self) -> None:
        """Make :meth:`run` end soon, with all that arrived flushed and confirmed.

        This method returns at once, and :meth:`run` within two seconds even if the server does not
        answer: a statement is cancelled, and abandoned if that has no effect. It may be called from
        any thread, though not from a signal handler.
        """
        self._interrupt.set()

    def run(
        self, *, until_lsn: int | Literal["now"] | None = None, idle_seconds: float | None = None
    ) -> Status:
        """Capture until :meth:`stop` is called, or until one of these limits.

        Parameters
        ----------
        until_lsn : int or "now", optional
            End once every transaction that ends up to here is in the log; "now" is the end of the
            server's flushed WAL when the capture starts.
        idle_seconds : float, optional
            End when no message has arrived for this long.

        Raises
        ------
        CaptureError
            When a further attempt would not help, or ``max_retries`` attempts have failed; when
            the server was set back, as by restoring an older copy of it; when it goes on without a
            publication that does not exist (PostgreSQL 18 and later); when it sends a frame that
            is not of the streaming replication protocol; and when memory runs out. A message that
            does not decode is not an error here: the log keeps it for its readers.
        LogError
            When the log is damaged, cannot be written, is of another system, database or slot, or
            is being written by another capture; when the server's timeline does not descend from
            that of the log, or has branched off before the log's end.
        """
        from pgwire_codec.log import LogWriter

        self._interrupt.clear()
        self._status_board = StatusBoard()
        self._notices = ServerNotices()
        self._room = DiskRoom(
            self._log, self._min_free_bytes, self._interrupt.event, self._status_board
        )
        self._notes.clear()
        until: int | None
        if until_lsn == "now":
            until = self._persist(lambda: current_lsn(self._dsn, self._interrupt))
        else:
            until = until_lsn
        source = self._persist(self._identify)
        if source is None:
            return self._end()
        # To open a log is to write to it.
        if self._room.is_short():
            with self._pruning():
                self._room.wait(lambda: None)
        if self._interrupt.event.is_set():
            return self._end()
        options = asdict(self._segments)
        with (
            LogWriter(self._log, source, times=self.write_times, **options) as writer,
            self._pruning(),
        ):
            # A new log has no position yet; its slot has one.
            self._status_board.update(
                confirmed_lsn=writer.confirm_lsn or None, received_lsn=writer.received_lsn
            )
            try:
                self._persist(lambda: self._capture(writer, until, idle_seconds))
            except CaptureError:
                writer.close()  # seal what was flushed, too
                raise
        return self._end()

    def _pruning(self) -> AbstractContextManager[Any]:
        self._pruner = None if self._retention is None else Pruner(self._log, self._retention)
        return self._pruner or nullcontext()

    def _end(self) -> Status:
        self._status_board.update(state="stopped", problem=None)
        return self.status

    def _persist(self, attempt: Callable[[], _Result]) -> _Result | None:
        """Repeat an attempt until it succeeds or cannot; return None when stopped."""
        while not self._interrupt.event.is_set():
            self._status_board.update(state="connecting")
            began = monotonic()
            try:
                return attempt()
            except Interrupted:
                break
            except MemoryError as error:
                raise CaptureError(
                    "the capture ran out of memory",
                    hint="Start it again with more memory: everything confirmed to the server is "
                    "safe in the log.",
                    is_transient=True,
                ) from error
            except PgwireError as error:
                if self._interrupt.event.is_set() and isinstance(error, CaptureError):
                    break  # stop() caused it
                self._status_board.failed(error)
                if not isinstance(error, CaptureError):
                    raise
                if monotonic() - began >= _STEADY_SECONDS:
                    self._backoff.succeed()
                wait = self._backoff.fail() if error.is_transient else None
                if wait is None:
                    raise
                self._status_board.update(state="waiting", problem=str(error))
                self._interrupt.event.wait(wait)
            finally:
                self._interrupt.release()
        return None

    def _identify(self) -> LogSource:
        request = self._request
        return identify(self._dsn, request.slot, request.options, self._interrupt)

    def _capture(
        self, writer: LogWriter, until_lsn: int | None, idle_seconds: float | None
    ) -> None:
        if self._room.is_short():  # a session begins with a write
            self._room.wait(lambda: None)
        if self._snapshot and (writer.confirm_lsn == 0 or writer.end_ordinal == 0):
            self._take_snapshot(writer)
        elif self._snapshot:
            check_begins_with_snapshot(self._log)
        elif writer.confirm_lsn == 0 and writer.end_ordinal > 0:
            raise CaptureError(
                f"the log {self._log} contains an interrupted snapshot",
                hint="Start the snapshot again with `snapshot=True`, or write to another log.",
            )
        arrived = self._find_new_tables() if self._add_new_tables else None
        while True:
            if writer.confirm_lsn and self._requested.are_due():
                self._requested.fulfil(self._adder(writer, arrived))
            self._stream(writer, until_lsn, idle_seconds, arrived, pausing=self._requested.are_due)
            if self._interrupt.event.is_set() or not self._requested.are_due():
                return

    def _find_new_tables(self) -> Callable[[MessageBatch], None]:
        """Request the copies of tables that the log lacks, and of those in batches that arrive."""
        found = NewTables(self._log)
        found.request_published(self._dsn, self._request, self._interrupt)
        return found.request_sent

    def _stream(
        self,
        writer: LogWriter,
        until_lsn: int | None,
        idle_seconds: float | None,
        arrived: Callable[[MessageBatch], None] | None,
        **options: Any,
    ) -> None:
        """Receive the stream from where the log ends."""
        flush_seconds = self._flush_seconds
        if flush_seconds is None:
            flush_seconds = FLUSH_SECONDS if writer.grows else OBJECT_FLUSH_SECONDS
        recorder = TypeRecorder(self._dsn, self._request.slot, writer.type_record, self._interrupt)

        def sent(batch: MessageBatch) -> None:
            recorder.record_sent(batch)
            if arrived is not None:
                arrived(batch)

        capture = CheckedStart(
            self._dsn,
            self._log,
            self._request,
            receive_timeout=self._receive_timeout,
            interrupt=self._interrupt,
            noted=lambda notes: self._status_board.update(notes=(*self._notes, *notes)),
            notices=self._notices,
        ).open(writer)
        try:
            self._start_session(writer, capture)
            ReceiveLoop(
                capture,
                writer,
                flush_seconds=flush_seconds,
                stopping=self._interrupt.event,
                status_board=self._status_board,
                flushed=self._backoff.succeed,
                room=self._room,
                arrived=sent,
                **options,
            ).run(until_lsn, idle_seconds)
        finally:
            capture.close()

    def _adder(
        self, writer: LogWriter, arrived: Callable[[MessageBatch], None] | None
    ) -> Callable[[Sequence[str]], None]:
        """Return the function that copies tables into the log."""

        def catch_up(lsn: int) -> None:
            self._stream(writer, lsn, None, arrived, cut_lsn=lsn)
            if self._interrupt.event.is_set():
                raise Interrupted
            self._status_board.update(state="snapshot")

        adder = TableAdder(
            self._dsn,
            self._request,
            self._snapshot_jobs,
            interrupt=self._interrupt,
            caught_up=catch_up,
            copied=lambda rows, progress: self._copied(writer, rows, progress),
        )
        return lambda names: adder.add(writer, names)

    def _take_snapshot(self, writer: LogWriter) -> None:
        self._status_board.update(state="snapshot", confirmed_lsn=None)
        SnapshotTaker(
            self._dsn,
            self._request,
            self._identify(),
            self._snapshot_jobs,
            interrupt=self._interrupt,
            created=lambda lsn: self._status_board.update(confirmed_lsn=lsn),
            copied=lambda rows, progress: self._copied(writer, rows, progress),
            noted=self._note,
        ).take(writer)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._status_board.update(notes=tuple(self._notes))

    def _copied(self, writer: LogWriter, rows: CopiedRows, progress: SnapshotProgress) -> None:
        if self._room.is_short():
            self._room.wait(lambda: None)
        if self._interrupt.event.is_set():
            raise Interrupted
        self._status_board.appended(
            writer,
            rows.rows,
            len(rows.messages),
            snapshot_rows=progress.rows,
            snapshot_rows_expected=progress.rows_expected,
            snapshot_tables=progress.tables,
            snapshot_tables_expected=progress.tables_expected,
            snapshot_bytes=progress.bytes,
            snapshot_bytes_expected=progress.bytes_expected,
        )

    def _start_session(self, writer: LogWriter, capture: Capture) -> None:
        if writer.confirm_lsn == 0 and not capture.slot_is_new:
            self._notes = [midway_note(self._request.slot, capture.confirmed_lsn)]
        writer.new_session(source=capture.source)
        self._status_board.update(
            state="streaming",
            problem=None,
            connections=self.status.connections + 1,
            confirmed_lsn=capture.confirmed_lsn,
            notes=(*self._notes, *capture.notes),
        )
