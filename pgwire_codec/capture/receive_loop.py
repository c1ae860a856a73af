"""Loop that receives one connection's messages into a log: read, write, flush, then confirm."""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec._impl import decode_message
from pgwire_codec.codec.tables import tagged
from pgwire_codec.errors import CaptureError, DecodeError
from pgwire_codec.protocol.tags import COMMITS

if TYPE_CHECKING:
    from threading import Event

    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.capture.capture import Capture
    from pgwire_codec.capture.disk_room import DiskRoom
    from pgwire_codec.capture.status import StatusBoard
    from pgwire_codec.log import LogWriter

_TICK: Final = 0.25  # seconds between checks for other work
_LARGEST_PAUSE: Final = 1.0  # seconds between two flushes under load, unless more is requested
_PAUSE_BYTES: Final = 16 << 20  # of one flush, after which the pause is a second
_MAX_BATCH_BYTES: Final = 8 << 20
_FLUSH_BYTES: Final = 64 << 20
_ADVANCE_SECONDS: Final = 10.0  # between confirmations of WAL without changes for the slot
_MOST_DECODED: Final = 1000  # commits at the end of a batch, to find one that decodes
_MOST_BUFFERED: Final = 4  # batches that are read and not written
_KEEPALIVE_SECONDS: Final = 1.0
_START_SECONDS: Final = 10.0  # in which a thread starts, if it has the memory


@dataclass(frozen=True, slots=True)
class _Flush:
    """A running flush, and the positions that it makes durable."""

    done: Future[None]
    lsn: int
    received_lsn: int
    has_messages: bool


