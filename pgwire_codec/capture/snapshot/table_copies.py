"""Several tables read at once, all under one exported snapshot."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.catalog.published_tables import PublishedTable, files_of
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.connection.session_settings import allow_to_last, pin
from pgwire_codec.capture.snapshot.copy_to_inserts import RowReader, row_reader
from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK_BYTES: Final = 256 << 10  # of COPY's: what numpy converts fastest
_CHUNKS_WAITING: Final = 2  # a connection, at most
_POLL_SECONDS: Final = 0.1
#: For the lock of a table. Shorter than deadlock_timeout, after which the server would end the
#: transaction of somebody, perhaps not ours.
_LOCK_TIMEOUT: Final = "500ms"


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Messages of a table: its Relation, with its Types before it, or Inserts.

    Attributes
    ----------
    table : PublishedTable
    messages : numpy.ndarray of uint8
        Their bytes on end.
    offsets : numpy.ndarray of int32
        Where each begins in them, and where the last ends.
    rows : int
        How many Inserts there are.
    """

    table: PublishedTable
    messages: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    rows: int


class TableCopies:
    """Connections that all see the database as an exported snapshot does.

    A context manager: entering opens them; leaving cancels what they do, and closes them.

    Parameters
    ----------
    dsn : str
        Of the database.
    snapshot : str
        Name of the snapshot. Whoever exported it must not have gone on before this is entered.
    tables : sequence of PublishedTable
        What will be read: each connection locks them all, so that none of them ever waits behind
        somebody who wants to alter a table and waits for another one. Entering raises a transient
        ``CaptureError`` where somebody else has locked one.
    jobs : int
        How many connections.
    binary : bool
        Whether values come in their binary form, as pgoutput sends them with that option.
    interrupt : Interrupt
        Ends what the connections wait for, and the attempts to open them.
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
                allow_to_last(cursor)
                # An error, not fewer rows, where a policy would hide some: the stream has all.
                cursor.execute("SET row_security = off")
                cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SET TRANSACTION SNAPSHOT %s", (self._snapshot,))
                self._lock(cursor)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
                    f"Table {table.name} is locked by somebody who alters, truncates or drops it. "
                    "A snapshot can be taken when that is over.",
                    is_transient=True,
                ) from error
        cursor.execute("SET LOCAL lock_timeout = 0")

    def files(self) -> set[tuple[int, int]]:
        """Give the tables' files under the snapshot; see ``files_of``."""
        return files_of(self.connections[0].cursor(), self._tables)

    def rows(self) -> Iterator[CopiedRows]:
        """Yield all rows of the tables, each table's Relation before its rows.

        The rows of several tables come in turns. Raises ``psycopg2.Error``.
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
            told = table.description()
            ends = np.cumsum([0, *map(len, told)], dtype=np.int32)
            chunks.put(CopiedRows(table, np.frombuffer(b"".join(told), np.uint8), ends, 0))
            reader = row_reader(table.relation.oid, table.sendable, binary=self._binary)
            sink = _Sink(table, reader, chunks)
            cursor.copy_expert(table.copy_command(binary=self._binary), sink)
            sink.flush()


class _Closed(Exception):
    """Nobody takes the rows any more."""


class _Chunks:
    """What the connections have read and nobody has taken yet."""

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
        """Yield what is there, after a wait when nothing is."""
        timeout = _POLL_SECONDS
        with suppress(queue.Empty):
            while True:
                yield self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait()
                timeout = 0.0


class _Sink:
    """The file that psycopg2 writes COPY's pieces to: a row each."""

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
