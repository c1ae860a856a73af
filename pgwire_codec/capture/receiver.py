"""The client's side of a replication connection: receive messages in batches, send statuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec._impl import decode_frame, encode_message
from pgwire_codec.capture.batch import EPOCH, MessageBatch
from pgwire_codec.capture.connection.error_hints import CONNECTION_LOST
from pgwire_codec.capture.connection.frames import NEVER, ReadOutcome, Taken
from pgwire_codec.capture.connection.replication_connection import (
    ReplicationConnection,
    ReplicationEnded,
)
from pgwire_codec.capture.positions import Positions
from pgwire_codec.errors import CaptureError, DecodeError
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import PrimaryKeepalive, StandbyStatusUpdate, XLogData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgwire_codec.capture.options import BatchLimits

_REQUEST_INTERVAL: Final = 1.0  # seconds between requests for the server's position
_RECENT: Final = 0.1  # of the interval between statuses: a batch needs no other one
_NOTHING: Final = Taken(
    np.empty(0, np.uint8), np.zeros(1, np.int32), np.empty(0, np.uint64), np.empty(0, np.int64)
)
_HINT: Final = "Connect to a PostgreSQL server directly, not through a pooler or proxy."


class Receiver:
    """Receives messages over a replication connection, and sends statuses in time.

    Parameters
    ----------
    connection : ReplicationConnection
    confirmed : int
        LSN from which the server sends.
    status_interval : float
        Maximum seconds between statuses.
    receive_timeout : float
        Seconds of the server's silence, including an unanswered request for a reply, after which
        the connection counts as lost.
    auto_advance : bool
        Whether a status confirms WAL without changes for the slot, if nothing else is left to be
        confirmed.

    Attributes
    ----------
    positions : Positions
        The positions, as far as messages have been counted in.
    delivered : int
        LSN that the consumer may confirm for the batches delivered so far.
    reply_requested : bool
        Whether the server has requested a status since the last :meth:`confirm`. A server that
        shuts down requests one, and waits until everything is confirmed.
    """

    def __init__(
        self,
        connection: ReplicationConnection,
        confirmed: int,
        *,
        status_interval: float,
        receive_timeout: float,
        auto_advance: bool,
    ) -> None:
        self.positions = Positions(confirmed)
        self.delivered = confirmed
        self.reply_requested = False
        self._connection = connection
        self._frames = connection.frames
        self._counted = 0  # buffered messages that the positions include
        self._status_interval = status_interval
        self._receive_timeout = receive_timeout
        self._auto_advance = auto_advance
        self._ordinal = 0
        self._ended: ReplicationEnded | None = None
        now = time.monotonic()
        self._last_status = self._last_received = now
        self._last_request = 0.0  # for the position
        self._pinged: float | None = None  # when a reply was requested that has not arrived
        self._first_arrival: float | None = None  # of the buffered messages

    @property
    def confirmable(self) -> int:
        """LSN that may be confirmed once every delivered batch is durable; never goes back."""
        if not self._frames.count:
            self.delivered = max(self.delivered, self.positions.confirmable)
        return max(self.delivered, self.positions.confirmed)

    def confirm(self, lsn: int) -> None:
        """Confirm an LSN, and send a status; raise ``CaptureError`` if it was not delivered."""
        limit = self.confirmable
        if lsn > limit:
            raise CaptureError(
                f"cannot confirm {format_lsn(lsn)}: messages were delivered up to "
                f"{format_lsn(limit)}",
                hint="Confirm the batch's confirm_lsn.",
            )
        self.positions.confirm(lsn)
        self.reply_requested = False
        self.send_status()

    def send_status(self, *, reply_requested: bool = False) -> None:
        """Send the positions to the server. Raises ``ReplicationEnded``."""
        self._count()
        positions = self.positions
        if self._auto_advance:
            positions.advance_idle()
        status = StandbyStatusUpdate(
            written_lsn=positions.received,
            flushed_lsn=positions.confirmed,
            applied_lsn=positions.confirmed,
            send_time=time.time_ns() // 1000 - EPOCH_MICROSECONDS,
            reply_requested=reply_requested,
        )
        self._connection.write(encode_message(status))
        self._last_status = time.monotonic()

    def batches(self, limits: BatchLimits) -> Iterator[MessageBatch]:
        """Yield batches that are not empty; raise ``ReplicationEnded`` after the last of them."""
        last_message = time.monotonic()
        while True:
            try:
                if self._ended is not None:
                    raise self._ended
                arrived = self._frames.count
                outcome = self._receive(limits, self._due(limits, last_message))
                now = time.monotonic()
                if self._frames.count > arrived:
                    self._note_sign_of_life()
                    last_message = now
                    if self._first_arrival is None:
                        self._first_arrival = now
                if now - self._last_status >= self._status_interval:
                    self.send_status()
                ended = self._has_passed(limits) or outcome is ReadOutcome.WOKEN
                if outcome is ReadOutcome.EMPTY and not ended:
                    self._send_requests(now, limits)
                    idle = limits.idle_seconds
                    ended = idle is not None and now - last_message >= idle
                first = self._first_arrival
                late = first is not None and now - first >= limits.max_seconds
                full = outcome is ReadOutcome.FULL or self._is_committed(limits, outcome)
                if self._frames.count and (full or late or ended):
                    if now - self._last_status >= _RECENT * self._status_interval:
                        self.send_status()
                    yield self._deliver()
                    last_message = time.monotonic()  # the consumer's time is not idle
                if ended:
                    return
            except ReplicationEnded as end:
                self._ended = end
                if not self._frames.count:
                    raise
                yield self._deliver()

    def read(self, limits: BatchLimits) -> MessageBatch:
        """Return the next batch, or an empty one after ``limits.idle_seconds`` without any."""
        for batch in self.batches(limits):
            return batch
        return self._deliver()

    def _receive(self, limits: BatchLimits, due: float) -> ReadOutcome:
        """Read frames until ``due``, or until a keepalive."""
        stop = NEVER
        if limits.until_lsn is not None:
            # Once the position is reached, wait for the end of the open transaction.
            stop = 0 if self.positions.reached >= limits.until_lsn else limits.until_lsn
        if limits.until_commit:
            stop = 0
        seconds = max(0.0, due - time.monotonic())
        outcome = self._connection.read(limits.max_messages, limits.max_bytes, stop, seconds)
        if outcome is not ReadOutcome.EMPTY:
            self._count()
        if outcome is ReadOutcome.CONTROL:
            self._take_keepalive(self._frames.control)
        return outcome

    def _count(self) -> None:
        """Count messages that were read since the last call into the positions."""
        if self._counted < self._frames.count:
            self.positions.add_messages(*self._frames.since(self._counted))
            self._counted = self._frames.count

    def _take_keepalive(self, data: bytes) -> None:
        frame = _decode_keepalive(data)
        self.positions.add_keepalive(frame.wal_end)
        self._note_sign_of_life()
        if frame.reply_requested:
            self.reply_requested = True
            self.send_status()

    def _has_passed(self, limits: BatchLimits) -> bool:
        return limits.until_lsn is not None and self.positions.has_passed(limits.until_lsn)

    def _is_committed(self, limits: BatchLimits, outcome: ReadOutcome) -> bool:
        """Return whether the last message ends a batch, since it ends a transaction."""
        reached = outcome is ReadOutcome.REACHED
        return limits.until_commit and reached and not self.positions.is_open

    def _note_sign_of_life(self) -> None:
        self._last_received = time.monotonic()
        self._pinged = None

    def _send_requests(self, now: float, limits: BatchLimits) -> None:
        """Request a reply from a server that has nothing to send, if one is needed and due."""
        if limits.until_lsn is not None and now - self._last_request >= _REQUEST_INTERVAL:
            # Without a request, the server need not report a position that concerns no change.
            self.send_status(reply_requested=True)
            self._last_request = now
        half = self._receive_timeout / 2
        silent = now - self._last_received
        if self._pinged is None:
            if silent >= half:
                self.send_status(reply_requested=True)
                self._pinged = now
        elif now - self._pinged >= half:
            raise ReplicationEnded(
                f"the server has been silent for {silent:.0f} s", CONNECTION_LOST
            )

    def _due(self, limits: BatchLimits, last_message: float) -> float:
        """Return the time at which something else than receiving has to be done."""
        if self._has_passed(limits):
            return 0.0
        half = self._receive_timeout / 2
        due = min(
            self._last_status + self._status_interval,
            (self._last_received if self._pinged is None else self._pinged) + half,
        )
        if self._first_arrival is not None:
            due = min(due, self._first_arrival + limits.max_seconds)
        if limits.idle_seconds is not None:
            due = min(due, last_message + limits.idle_seconds)
        if limits.until_lsn is not None:
            due = min(due, self._last_request + _REQUEST_INTERVAL)
        return due

    def _deliver(self) -> MessageBatch:
        self._count()
        taken = self._frames.take() if self._frames.count else _NOTHING
        batch = MessageBatch(
            buffer=taken.data,
            offsets=taken.offsets,
            lsn=taken.lsn,
            time=EPOCH + taken.time.view("timedelta64[us]"),
            xid=None,
            first=self._ordinal,
            confirm_lsn=self.positions.required,
        )
        self._ordinal += len(batch)
        self.delivered = max(self.delivered, self.positions.required)
        self._counted = 0
        self._first_arrival = None
        return batch


def _decode_keepalive(data: bytes) -> PrimaryKeepalive:
    """Decode a frame without a message; raise ``CaptureError`` if servers do not send it."""
    try:
        frame = decode_frame(data)
    except DecodeError as error:
        raise CaptureError(f"the server sent an invalid frame: {error}", hint=_HINT) from error
    if isinstance(frame, XLogData):
        raise CaptureError("the server sent an XLogData frame without a message", hint=_HINT)
    if not isinstance(frame, PrimaryKeepalive):
        raise CaptureError(
            f"the server sent a {type(frame).__name__} frame, which only clients send", hint=_HINT
        )
    return frame