class _Background:
    """Thread that makes calls in order, and none after a failed one.

    A flush after a failed append would confirm messages that the log does not contain.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        self._failure: BaseException | None = None
        # threading.Thread would wait for ever for a thread that has no memory for its first call.
        self._starting, self._running = allocate_lock(), allocate_lock()
        self._starting.acquire()
        self._running.acquire()
        try:
            start_new_thread(self._run, ())
        except RuntimeError as error:  # no memory for a thread
            raise MemoryError(str(error)) from error
        if not self._starting.acquire(timeout=_START_SECONDS):
            raise MemoryError("the thread that writes the log did not start")

    def submit(self, call: Callable[[], None]) -> Future[None]:
        """Queue a call; its future has the exception of the first failed call, if there is one."""
        done: Future[None] = Future()
        self._calls.put((done, call))
        return done

    def wait(self, done: Future[None], seconds: float) -> bool:
        """Wait for a call to end for this long, and return whether it has.

        Raises ``MemoryError`` when the thread has died for lack of memory.
        """
        alive = self._running.locked()
        is_over = bool(wait([done], seconds).done)
        if not (is_over or alive):
            raise MemoryError("the thread that writes the log ended without a result")
        return is_over

    def close(self) -> None:
        """Wait for the calls."""
        self._calls.put(None)
        with self._running:
            pass

    def _run(self) -> None:
        try:
            self._starting.release()
            self._make_calls()
        finally:
            self._running.release()

    def _make_calls(self) -> None:
        while (item := self._calls.get()) is not None:
            done, call = item
            if self._failure is None:
                try:
                    call()
                except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
                    self._failure = error
            if self._failure is None:
                done.set_result(None)
            else:
                done.set_exception(self._failure)


def _call(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()


class ReceiveLoop:
    """Receives one connection's messages into a log.

    Parameters
    ----------
    capture : Capture
        Open, and without ``auto_advance``: the log has to record a position before the server may
        discard WAL up to it.
    writer : LogWriter
        At the beginning of a session.
    flush_seconds : float
        Minimum seconds from the beginning of a flush to that of the next.
    stopping : threading.Event
        Set to end the loop.
    status_board : StatusBoard
        Updated with the positions.
    flushed : callable
        Called when messages have become durable.
    room : DiskRoom
        Of the log's disk. Nothing is read while it is short: the server keeps its WAL.
    pausing : callable
        Returns whether the loop has to end, because something else is to be done.
    arrived : callable, optional
        Called with each batch before it is written.
    cut_lsn : int, optional
        Messages are not written from the first transaction on that ends after this LSN.
    """

    def __init__(
        self,
        capture: Capture,
        writer: LogWriter,
        *,
        flush_seconds: float,
        stopping: Event,
        status_board: StatusBoard,
        flushed: Callable[[], None],
        room: DiskRoom,
        pausing: Callable[[], bool] = lambda: False,
        arrived: Callable[[MessageBatch], None] | None = None,
        cut_lsn: int | None = None,
    ) -> None:
        self._room = room
        self._pausing = pausing
        self._arrived = arrived
        self._cut_lsn = cut_lsn
        self._is_cut = False
        self._capture = capture
        self._writer = writer
        self._flush_seconds = self._pause = flush_seconds
        self._stopping = stopping
        self._status_board = status_board
        self._flushed = flushed
        self._durable_lsn = writer.confirm_lsn
        self._unflushed = 0  # bytes
        self._last_flush = monotonic()
        # It writes while this thread reads: a walsender blocks while its client does not read.
        self._background = _Background()
        self._writing: deque[Future[None]] = deque()
        self._unwritten: Callable[[], None] | None = None  # call for the last batch
        self._flush: _Flush | None = None

    def run(self, until_lsn: int | None, idle_seconds: float | None) -> None:
        """Read, write and confirm until a limit; raise ``CaptureError`` when the stream ends."""
        try:
            # A new log begins where the slot is; otherwise the slot advances to the log's end.
            self._finish()
            self._confirm()
            try:
                self._receive(until_lsn, idle_seconds)
            except CaptureError:
                self._finish()  # keep what the lost connection delivered
                raise
            self._finish()
            self._confirm()
        finally:
            self._background.close()

    def _receive(self, until_lsn: int | None, idle_seconds: float | None) -> None:
        capture = self._capture
        now = last_message = monotonic()
        while not (self._stopping.is_set() or self._is_cut or self._pausing()):
            if self._room.is_short():
                self._wait_for_room()
                now = last_message = monotonic()
            # Until a flush may begin, what arrives is one batch; the first transaction comes alone.
            left = self._last_flush + self._pause - now if self._unflushed else 0.0
            batch = capture.read(
                max_bytes=_MAX_BATCH_BYTES,
                max_seconds=_TICK if left <= 0 else min(_TICK, left),
                until_lsn=until_lsn,
                until_commit=self._flush is None and left <= 0,
            )
            now = monotonic()
            if self._cut_lsn is not None:
                whole, batch = len(batch), batch.until(self._cut_lsn)
                self._is_cut = len(batch) < whole
            if len(batch):
                last_message = now
                self._append(batch)
            if self._flush is not None and self._flush.done.done():
                self._take_flush()
                self._confirm()
            if self._flush is None:
                self._status_board.progressed()
                if self._is_due(now):
                    self._begin_flush()
            self._begin_write()
            if until_lsn is not None and capture.has_passed(until_lsn):
                return
            if idle_seconds is not None and now - last_message >= idle_seconds:
                return

    def _wait_for_room(self) -> None:
        self._finish()
        self._confirm()
        self._room.wait(self._capture.keepalive)

    def _append(self, batch: MessageBatch) -> None:
        if self._arrived is not None:
            self._arrived(batch)
        self._unflushed += batch.nbytes
        self._unwritten = partial(self._writer.append, batch.messages(), batch.lsn, batch.time)
        self._report(batch)

    def _begin_write(self) -> None:
        """Begin to write the last batch, unless a flush does."""
        if self._unwritten is not None:
            self._writing.append(self._background.submit(self._unwritten))
            self._unwritten = None
        while self._writing and (self._writing[0].done() or len(self._writing) > _MOST_BUFFERED):
            self._await(self._writing.popleft())

    def _await(self, writing: Future[None]) -> None:
        """Wait for a write, and keep the connection alive meanwhile."""
        while not self._background.wait(writing, _KEEPALIVE_SECONDS):
            self._capture.keepalive()
        writing.result()

    def _is_due(self, now: float) -> bool:
        since = now - self._last_flush
        if self._unflushed >= _FLUSH_BYTES:
            return True
        if self._unflushed:
            # A flush of a transaction's beginning lets nobody read or confirm more.
            is_whole = self._confirmable_lsn > self._durable_lsn
            return since >= (self._pause if is_whole else max(self._pause, _LARGEST_PAUSE))
        if self._confirmable_lsn <= self._capture.confirmed_lsn:
            return False
        # WAL without changes for the slot. A server that shuts down waits for its confirmation.
        return self._capture.reply_requested or since >= _ADVANCE_SECONDS

    @property
    def _confirmable_lsn(self) -> int:
        """LSN that may be confirmed once all that was written is durable."""
        lsn = self._capture.confirmable_lsn
        return lsn if self._cut_lsn is None else min(lsn, self._cut_lsn)

    def _begin_flush(self) -> _Flush:
        """Begin to make durable all that was received so far."""
        received = self._capture.received_lsn
        lsn = max(self._confirmable_lsn, self._durable_lsn)
        flush = partial(self._writer.flush, confirm_lsn=lsn, received_lsn=received)
        # One call for both: each one wakes the thread, and the two contend for the interpreter.
        append, self._unwritten = self._unwritten, None
        done = self._background.submit(flush if append is None else partial(_call, append, flush))
        done.add_done_callback(lambda _: self._capture.wake())
        self._flush = _Flush(done, lsn, received, has_messages=self._unflushed > 0)
        # While messages arrive faster than this, each pause is longer, and its flush larger.
        seconds = min(self._unflushed / _PAUSE_BYTES, _LARGEST_PAUSE)
        self._pause = max(self._flush_seconds, seconds)
        self._unflushed = 0
        self._last_flush = monotonic()
        return self._flush

    def _take_flush(self) -> None:
        """Record the end of a flush, and so of each append before it."""
        assert self._flush is not None
        flush, self._flush = self._flush, None
        while self._writing and self._writing[0].done():
            self._writing.popleft().result()
        flush.done.result()
        self._durable_lsn = flush.lsn
        if flush.has_messages:
            self._flushed()
        self._status_board.written(self._writer, received_lsn=flush.received_lsn)

    def _finish(self) -> None:
        """Make all that was received durable, and wait for it."""
        if self._flush is not None:
            self._settle(self._flush.done)
            self._take_flush()
        self._settle(self._begin_flush().done)  # after every append
        self._take_flush()

    def _settle(self, done: Future[None]) -> None:
        while not self._background.wait(done, _KEEPALIVE_SECONDS):
            pass

    def _confirm(self) -> None:
        self._capture.confirm(self._durable_lsn)
        self._status_board.update(confirmed_lsn=self._capture.confirmed_lsn)

    def _report(self, batch: MessageBatch) -> None:
        received = self._capture.received_lsn
        commits = np.flatnonzero(tagged(batch.buffer[batch.offsets[:-1]], COMMITS))
        self._status_board.appended(
            self._writer, len(batch), batch.nbytes, len(commits), received_lsn=received
        )
        for index in commits[: -_MOST_DECODED - 1 : -1].tolist():
            start, end = batch.offsets[index : index + 2].tolist()
            try:
                commit: Any = decode_message(batch.buffer[start:end].tobytes())
            except DecodeError:  # the log stores it unchanged
                continue
            self._status_board.update(commit_time=commit.commit_time)
            return
