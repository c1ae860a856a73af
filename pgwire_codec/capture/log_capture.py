"""A walsender's stream into a durable log, through whatever happens to either side."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pgwire_codec.capture.capture import Capture
from pgwire_codec.capture.catalog.slots import SlotMissing
from pgwire_codec.capture.connection.backoff import Backoff
from pgwire_codec.capture.connection.connect import current_lsn
from pgwire_codec.capture.connection.interrupt import Interrupt, Interrupted
from pgwire_codec.capture.log_history import (
    LoggedTransactions,
    RepeatedTransactions,
    check_same_history,
)
from pgwire_codec.capture.options import Origin, PluginOptions, Streaming, publication_names
from pgwire_codec.capture.receive_loop import LogStream
from pgwire_codec.capture.snapshot.take_snapshot import SnapshotOptions, take_snapshot
from pgwire_codec.capture.start_replication import Identity, Wanted, identify
from pgwire_codec.capture.status import Bulletin, Status
from pgwire_codec.errors import CaptureError, OptionError
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    from pgwire_codec.capture.catalog.publications import CreatePublication
    from pgwire_codec.capture.snapshot.table_copies import CopiedRows
    from pgwire_codec.log import LogSource, LogWriter

_Result = TypeVar("_Result")

_TICK: Final = 0.25  # seconds between looks at whether to stop
_STEADY_SECONDS: Final = 60.0  # a connection that lasted so long was a good one


class LogCapture:
    """Captures a replication slot into a log: each transaction once, whatever breaks.

    Nothing is confirmed to the server that is not durable in the log. After an interruption, of
    the connection, of the server or of this process, the capture goes on where the log says.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI of the database to capture from.
    log : str or path
        The log's directory or URI, see :mod:`pgwire_codec.log`. It is created where it is missing,
        and begins where the slot is.
    slot : str
        Name of the replication slot.
    publication : str or sequence of str
        Names of the publications.
    create_slot : bool
        Create the slot for a log that is new, when it does not exist.
    create_publication : False, "all tables" or list of str
        Create the publication when it does not exist, for these tables.
    snapshot : bool
        Begin a log with the published tables as they are, and create the slot for it. A snapshot
        that was broken off is begun again. Nothing is done for a log that begins with a snapshot,
        or from which the beginning was pruned. A log without messages that has been captured from
        a slot already begins again: that slot is dropped and a new one is created.
    snapshot_jobs : int
        How many tables are copied at once.
    binary, streaming, two_phase, messages, origin
        As :class:`~pgwire_codec.capture.PluginOptions`.
    compression, segment_bytes, segment_seconds, file_mode
        As :class:`~pgwire_codec.log.LogWriter`.
    flush_seconds : float
        What arrived is durable, and confirmed, after so long at the latest.
    max_retries : int, optional
        How many attempts to connect may fail one after the other; None: any number.
    receive_timeout, slot_patience
        As :class:`~pgwire_codec.capture.Capture`.

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
        publication: str | Sequence[str],
        create_slot: bool = False,
        create_publication: CreatePublication = False,
        snapshot: bool = False,
        snapshot_jobs: int = 4,
        binary: bool = False,
        streaming: Streaming = "off",
        two_phase: bool = False,
        messages: bool | None = None,
        origin: Origin | None = None,
        compression: str | None = None,
        segment_bytes: int = 128 << 20,
        segment_seconds: float = 600.0,
        file_mode: int = 0o600,
        flush_seconds: float = 1.0,
        max_retries: int | None = None,
        receive_timeout: float = 60.0,
        slot_patience: float = 5.0,
    ) -> None:
        if not flush_seconds > 0 or snapshot_jobs < 1:
            raise OptionError("flush_seconds must be above 0, and snapshot_jobs 1 or more")
        self._dsn = dsn
        self._log = log
        self._slot = slot
        self._options = PluginOptions(
            publication_names(publication), binary, streaming, two_phase, messages, origin
        )
        self._create_slot = create_slot
        self._create_publication = create_publication
        self._snapshot = snapshot
        self._snapshot_jobs = snapshot_jobs
        self._writer_options: dict[str, Any] = {
            "compression": compression,
            "segment_bytes": segment_bytes,
            "segment_seconds": segment_seconds,
            "file_mode": file_mode,
        }
        self._flush_seconds = flush_seconds
        self._backoff = Backoff(max_retries)
        self._receive_timeout = receive_timeout
        self._slot_patience = slot_patience
        self._bulletin = Bulletin()
        self._notes: list[str] = []  # that hold for the whole run
        self._interrupt = Interrupt()

    @property
    def status(self) -> Status:
        """How it stands now; may be asked from another thread."""
        return self._bulletin.status

    def stop(self) -> None:
        """Have :meth:`run` end soon, with all that arrived flushed and confirmed.

        It returns at once, and :meth:`run` within two seconds even if the server does not answer:
        a statement is cancelled, and given up if that has no effect. May be called from another
        thread, though not from a signal handler.
        """
        self._interrupt.set()

    def run(
        self, *, until_lsn: int | Literal["now"] | None = None, idle_seconds: float | None = None
    ) -> Status:
        """Capture until :meth:`stop`, or until one of these.

        Parameters
        ----------
        until_lsn : int or "now", optional
            End once every transaction that ends up to here is in the log; "now" is how far the
            server's WAL is flushed at the beginning.
        idle_seconds : float, optional
            End when no message arrived for so long.

        Raises
        ------
        CaptureError
            When a further attempt would not help, or ``max_retries`` attempts have failed; when
            the server was set back, as by restoring an older copy of it; when it sends a frame
            that is not of the streaming replication protocol; and when memory runs out. A message
            that does not decode is not an error here: the log keeps it for its readers.
        LogError
            When the log is damaged, cannot be written, is another system's, timeline's, database's
            or slot's, or is being written by somebody else.
        """
        from pgwire_codec.log import LogWriter

        self._interrupt.clear()
        self._bulletin = Bulletin()
        self._notes.clear()
        until: int | None
        if until_lsn == "now":
            until = self._persist(lambda: current_lsn(self._dsn, self._interrupt))
        else:
            until = until_lsn
        source = self._persist(self._identify)
        if source is None:
            return self._end()
        with LogWriter(self._log, source, **self._writer_options) as writer:
            # A log that is new has no position yet: the slot has one.
            self._bulletin.tell(
                confirmed_lsn=writer.confirm_lsn or None, received_lsn=writer.received_lsn
            )
            try:
                self._persist(lambda: self._capture(writer, source, until, idle_seconds))
            except CaptureError:
                writer.close()  # what was flushed is sealed, too
                raise
        return self._end()

    def _end(self) -> Status:
        self._bulletin.tell(state="stopped", problem=None)
        return self.status

    def _persist(self, attempt: Callable[[], _Result]) -> _Result | None:
        """Try, until it succeeds or cannot; None when told to stop."""
        while not self._interrupt.event.is_set():
            self._bulletin.tell(state="connecting")
            began = monotonic()
            try:
                return attempt()
            except Interrupted:
                break
            except MemoryError as error:
                raise CaptureError(
                    "The capture ran out of memory. Give it more, and start it again: what is "
                    "confirmed to the server is safe in the log.",
                    is_transient=True,
                ) from error
            except CaptureError as error:
                if self._interrupt.event.is_set():  # stop() ended it
                    break
                if monotonic() - began >= _STEADY_SECONDS:
                    self._backoff.succeed()
                wait = self._backoff.fail() if error.is_transient else None
                if wait is None:
                    raise
                self._bulletin.tell(state="waiting", problem=str(error))
                self._interrupt.event.wait(wait)
            finally:
                self._interrupt.release()
        return None

    def _identify(self) -> LogSource:
        return self._source(identify(self._dsn, self._options, self._interrupt))

    def _source(self, identity: Identity) -> LogSource:
        from pgwire_codec.log import LogSource

        return LogSource(
            system_identifier=identity.system_identifier,
            timeline=identity.timeline,
            database=identity.database,
            slot=self._slot,
            server_version=identity.server_version,
            plugin_options=identity.plugin_options,
        )

    def _capture(
        self,
        writer: LogWriter,
        source: LogSource,
        until_lsn: int | None,
        idle_seconds: float | None,
    ) -> None:
        if self._snapshot and (writer.confirm_lsn == 0 or writer.end_ordinal == 0):
            self._take_snapshot(writer)
        elif self._snapshot:
            self._check_begins_with_snapshot()
        elif writer.confirm_lsn == 0 and writer.end_ordinal > 0:
            raise CaptureError(
                f"The log {self._log} holds a snapshot that was broken off. Begin it again with "
                "`snapshot=True`, or write to another log."
            )
        self._stream(writer, source, until_lsn, idle_seconds)

    def _check_begins_with_snapshot(self) -> None:
        """Raise ``CaptureError`` when the log began without the snapshot that is asked for."""
        from pgwire_codec.log import Log

        first = Log(self._log).segment(0).header
        if first.first_ordinal == 0 and not first.snapshot:
            raise CaptureError(
                f"the log {self._log} began without a snapshot and holds changes",
                hint="A snapshot can only be the beginning of a log: capture into a new log with a "
                "new slot. To go on with this one, leave out `snapshot=True`.",
            )

    def _take_snapshot(self, writer: LogWriter) -> None:
        self._bulletin.tell(
            state="snapshot", snapshot_rows=0, snapshot_tables=0, confirmed_lsn=None
        )
        take_snapshot(
            self._dsn,
            SnapshotOptions(
                slot=self._slot,
                options=self._options,
                create_publication=self._create_publication,
                jobs=self._snapshot_jobs,
                slot_patience=self._slot_patience,
            ),
            writer,
            interrupt=self._interrupt,
            created=lambda lsn: self._bulletin.tell(confirmed_lsn=lsn),
            copied=lambda rows: self._copied(writer, rows),
        )

    def _copied(self, writer: LogWriter, rows: CopiedRows) -> None:
        if self._interrupt.event.is_set():
            raise Interrupted
        self._bulletin.appended(
            writer,
            len(rows.offsets) - 1,
            len(rows.messages),
            snapshot_rows=self.status.snapshot_rows + rows.rows,
            snapshot_tables=self.status.snapshot_tables + (rows.rows == 0),
        )

    def _stream(
        self,
        writer: LogWriter,
        source: LogSource,
        until_lsn: int | None,
        idle_seconds: float | None,
    ) -> None:
        capture = self._open(writer, source)
        try:
            if writer.confirm_lsn == 0 and not capture.slot_is_new:
                self._notes = [self._begins_midway(capture.confirmed_lsn)]
            if self._check_positions(writer, capture):
                # The server repeats what the log has: the slot has but one reader at a time.
                capture.close()
                self._check_history(writer, source)
                capture = self._open(writer, source)
            writer.new_session()
            self._bulletin.tell(
                state="streaming",
                problem=None,
                connections=self.status.connections + 1,
                confirmed_lsn=capture.confirmed_lsn,
                notes=(*self._notes, *capture.notes),
            )
            LogStream(
                capture,
                writer,
                flush_seconds=self._flush_seconds,
                stopping=self._interrupt.event,
                bulletin=self._bulletin,
                flushed=self._backoff.succeed,
            ).run(until_lsn, idle_seconds)
        finally:
            capture.close()

    def _open(
        self, writer: LogWriter, source: LogSource, repeats: Mapping[str, str] | None = None
    ) -> Capture:
        """Start the stream where the log ends, or with ``repeats`` where the slot is."""
        is_new = writer.confirm_lsn == 0
        capture = Capture.of(
            self._dsn,
            Wanted(
                slot=self._slot,
                options=self._options,
                create_slot=self._create_slot and is_new,
                create_publication=self._create_publication,
                temporary=False,
                start_lsn=0 if repeats else writer.confirm_lsn,
                slot_patience=self._slot_patience,
                repeats=repeats,
            ),
            receive_timeout=self._receive_timeout,
            interrupt=self._interrupt,
        )
        try:
            capture.__enter__()
        except SlotMissing as error:
            raise self._lost(writer, "does not exist any more") if not is_new else error from error
        try:
            source.check_same(self._source(capture.identity), str(self._log))
        except BaseException:
            capture.close()
            raise
        return capture

    def _check_positions(self, writer: LogWriter, capture: Capture) -> bool:
        """Return whether the server can repeat something that the log has."""
        if writer.confirm_lsn == 0:
            return False
        if capture.confirmed_lsn > writer.confirm_lsn:
            raise self._lost(
                writer, f"is confirmed up to {format_lsn(capture.confirmed_lsn)} already"
            )
        end = _end_of(writer)
        if capture.identity.wal_end_lsn < end:
            raise CaptureError(
                f"The log {self._log} holds what was committed up to {format_lsn(end)}, and the "
                f"server's WAL ends at {format_lsn(capture.identity.wal_end_lsn)}: the server was "
                "set back, as by restoring an older copy of it. Begin a new log."
            )
        return capture.confirmed_lsn < end

    def _check_history(self, writer: LogWriter, source: LogSource) -> None:
        """Raise ``CaptureError`` unless the server repeats the transactions that the log has."""
        from pgwire_codec.log import Log

        log = Log(self._log)
        last = log.segment(len(log) - 1).header.source if len(log) else source
        # Whether a transaction is streamed depends on what else is decoded.
        options = {k: v for k, v in last.plugin_options.items() if k != "streaming"}
        end = _end_of(writer)
        capture = self._open(writer, source, repeats=options)
        try:
            logged = LoggedTransactions(log, max(capture.confirmed_lsn - 1, 0))
            repeated = RepeatedTransactions()
            while not capture.has_passed(end):
                if self._interrupt.event.is_set():
                    raise Interrupted
                repeated.add(capture.read(max_seconds=_TICK, until_lsn=end))
        finally:
            capture.close()
        check_same_history(
            logged,
            repeated,
            confirm_lsn=writer.confirm_lsn,
            is_whole=logged.were_selected_by(options),
            log=str(self._log),
        )

    def _begins_midway(self, lsn: int) -> str:
        return (
            f'The log begins at {format_lsn(lsn)}, where slot "{self._slot}" is: rows that were '
            "committed before are not in it. A log that begins with a snapshot has them."
        )

    def _lost(self, writer: LogWriter, what: str) -> CaptureError:
        return CaptureError(
            f'Replication slot "{self._slot}" {what}, and the log {self._log} holds what was '
            f"committed up to {format_lsn(writer.confirm_lsn)}: what was committed between is lost "
            "to it. The slot was dropped or read by somebody else, or the log is an older copy. "
            "Begin a new log, with a snapshot."
        )


def _end_of(writer: LogWriter) -> int:
    """Return the LSN up to which the server must have what the log has."""
    # A transaction may be in the log whose end was not yet confirmed.
    delivered = writer.delivered_lsn
    return max(writer.confirm_lsn, delivered + 1 if delivered else 0)
