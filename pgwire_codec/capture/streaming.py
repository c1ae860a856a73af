"""One connection's stream into a log: read, written, flushed, and only then confirmed."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import CaptureError
from pgwire_codec.reference import decode_message

if TYPE_CHECKING:
    from threading import Event

    from pgwire_codec.capture.batch import Batch
    from pgwire_codec.capture.status import Bulletin
    from pgwire_codec.capture.walsender import Capture
    from pgwire_codec.log import LogWriter

_TICK: Final = 0.25  # seconds between looks at what else is to be done
_MAX_BATCH_BYTES: Final = 8 << 20
_FLUSH_BYTES: Final = 64 << 20
_ADVANCE_SECONDS: Final = 10.0  # between confirmations of WAL with nothing in it
_COMMITS: Final = b"CcK"  # messages that tell a commit time
_LOOKED_AT: Final = 1000  # messages of a batch, from its end, for the last commit


class LogStream:
    """One connection's stream into a log.

    Parameters
    ----------
    capture : Capture
        Open, and without ``auto_advance``: what the server may forget the log has to know first.
    writer : LogWriter
        At the beginning of a session.
    flush_seconds : float
        What arrived is durable, and confirmed, after so long.
    stopping : threading.Event
        Is set when it is to end.
    bulletin : Bulletin
        What the stream does.
    flushed : callable
        Is called when messages have become durable.
    """

    def __init__(
        self,
        capture: Capture,
        writer: LogWriter,
        *,
        flush_seconds: float,
        stopping: Event,
        bulletin: Bulletin,
        flushed: Callable[[], None],
    ) -> None:
        self._capture = capture
        self._writer = writer
        self._flush_seconds = flush_seconds
        self._stopping = stopping
        self._bulletin = bulletin
        self._flushed = flushed
        self._unflushed = 0  # bytes
        self._last_flush = monotonic()

    def run(self, until_lsn: int | None, idle_seconds: float | None) -> None:
        """Read, write and confirm until it is to end; ``CaptureError`` when the stream ends."""
        capture, writer = self._capture, self._writer
        tick = min(_TICK, self._flush_seconds)
        last_message = monotonic()
        # A log that is new begins where the slot is; else the slot goes on to where the log is.
        self._flush()
        try:
            while not self._stopping.is_set():
                batch = capture.read(
                    max_bytes=_MAX_BATCH_BYTES, max_seconds=tick, until_lsn=until_lsn
                )
                now = monotonic()
                if len(batch):
                    last_message = now
                    writer.append(batch.messages(), batch.lsn, batch.time)
                    self._unflushed += batch.nbytes
                    self._report(batch)
                if self._is_due(now):
                    self._flush()
                if until_lsn is not None and capture.has_passed(until_lsn):
                    break
                if idle_seconds is not None and now - last_message >= idle_seconds:
                    break
        except CaptureError:
            self._make_durable()  # the connection is gone, what it brought is not
            raise
        self._flush()

    def _is_due(self, now: float) -> bool:
        since = now - self._last_flush
        if self._unflushed:
            return self._unflushed >= _FLUSH_BYTES or since >= self._flush_seconds
        if self._capture.confirmable_lsn <= self._capture.confirmed_lsn:
            return False
        # WAL with nothing in it for us. A server that shuts down waits for its confirmation.
        return self._capture.reply_wanted or since >= _ADVANCE_SECONDS

    def _flush(self) -> None:
        self._capture.confirm(self._make_durable())
        self._bulletin.tell(confirmed_lsn=self._capture.confirmed_lsn)

    def _make_durable(self) -> int:
        """Flush all that was received, and give what may be confirmed then."""
        received = self._capture.received_lsn
        lsn = max(self._capture.confirmable_lsn, self._writer.confirm_lsn)
        self._writer.flush(confirm_lsn=lsn, received_lsn=received)
        if self._unflushed:
            self._flushed()
        self._unflushed = 0
        self._last_flush = monotonic()
        self._bulletin.tell(received_lsn=received)
        self._bulletin.written(self._writer)
        return lsn

    def _report(self, batch: Batch) -> None:
        received = self._capture.received_lsn
        self._bulletin.appended(self._writer, len(batch), batch.nbytes, received_lsn=received)
        tags = batch.buffer[batch.offsets[:-1]]
        for index in range(len(tags) - 1, max(-1, len(tags) - _LOOKED_AT), -1):
            if tags[index] in _COMMITS:
                start, end = batch.offsets[index : index + 2].tolist()
                commit: Any = decode_message(batch.buffer[start:end].tobytes())
                self._bulletin.tell(commit_time=commit.commit_time)
                return
