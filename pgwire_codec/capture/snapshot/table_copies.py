"""Concurrent copies of tables, all under one exported snapshot."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.catalog.published_tables import PublishedTable, files_of
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.connection.session_settings import disable_timeouts, pin
from pgwire_codec.capture.snapshot.copy_to_inserts import RowReader, row_reader
from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK_BYTES: Final = 256 << 10  # of COPY's: what numpy converts fastest
_CHUNKS_WAITING: Final = 2  # at most, for each connection
_POLL_SECONDS: Final = 0.1
#: For the lock of a table. Shorter than deadlock_timeout, after which the server would end one of
#: the transactions, perhaps not this one.
_LOCK_TIMEOUT: Final = "500ms"


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Messages of a table: its Relation, with its Types before it, or Inserts.

    Attributes
    ----------
    table : PublishedTable
    messages : numpy.ndarray of uint8
        Their concatenated bytes.
    offsets : numpy.ndarray of int32
        Offset of each message in them, and the end of the last one.
    rows : int
        Number of Inserts.
    """

    table: PublishedTable
    messages: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    rows: int


class TableCopies:
    """Connections whose transactions all use an exported snapshot.

    A context manager: entering opens them; leaving cancels their statements, and closes them.

    Parameters
    ----------
    dsn : str
        Of the database.
    snapshot : str
        Name of the snapshot. The connection that exported it must not have executed another
        command before entering.
    tables : sequence of PublishedTable
        Tables to read. Each connection locks them all: otherwise one of them could wait for a
        transaction that waits to alter a table, and that for another of these connections.
        Entering raises a transient ``CaptureError`` if another transaction has locked one.
    jobs : int
        Number of connections.
    binary : bool
        Read values in their binary form, as pgoutput sends them with that option.
    interrupt : Interrupt
        Ends the connections' statements, and the attempts to open them.
    """

    def __init__(
        self,
        dsn: str,
        snapshot: str,
        tables: Sequence[PublishedTable],
        jobs: int,
        *,
        binary: bool,
        interrupt: Interrupt,
    ) -> None:
        self._dsn = dsn
        self._snapshot = snapshot
        self._tables = tables
        self._jobs = jobs
        self._binary = binary
        self._interrupt = interrupt
        self.connections: list[Any] = []

    def __enter__(self) -> TableCopies:
        try:
            for _ in range(self._jobs):
                connection = connect(self._dsn, self._interrupt)
                self.connections.append(connection)
                cursor = connection.cursor()
                pin(cursor)
                disable_timeouts(cursor)
                # An error, not fewer rows, if a policy would hide some: the stream has all.
                cursor.execute("SET row_security = off")
                cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SET TRANSACTION SNAPSHOT %s", (self._snapshot,))
                self._lock(cursor)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()

    def _close(self) -> None:
        for connection in self.connections:
            self._interrupt.release(connection)
            connection.close()

    def _lock(self, cursor: Any) -> None:
        cursor.execute("SET LOCAL lock_timeout = %s", (_LOCK_TIMEOUT,))
        for table in self._tables:
            try:
                cursor.execute(table.lock_command())
            except load_psycopg2().errors.LockNotAvailable as error:
                raise CaptureError(
                    f"table {table.name} is locked by a transaction that alters, truncates or "
                    "drops it",
                    hint="Take the snapshot when that transaction has ended.",
                    is_transient=True,
                ) from error
        cursor.execute("SET LOCAL lock_timeout = 0")

    def files(self) -> set[tuple[int, int]]:
        """Return the tables' files under the snapshot; see ``files_of``."""
        return files_of(self.connections[0].cursor(), self._tables)

    def rows(self) -> Iterator[CopiedRows]:
        """Yield all rows of the tables, each table's Relation before its rows.

        The rows of different tables are interleaved. Raises ``psycopg2.Error``.
        """
        left: queue.SimpleQueue[PublishedTable] = queue.SimpleQueue()
        for table in self._tables:
            left.put(table)
        chunks = _Chunks(_CHUNKS_WAITING * len(self.connections))
        with ThreadPoolExecutor(len(self.connections)) as pool:
            jobs = [
                pool.submit(self._copy_tables, connection, left, chunks)
                for connection in self.connections
            ]
            try:
                while not all(job.done() for job in jobs):
                    yield from chunks.take()
                    for job in jobs:
                        if job.done():
                            job.result()
                yield from chunks.take()
                for job in jobs:
                    job.result()
            finally:
                chunks.is_closed = True
                for connection, job in zip(self.connections, jobs, strict=True):
                    if not job.done():
                        self._interrupt.end(connection)
                wait(jobs)

    def _copy_tables(
        self, connection: Any, left: queue.SimpleQueue[PublishedTable], chunks: _Chunks
    ) -> None:
        cursor = connection.cursor()
        while not chunks.is_closed:
            try:
                table = left.get_nowait()
            except queue.Empty:
                return
            description = table.description()
            offsets = np.cumsum([0, *map(len, description)], dtype=np.int32)
            messages = np.frombuffer(b"".join(description), np.uint8)
            chunks.put(CopiedRows(table, messages, offsets, 0))
            reader = row_reader(table.relation.oid, table.sendable, binary=self._binary)
            pieces = _CopyPieces(table, reader, chunks)
            cursor.copy_expert(table.copy_command(binary=self._binary), pieces)
            pieces.flush()


class _Closed(Exception):
    """The rows have no consumer any more."""


class _Chunks:
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


class _CopyPieces:
    """File object that psycopg2 writes COPY's pieces to: a row each."""

    def __init__(self, table: PublishedTable, reader: RowReader, chunks: _Chunks) -> None:
        self._table = table
        self._reader = reader
        self._chunks = chunks
        self._pieces: list[bytes] = []
        self._bytes = 0

    def write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)
        if self._bytes >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        messages, offsets = self._reader.convert(self._pieces)
        self._pieces.clear()
        self._bytes = 0
        if len(offsets) > 1:
            self._chunks.put(CopiedRows(self._table, messages, offsets, len(offsets) - 1))
