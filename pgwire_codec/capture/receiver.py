"""One open stream: messages taken in and handed over in batches, statuses sent in time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgwire_codec.capture.batch import EPOCH, UNIX_EPOCH_OFFSET, Batch
from pgwire_codec.capture.connection.error_hints import CONNECTION_LOST
from pgwire_codec.capture.connection.frames import NEVER, Outcome
from pgwire_codec.capture.connection.replication_connection import CopyBoth, StreamEnded
from pgwire_codec.capture.positions import Progress
from pgwire_codec.errors import CaptureError, DecodeError, OptionError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import PrimaryKeepalive, StandbyStatusUpdate, XLogData
from pgwire_codec.reference import decode_frame, encode_message

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BYTES: Final = 1 << 30  # with the largest message there is, still a 32-bit Arrow array
_ASK_INTERVAL: Final = 1.0  # seconds between requests for the server's position
_ADVICE: Final = "Connect to a PostgreSQL server directly, not through a pooler or proxy."


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is handed over, and when there are no more; see ``Capture.batches``."""

    max_messages: int
    max_bytes: int
    max_seconds: float
    until_lsn: int | None
    idle_seconds: float | None

    def __post_init__(self) -> None:
        if (
            self.max_messages < 1
            or not 1 <= self.max_bytes <= _MAX_BYTES
            or not self.max_seconds > 0
        ):
            raise OptionError(
                "max_messages must be at least 1, max_bytes from 1 to 2**30, max_seconds above 0"
            )


