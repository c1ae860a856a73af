"""Concurrent copies of ranges of tables, all under one exported snapshot."""

from __future__ import annotations

import queue
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec.capture.connection.connect import load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.snapshot.copy_reader import copy_rows
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.snapshot.table_ranges import TableRange

_PIECE_BYTES: Final = 512 << 10  # of Inserts
_PIECES_WAITING: Final = 2  # at most, for each connection
_POLL_SECONDS: Final = 0.1
_MOST_FAILURES: Final = 3  # consecutive ones, to copy any row
_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Consecutive rows of a range, as Inserts.

    Attributes
    ----------
    range : TableRange
    messages : numpy.ndarray of uint8
        Their concatenated bytes.
    offsets : numpy.ndarray of int32
        Offset of each message in them, and the end of the last one.
    is_last : bool
        Whether the range has no more rows.
    """

    range: TableRange
    messages: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    is_last: bool

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1


class TableCopies:
    """Copies of ranges over several connections.

    If a connection is lost, another one continues after the last row of the range that was
    received, if that has an order.

    Parameters
    ----------
    sessions : sequence of CopySession
        Open connections; each is used by one thread.
    binary : bool
        Read values in their binary form, as pgoutput sends them with that option.
    interrupt : Interrupt
        Ends the pauses between attempts.
    """

    def __init__(
        self, sessions: Sequence[CopySession], *, binary: bool, interrupt: Interrupt
    ) -> None:
        self._sessions = sessions
        self._binary = binary
        self._interrupt = interrupt

    def rows(
        self, ranges: Sequence[TableRange], skip: Mapping[int, int]
    ) -> Generator[CopiedRows, None, None]:
        """Yield the rows of the ranges, those of different ranges interleaved.

        Parameters
        ----------
        ranges : sequence of TableRange
        skip : mapping of int to int
            Number of rows at the beginning of a range to omit, by the range's number.

        Raises
        ------
        psycopg2.Error, CaptureError
        """
        left: queue.SimpleQueue[tuple[TableRange, int]] = queue.SimpleQueue()
        for range_ in ranges:
            left.put((range_, skip.get(range_.number, 0)))
        copied = _CopiedQueue(_PIECES_WAITING * len(self._sessions))
        with ThreadPoolExecutor(len(self._sessions)) as pool:
            jobs = [pool.submit(self._copy, session, left, copied) for session in self._sessions]
            try:
                while not all(job.done() for job in jobs):
                    yield from copied.take()
                    for job in jobs:
                        if job.done():
                            job.result()
                yield from copied.take()
                for job in jobs:
                    job.result()
            finally:
                copied.is_closed = True
                for session, job in zip(self._sessions, jobs, strict=True):
                    if not job.done():
                        session.end()
                wait(jobs)

    def _copy(
        self,
        session: CopySession,
        left: queue.SimpleQueue[tuple[TableRange, int]],
        copied: _CopiedQueue,
    ) -> None:
        while not copied.is_closed:
            try:
                range_, skip = left.get_nowait()
            except queue.Empty:
                return
            self._copy_range(session, range_, skip, copied)

    def _copy_range(
        self, session: CopySession, range_: TableRange, skip: int, copied: _CopiedQueue
    ) -> None:
        failures = 0
        while True:
            received = 0
            try:
                if failures:
                    session.open()
                for rows in self._pieces(session, range_, skip):
                    copied.put(rows)
                    received += rows.rows
                return
            except (load_psycopg2().Error, CaptureError) as error:
                if copied.is_closed or not (range_.planned.has_order and _is_transient(error)):
                    raise
                failures = 1 if received else failures + 1
                if failures > _MOST_FAILURES:
                    raise
                skip += received
                self._interrupt.event.wait(_RETRY_SECONDS * (failures - 1))

    def _pieces(self, session: CopySession, range_: TableRange, skip: int) -> Iterator[CopiedRows]:
        """Yield the rows of a range after those to skip."""
        command = range_.copy_command(binary=self._binary, skip=skip)
        copying = copy_rows(
            session.connection, command, range_.table, _PIECE_BYTES, binary=self._binary
        )
        for (messages, offsets), is_last in copying:
            yield CopiedRows(range_, messages, offsets, is_last)


def _is_transient(error: Exception) -> bool:
    known = error if isinstance(error, CaptureError) else capture_error(error, "")
    return known.is_transient


class _Closed(Exception):
    """The rows have no consumer any more."""


class _CopiedQueue:
    """Queue of rows that the connections have read."""

    def __init__(self, size: int) -> None:
        self._queue: queue.Queue[CopiedRows] = queue.Queue(size)
        self.is_closed = False

    def put(self, rows: CopiedRows) -> None:
        while not self.is_closed:
            with suppress(queue.Full):
                self._queue.put(rows, timeout=_POLL_SECONDS)
                return
        raise _Closed

    def take(self) -> Iterator[CopiedRows]:
        """Yield the queued rows, after a wait if the queue is empty."""
        timeout = _POLL_SECONDS
        with suppress(queue.Empty):
            while True:
                yield self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait()
                timeout = 0.0
