"""CopyReader: the rows of a COPY TO STDOUT, read through libpq itself, as Insert messages.

psycopg2's ``copy_expert`` calls Python for each row. :class:`PythonCopyReader` is the plain
implementation; the compiled ``_copy_reader.CopyBuffer`` does the same without the GIL.

PostgreSQL documentation, "Functions Associated with the COPY Command" (libpq).
"""

from __future__ import annotations

import ctypes
import select
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

from pgwire_codec import _impl
from pgwire_codec.capture.connection.error_hints import CONNECTION_LOST, capture_error_of_code
from pgwire_codec.capture.connection.frames import ReadOutcome
from pgwire_codec.capture.connection.libpq import (
    addresses_of,
    connection_error,
    load_libpq,
    server_error,
)
from pgwire_codec.capture.snapshot.copy_to_inserts import insert_head, row_reader
from pgwire_codec.errors import CaptureError

if _impl.IMPL == "cython" and sys.platform != "win32":
    from pgwire_codec.capture.snapshot._copy_reader import CopyBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgwire_codec.capture.catalog.published_tables import PublishedTable
    from pgwire_codec.capture.snapshot.copy_to_inserts import Inserts

_COMMAND_OK: Final = 1  # PGRES_COMMAND_OK
_COPY_OUT: Final = 3  # PGRES_COPY_OUT


class CopyReader(Protocol):
    """Reads the rows of one COPY, after the server has begun to send them."""

    def read(self, max_bytes: int) -> tuple[int, Any, Any]:
        """Read rows until their Inserts have so many bytes, or there are no more.

        Returns
        -------
        outcome : int
            A :class:`~pgwire_codec.capture.connection.frames.ReadOutcome`: ``FULL``, ``ENDED`` or
            ``BROKEN``.
        messages : numpy.ndarray of uint8
            Concatenated Inserts.
        offsets : numpy.ndarray of int32
            Offset of each Insert, and the end of the last one.

        Raises
        ------
        CaptureError
            When a row does not have the table's columns.
        """


def open_reader(
    libpq: Any, connection: int, socket: int, head: bytes, kinds: bytes, *, binary: bool
) -> CopyReader:
    """Return the reader of a connection, in the implementation that is in use.

    The other parameters are those of :func:`~.copy_to_inserts.row_reader`.
    """
    if _impl.IMPL == "python":
        return PythonCopyReader(libpq, connection, socket, head, kinds, binary=binary)
    reader: CopyReader = CopyBuffer(
        connection,
        socket,
        *addresses_of(libpq.PQgetCopyData, libpq.PQconsumeInput, libpq.PQfreemem),
        head,
        kinds,
        binary,
    )
    return reader


class PythonCopyReader:
    """:class:`CopyReader` in plain Python."""

    def __init__(
        self, libpq: Any, connection: int, socket: int, head: bytes, kinds: bytes, *, binary: bool
    ) -> None:
        self._libpq = libpq
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self._buffer = ctypes.c_void_p()
        self._rows = row_reader(head, kinds, binary=binary)

    def read(self, max_bytes: int) -> tuple[int, Any, Any]:
        pieces: list[bytes] = []
        size = 0
        outcome = ReadOutcome.FULL
        while size < max_bytes:
            length: int = self._libpq.PQgetCopyData(self._connection, ctypes.byref(self._buffer), 1)
            if length < 0:
                outcome = ReadOutcome.ENDED if length == -1 else ReadOutcome.BROKEN
                break
            if length == 0:
                self._poll.poll()
                if not self._libpq.PQconsumeInput(self._connection):
                    outcome = ReadOutcome.BROKEN
                    break
                continue
            pieces.append(ctypes.string_at(self._buffer.value or 0, length))
            self._libpq.PQfreemem(self._buffer)
            size += length
        return outcome, *self._rows.convert(pieces)


def copy_rows(
    connection: Any, command: str, table: PublishedTable, max_bytes: int, *, binary: bool
) -> Iterator[tuple[Inserts, bool]]:
    """Run a COPY of a table's rows, and yield them in pieces of so many bytes.

    Parameters
    ----------
    connection : psycopg2.extensions.connection
        Nothing else may use it meanwhile. It can only be closed if not all pieces were read.
    command : str
        ``COPY … TO STDOUT``.
    table : PublishedTable
        The table whose columns it has.
    max_bytes : int
        Size of a piece.
    binary : bool
        Whether the COPY is in the binary format.

    Yields
    ------
    inserts : tuple of numpy.ndarray
        Messages and offsets, as :meth:`CopyReader.read` returns them.
    is_last : bool
        Whether the server has ended the COPY without an error.

    Raises
    ------
    CaptureError
        When the server refuses or ends the COPY, and when the connection is lost.
    """
    libpq, pointer = load_libpq(), connection.pgconn_ptr
    if not libpq.PQsendQuery(pointer, command.encode()):
        raise _lost(libpq, pointer)
    _check_result(libpq, pointer, _COPY_OUT, table)
    head = insert_head(table.relation.oid, len(table.sendable))
    kinds = bytes(b"tb"[is_] for is_ in table.sendable)
    reader = open_reader(libpq, pointer, connection.fileno(), head, kinds, binary=binary)
    outcome = int(ReadOutcome.FULL)
    while outcome == ReadOutcome.FULL:
        outcome, messages, offsets = reader.read(max_bytes)
        if outcome == ReadOutcome.BROKEN:
            raise _lost(libpq, pointer)
        is_last = outcome == ReadOutcome.ENDED
        if is_last:
            _check_result(libpq, pointer, _COMMAND_OK, table)
            _check_result(libpq, pointer, None, table)
        yield (messages, offsets), is_last


def _check_result(libpq: Any, connection: int, status: int | None, table: PublishedTable) -> None:
    """Take the next result of a table's COPY; raise its error if it has another status."""
    result = libpq.PQgetResult(connection)
    try:
        found = libpq.PQresultStatus(result) if result else None
        if found == status:
            return
        if not result:
            raise _lost(libpq, connection)
        sqlstate, text, hint = server_error(libpq, result)
        if not (sqlstate or text):
            raise CaptureError(f"COPY ended with the status {found} in place of {status}")
        text = f"{text} (COPY of {table.name})"
        raise capture_error_of_code(sqlstate or CONNECTION_LOST, text, "", hint or None)
    finally:
        if result:
            libpq.PQclear(result)


def _lost(libpq: Any, connection: int) -> CaptureError:
    return capture_error_of_code(CONNECTION_LOST, connection_error(libpq, connection), "")