class Receiver:
    """The client's side of a stream.

    Parameters
    ----------
    stream : CopyBoth
    confirmed : int
        From where the server sends.
    status_interval : float
        Seconds between statuses, at most.
    receive_timeout : float
        Seconds of the server's silence, an unanswered request for a sign of life among them, after
        which the connection counts as lost.
    auto_advance : bool
        Whether a status confirms WAL with nothing in it for the slot, when nothing else is left to
        be confirmed.

    Attributes
    ----------
    progress : Progress
        The positions, as far as messages were taken note of.
    delivered : int
        What the consumer may confirm, having got the batches before it.
    reply_wanted : bool
        Whether the server asked for a status since :meth:`confirm` was called last. One that shuts
        down asks, and waits until all is confirmed.
    """

    def __init__(
        self,
        stream: CopyBoth,
        confirmed: int,
        *,
        status_interval: float,
        receive_timeout: float,
        auto_advance: bool,
    ) -> None:
        self.progress = Progress(confirmed)
        self.delivered = confirmed
        self.reply_wanted = False
        self._stream = stream
        self._frames = stream.frames
        self._noted = 0  # messages that progress knows of, of those to be taken
        self._status_interval = status_interval
        self._receive_timeout = receive_timeout
        self._auto_advance = auto_advance
        self._ordinal = 0
        self._ended: StreamEnded | None = None
        now = time.monotonic()
        self._last_status = self._heard = now
        self._asked = 0.0  # for the position
        self._pinged: float | None = None  # since when a sign of life is waited for
        self._first_arrival: float | None = None  # of the messages to be taken

    @property
    def confirmable(self) -> int:
        """What may be confirmed once every batch that was delivered is durable; never goes back."""
        if not self._frames.count:
            self.delivered = max(self.delivered, self.progress.confirmable)
        return max(self.delivered, self.progress.confirmed)

    def confirm(self, lsn: int) -> None:
        """Confirm, as far as it was delivered; ``CaptureError`` beyond. Sends a status."""
        limit = self.confirmable
        if lsn > limit:
            raise CaptureError(
                f"Cannot confirm {format_lsn(lsn)}: only what ends up to {format_lsn(limit)} was "
                "delivered. Confirm the batch's confirm_lsn."
            )
        self.progress.confirm(lsn)
        self.reply_wanted = False
        self.send_status()

    def send_status(self, *, reply_requested: bool = False) -> None:
        """Tell the server where we are. Raises ``StreamEnded``."""
        self._note()
        progress = self.progress
        if self._auto_advance:
            progress.advance_idle()
        status = StandbyStatusUpdate(
            written_lsn=progress.received,
            flushed_lsn=progress.confirmed,
            applied_lsn=progress.confirmed,
            send_time=int((time.time() - UNIX_EPOCH_OFFSET) * 1_000_000),
            reply_requested=reply_requested,
        )
        self._stream.write(encode_message(status))
        self._last_status = time.monotonic()

    def batches(self, limits: Limits) -> Iterator[Batch]:
        """Yield batches that are not empty. Raises ``StreamEnded``, after what had arrived."""
        last_message = time.monotonic()
        while True:
            try:
                if self._ended is not None:
                    raise self._ended
                arrived = self._frames.count
                outcome = self._receive(limits, self._due(limits, last_message))
                now = time.monotonic()
                if self._frames.count > arrived:
                    self._hear()
                    last_message = now
                    if self._first_arrival is None:
                        self._first_arrival = now
                if now - self._last_status >= self._status_interval:
                    self.send_status()
                ended = self._has_passed(limits)
                if outcome is Outcome.EMPTY and not ended:
                    self._look_after(now, limits)
                    idle = limits.idle_seconds
                    ended = idle is not None and now - last_message >= idle
                first = self._first_arrival
                late = first is not None and now - first >= limits.max_seconds
                if self._frames.count and (outcome is Outcome.FULL or late or ended):
                    self.send_status()
                    yield self._deliver()
                    last_message = time.monotonic()  # the consumer's time is not idle
                if ended:
                    return
            except StreamEnded as end:
                self._ended = end
                if not self._frames.count:
                    raise
                yield self._deliver()

    def read(self, limits: Limits) -> Batch:
        """Give the next batch; an empty one when none came for ``limits.idle_seconds``."""
        for batch in self.batches(limits):
            return batch
        return self._deliver()

    def _receive(self, limits: Limits, due: float) -> Outcome:
        """Take in what arrives until then, or until a keepalive."""
        stop = NEVER
        if limits.until_lsn is not None:
            # Once it is reached, the end of what is open is what is waited for.
            stop = 0 if self.progress.reached >= limits.until_lsn else limits.until_lsn
        seconds = max(0.0, due - time.monotonic())
        outcome = self._stream.read(limits.max_messages, limits.max_bytes, stop, seconds)
        if outcome is not Outcome.EMPTY:
            self._note()
        if outcome is Outcome.CONTROL:
            self._take_keepalive(self._frames.control)
        return outcome

    def _note(self) -> None:
        if self._noted < self._frames.count:
            self.progress.messages(*self._frames.since(self._noted))
            self._noted = self._frames.count

    def _take_keepalive(self, data: bytes) -> None:
        frame = _decode_keepalive(data)
        self.progress.keepalive(frame.wal_end)
        self._hear()
        if frame.reply_requested:
            self.reply_wanted = True
            self.send_status()

    def _has_passed(self, limits: Limits) -> bool:
        return limits.until_lsn is not None and self.progress.has_passed(limits.until_lsn)

    def _hear(self) -> None:
        self._heard = time.monotonic()
        self._pinged = None

    def _look_after(self, now: float, limits: Limits) -> None:
        """Ask what has to be asked of a server that has sent all it had to send."""
        if limits.until_lsn is not None and now - self._asked >= _ASK_INTERVAL:
            # The server need not say where it is when nothing concerns this slot.
            self.send_status(reply_requested=True)
            self._asked = now
        half = self._receive_timeout / 2
        if self._pinged is None:
            if now - self._heard >= half:
                self.send_status(reply_requested=True)
                self._pinged = now
        elif now - self._pinged >= half:
            raise StreamEnded(
                f"the server has been silent for {now - self._heard:.0f} s", CONNECTION_LOST
            )

    def _due(self, limits: Limits, last_message: float) -> float:
        """Give the time until which may be waited before something else has to be done."""
        if self._has_passed(limits):
            return 0.0
        half = self._receive_timeout / 2
        due = min(
            self._last_status + self._status_interval,
            (self._heard if self._pinged is None else self._pinged) + half,
        )
        if self._first_arrival is not None:
            due = min(due, self._first_arrival + limits.max_seconds)
        if limits.idle_seconds is not None:
            due = min(due, last_message + limits.idle_seconds)
        if limits.until_lsn is not None:
            due = min(due, self._asked + _ASK_INTERVAL)
        return due

    def _deliver(self) -> Batch:
        self._note()
        taken = self._frames.take()
        batch = Batch(
            buffer=taken.data,
            offsets=taken.offsets,
            lsn=taken.lsn,
            time=EPOCH + taken.time.view("timedelta64[us]"),
            xid=None,
            first=self._ordinal,
            confirm_lsn=self.progress.required,
        )
        self._ordinal += len(batch)
        self.delivered = max(self.delivered, self.progress.required)
        self._noted = 0
        self._first_arrival = None
        return batch


def _decode_keepalive(data: bytes) -> PrimaryKeepalive:
    """Decode a frame without a message; ``CaptureError`` for one that no server sends here."""
    try:
        frame = decode_frame(data)
    except DecodeError as error:
        raise CaptureError(f"The server sent an invalid frame ({error}). {_ADVICE}") from error
    if isinstance(frame, XLogData):
        raise CaptureError(f"The server sent an XLogData frame that contains no message. {_ADVICE}")
    if not isinstance(frame, PrimaryKeepalive):
        raise CaptureError(
            f"The server sent a {type(frame).__name__} frame, which only clients send. {_ADVICE}"
        )
    return frame
