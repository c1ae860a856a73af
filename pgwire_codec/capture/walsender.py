"""A replication connection as an iterator of batches."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec.capture.batch import EPOCH, Batch
from pgwire_codec.capture.connect import connect, connect_walsender, load_psycopg2
from pgwire_codec.capture.copy_both import CopyBoth, StreamEnded
from pgwire_codec.capture.options import (
    Origin,
    PluginOptions,
    Streaming,
    publication_names,
)
from pgwire_codec.capture.problems import explain, explain_code
from pgwire_codec.capture.progress import Progress
from pgwire_codec.capture.session import Session, Wanted, start_replication
from pgwire_codec.errors import CaptureError, OptionError
from pgwire_codec.lsn import format_lsn, parse_lsn
from pgwire_codec.messages import PrimaryKeepalive, StandbyStatusUpdate
from pgwire_codec.reference import decode_frame, encode_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from pgwire_codec.capture.publications import CreatePublication

# The head of an XLogData frame, before the message: tag, WAL start, WAL end, send time. Read here,
# not by decode_frame, because it comes with every message.
_HEAD: Final = struct.Struct(">cQQq")
_XLOG_DATA: Final = b"w"

_MAX_BYTES: Final = 1 << 30  # with the largest message there is, still a 32-bit Arrow array
_LONGEST_STATUS_INTERVAL: Final = 10.0  # seconds
_ASK_INTERVAL: Final = 1.0  # seconds between requests for the server's position
_CLOCK_EVERY: Final = 256  # messages between looks at the clock
_UNIX_EPOCH_OFFSET: Final = 946_684_800  # seconds from 1970 to 2000


class Capture:
    """A live stream of pgoutput messages from one replication slot.

    A context manager: entering connects, checks, and starts the stream; leaving closes it. Session
    settings that values depend on are pinned (see :mod:`pgwire_codec.capture.settings`), and the
    highest protocol version of the server is used.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI of the database to capture from.
    slot : str
        Name of the replication slot.
    publication : str or sequence of str
        Names of the publications.
    create_slot : bool
        Create the slot when it does not exist. Waits for transactions that are writing to end.
    create_publication : False, "all tables" or list of str
        Create the publication when it does not exist, for these tables (named as in SQL).
    temporary : bool
        Create a slot that the server drops when the capture closes.
    binary, streaming, two_phase, messages, origin
        As :class:`~pgwire_codec.capture.PluginOptions`.
    start_lsn : int
        Where to start; 0, or anything before it, is what was last confirmed.
    slot_patience : float
        Seconds to wait for a slot that another connection still holds.

    Attributes
    ----------
    plugin_options : dict of str to str
        What was agreed with the server; set on entering.
    server_version : int
        As ``server_version_num``: 180004 is 18.4; set on entering.
    wal_sender_timeout : float
        Seconds; ``inf`` where the server has it off; set on entering.
    notes : list of str
        What is worth knowing and is no error; set on entering.

    Notes
    -----
    No thread runs behind it. While a batch is with the consumer nothing is read and nothing
    answered, and the server drops a connection that is silent for ``wal_sender_timeout`` (a minute
    unless configured). A status goes out just before a batch is handed over, so that a consumer
    may take that long for one batch; one that takes longer calls :meth:`keepalive` meanwhile.

    The slot advances on its own over WAL that holds nothing for it, but only when all that was
    received is confirmed.

    Delivery is at least once: what was not confirmed comes again with the next capture, and a
    streamed transaction comes again from its start.

    PostgreSQL documentation, "Streaming Replication Protocol" and "Logical Streaming Replication
    Protocol".
    """

    plugin_options: dict[str, str]
    server_version: int
    wal_sender_timeout: float
    notes: list[str]

    def __init__(
        self,
        dsn: str,
        *,
        slot: str,
        publication: str | Sequence[str],
        create_slot: bool = False,
        create_publication: CreatePublication = False,
        temporary: bool = False,
        binary: bool = False,
        streaming: Streaming = "off",
        two_phase: bool = False,
        messages: bool | None = None,
        origin: Origin | None = None,
        start_lsn: int = 0,
        slot_patience: float = 5.0,
    ) -> None:
        self._dsn = dsn
        self._slot = slot
        self._wanted = Wanted(
            slot=slot,
            options=PluginOptions(
                publication_names(publication), binary, streaming, two_phase, messages, origin
            ),
            create_slot=create_slot or temporary,
            create_publication=create_publication,
            temporary=temporary,
            start_lsn=start_lsn,
            slot_patience=slot_patience,
        )
        self._stream: CopyBoth | None = None

    def __enter__(self) -> Capture:
        psycopg2 = load_psycopg2()
        connection = connect_walsender(self._dsn)
        try:
            self._begin(start_replication(connection, self._wanted))
            self._stream = CopyBoth(connection)
            self.keepalive()
        except BaseException as error:
            self.close()
            connection.close()
            if isinstance(error, psycopg2.Error):
                raise explain(error, self._slot) from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; again does nothing. What was not confirmed will be sent again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @property
    def confirmed_lsn(self) -> int:
        """What the server was told it may forget."""
        return self._progress.confirmed

    @property
    def received_lsn(self) -> int:
        """The highest position that the server has told."""
        return self._progress.received

    def batches(
        self,
        *,
        max_messages: int = 50_000,
        max_bytes: int = 16 << 20,
        max_seconds: float = 1.0,
        until_lsn: int | None = None,
        idle_seconds: float | None = None,
    ) -> Iterator[Batch]:
        """Yield the messages as they arrive, in batches that are never empty.

        Parameters
        ----------
        max_messages, max_bytes : int
            A batch ends once it has this many messages, or at least this many bytes of them. It
            may end anywhere, also inside a transaction.
        max_seconds : float
            A batch ends this long after its first message, at the latest.
        until_lsn : int, optional
            End once every transaction that ends up to here was received, and the one that is
            being received then is complete; a streamed one may still run. See
            :meth:`current_lsn`.
        idle_seconds : float, optional
            End when no message arrived for so long. With neither of the two: never.

        Raises
        ------
        CaptureError
            When the server ends the stream. What had arrived is yielded before.
        """
        if max_messages < 1 or not 1 <= max_bytes <= _MAX_BYTES or max_seconds <= 0:
            raise OptionError(
                "max_messages must be at least 1, max_bytes from 1 to 2**30, max_seconds above 0"
            )
        self._open_stream()
        return self._batches(max_messages, max_bytes, max_seconds, until_lsn, idle_seconds)

    def confirm(self, lsn: int) -> None:
        """Tell the server that everything that ends up to ``lsn`` is durable.

        It will not send that again, and may remove it. Going back has no effect.

        Parameters
        ----------
        lsn : int
            Usually :attr:`Batch.confirm_lsn`.

        Raises
        ------
        CaptureError
            When it is beyond what was delivered.
        """
        self._open_stream()
        limit = self._delivered if self._data else max(self._delivered, self._progress.reached)
        if lsn > limit:
            raise CaptureError(
                f"Cannot confirm {format_lsn(lsn)}: only what ends up to {format_lsn(limit)} was "
                "delivered. Confirm the batch's confirm_lsn."
            )
        self._progress.confirm(lsn)
        self.keepalive()

    def keepalive(self) -> None:
        """Tell the server that the consumer lives, and what is confirmed; takes microseconds.

        Raises ``CaptureError`` when the server has ended the stream.
        """
        try:
            self._send_status()
        except StreamEnded as end:
            raise explain_code(end.sqlstate, end.message, self._slot) from end

    def current_lsn(self) -> int:
        """Ask the server how far its WAL is flushed, over a connection of its own.

        A transaction that was committed before the call ends at or before the answer, unless it
        was committed with ``synchronous_commit = off``.
        """
        connection = connect(self._dsn)
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT pg_current_wal_flush_lsn()")
            return parse_lsn(cursor.fetchone()[0])
        finally:
            connection.close()

    def _begin(self, session: Session) -> None:
        self.server_version = session.server_version
        self.plugin_options = session.plugin_options
        self.wal_sender_timeout = session.wal_sender_timeout
        self.notes = session.notes
        self._status_interval = min(_LONGEST_STATUS_INTERVAL, session.wal_sender_timeout / 4)
        self._progress = Progress(session.confirmed_lsn)
        self._delivered = session.confirmed_lsn
        self._ordinal = 0
        self._clear()

    def _batches(
        self,
        max_messages: int,
        max_bytes: int,
        max_seconds: float,
        until_lsn: int | None,
        idle_seconds: float | None,
    ) -> Iterator[Batch]:
        progress = self._progress
        now = last_message = time.monotonic()
        asked = 0.0
        while True:
            try:
                frame = self._open_stream().read()
                if frame is None or len(self._data) % _CLOCK_EVERY == 0:
                    now = time.monotonic()
                    if now - self._last_status >= self._status_interval:
                        self._send_status()
                if frame is not None and self._take(frame, now):
                    last_message = now
                ended = until_lsn is not None and progress.has_passed(until_lsn)
                if frame is None and not ended:
                    if until_lsn is not None and now - asked >= _ASK_INTERVAL:
                        # The server need not say where it is when nothing concerns this slot.
                        self._send_status(reply_requested=True)
                        asked = now
                    ended = idle_seconds is not None and now - last_message >= idle_seconds
                full = len(self._data) >= max_messages or self._bytes >= max_bytes
                late = bool(self._data) and now - self._first_arrival >= max_seconds
                if self._data and (full or late or ended):
                    self._send_status()
                    yield self._deliver()
                    now = last_message = time.monotonic()  # the consumer's time is not idle
                elif frame is None and not ended:
                    self._wait(now, max_seconds, idle_seconds, last_message, until_lsn)
                if ended:
                    return
            except StreamEnded as end:
                if self._data:
                    yield self._deliver()
                raise explain_code(end.sqlstate, end.message, self._slot) from end

    def _wait(
        self,
        now: float,
        max_seconds: float,
        idle_seconds: float | None,
        last_message: float,
        until_lsn: int | None,
    ) -> None:
        """Wait for input, but no longer than until something else has to be done."""
        due = self._last_status + self._status_interval
        if self._data:
            due = min(due, self._first_arrival + max_seconds)
        if idle_seconds is not None:
            due = min(due, last_message + idle_seconds)
        if until_lsn is not None:
            due = min(due, now + _ASK_INTERVAL)
        self._open_stream().wait(due - now)

    def _take(self, frame: bytes, now: float) -> bool:
        """Take a frame in; whether it held a message."""
        if frame[:1] != _XLOG_DATA:
            self._take_keepalive(frame)
            return False
        _, start, _, send_time = _HEAD.unpack_from(frame)
        data = frame[_HEAD.size :]
        if not self._data:
            self._first_arrival = now
        self._progress.message(data[0], start)
        self._data.append(data)
        self._lsns.append(start)
        self._times.append(send_time)
        self._bytes += len(data)
        return True

    def _take_keepalive(self, data: bytes) -> None:
        frame = decode_frame(data)
        if not isinstance(frame, PrimaryKeepalive):
            raise CaptureError(
                f"The server sent a {type(frame).__name__}, which only a client sends. Connect to "
                "a PostgreSQL server directly."
            )
        self._progress.keepalive(frame.wal_end)
        if frame.reply_requested:
            self._send_status()

    def _deliver(self) -> Batch:
        batch = Batch(
            data=self._data,
            lsn=np.array(self._lsns, dtype=np.uint64),
            time=EPOCH + np.array(self._times, dtype="timedelta64[us]"),
            xid=None,
            first=self._ordinal,
            confirm_lsn=self._progress.required,
        )
        self._ordinal += len(batch)
        self._delivered = self._progress.required
        self._clear()
        return batch

    def _clear(self) -> None:
        self._data: list[bytes] = []
        self._lsns: list[int] = []
        self._times: list[int] = []
        self._bytes = 0
        self._first_arrival = 0.0

    def _send_status(self, *, reply_requested: bool = False) -> None:
        progress = self._progress
        progress.advance_idle()
        status = StandbyStatusUpdate(
            written_lsn=progress.received,
            flushed_lsn=progress.confirmed,
            applied_lsn=progress.confirmed,
            send_time=int((time.time() - _UNIX_EPOCH_OFFSET) * 1_000_000),
            reply_requested=reply_requested,
        )
        self._open_stream().write(encode_message(status))
        self._last_status = time.monotonic()

    def _open_stream(self) -> CopyBoth:
        if self._stream is None:
            raise CaptureError("The capture is not open. Use it as a context manager.")
        return self._stream
