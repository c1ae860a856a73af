"""Conversion of COPY's output into Insert messages, many rows at a time.

An Insert is ``I``, the table's OID, ``N``, the number of columns, and for each column its kind
and, unless it is NULL, its length and its bytes. COPY's two formats have the same bytes between
different marks. So the output is the input with wider or narrower marks: one ``numpy.repeat`` has
the number of copies of each byte, and the marks are overwritten.

PostgreSQL documentation, "COPY" (File Formats) and "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.intp]

#: Concatenated messages, and their offsets (one more than messages).
Inserts = tuple["Bytes", "NDArray[np.int32]"]

_HEAD: Final = 8  # bytes of an Insert before its columns
_TAB, _NEWLINE, _BACKSLASH = b"\t\n\\"
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER_SIZE: Final = 19  # with flags, and the length of an extension
_NO_MORE: Final = b"\xff\xff"
_HINT: Final = "Connect to a PostgreSQL server directly."
#: Byte that a backslash and this letter stand for.
_ESCAPED: Final = np.arange(256, dtype=np.uint8)
_ESCAPED[list(b"bfnrtv")] = list(b"\b\f\n\r\t\v")


class RowReader(Protocol):
    """Converts the pieces of one COPY, each with whole rows, into Inserts."""

    def convert(self, pieces: Sequence[bytes]) -> Inserts:
        """Return the Inserts of the next pieces; the server sends a row in each piece."""


def insert_head(oid: int, columns: int) -> bytes:
    """Return the bytes of a table's Inserts before their columns."""
    return struct.pack(">cIcH", b"I", oid, b"N", columns)


def row_reader(head: bytes, kinds: bytes, *, binary: bool) -> RowReader:
    """Return the reader for the rows of a table.

    Parameters
    ----------
    head : bytes
        Of the Inserts, from :func:`insert_head`.
    kinds : bytes
        For each column, the kind of its values in the binary format.
    binary : bool
        Whether the COPY is in the binary format.
    """
    first = np.frombuffer(head, np.uint8)
    if binary:
        return _BinaryRows(first, np.frombuffer(kinds, np.uint8))
    return _TextRows(first, len(kinds))


def not_these_columns(columns: int) -> CaptureError:
    """Return the error for a row with another number of columns."""
    return CaptureError(f"COPY sent a row that does not have {columns} columns", hint=_HINT)


def not_a_copy() -> CaptureError:
    """Return the error for a COPY that is not in the binary format."""
    return CaptureError("COPY's output does not begin with its signature", hint=_HINT)


class _TextRows:
    """The text format: columns end with a tab, rows with a newline; both are escaped in values."""

    def __init__(self, head: Bytes, columns: int) -> None:
        self._head = head
        self._columns = columns

    def convert(self, pieces: Sequence[bytes]) -> Inserts:
        # With a mark before the first column, as before every other one.
        text = np.frombuffer(b"\n" + b"".join(pieces), np.uint8)
        if not self._columns:
            return _rows_without_columns(self._head, len(text) - 1)
        marks = np.flatnonzero((text == _TAB) | (text == _NEWLINE))
        starts, ends = marks[:-1], marks[1:]  # of columns, the mark before them included
        is_last = np.arange(1, len(starts) + 1) % self._columns == 0
        if len(starts) % self._columns or ((text[ends] == _NEWLINE) != is_last).any():
            raise not_these_columns(self._columns)
        times = np.ones(len(text), np.intp)
        times[marks[-1]] = 0
        lengths = ends - starts - 1
        is_null = np.zeros(len(starts), np.bool_)
        backslashes = np.flatnonzero(text == _BACKSLASH)
        if len(backslashes):
            is_null = (lengths == 2) & (text[starts + 1] == _BACKSLASH)
            is_null[is_null] = text[starts[is_null] + 2] == ord("N")
            escapes = _escapes(backslashes)
            text = text.copy()
            text[escapes + 1] = _ESCAPED[text[escapes + 1]]
            times[escapes] = 0
            times[starts[is_null] + 2] = 0  # the N; its backslash went as an escape
            lengths -= np.bincount(np.searchsorted(starts, escapes) - 1, minlength=len(starts))
        kinds = np.where(is_null, ord("n"), ord("t")).astype(np.uint8)
        times[starts] = np.where(is_null, 1, 5)
        times[starts[:: self._columns]] += _HEAD
        return _write(text, times, self._head, self._columns, kinds, lengths, is_null)


class _BinaryRows:
    """The binary format: a row is its number of columns, and for each its length and its bytes.

    The length of NULL is -1.
    """

    def __init__(self, head: Bytes, kinds: Bytes) -> None:
        self._head = head
        self._kinds = kinds
        self._is_first = True

    def convert(self, pieces: Sequence[bytes]) -> Inserts:
        rows = list(pieces)
        if self._is_first and rows:
            rows[0] = _without_header(rows[0])
            self._is_first = False
        rows = [row for row in rows if row and row != _NO_MORE]
        columns = len(self._kinds)
        if not columns or not rows:
            return _rows_without_columns(self._head, len(rows))
        data = np.frombuffer(b"".join(rows), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, rows), np.intp, len(rows)))
        begins = np.concatenate([np.zeros(1, np.intp), ends[:-1]])
        places = np.empty((len(rows), columns), np.intp)
        sizes = np.empty((len(rows), columns), np.intp)
        place = begins + 2
        for column in range(columns):
            places[:, column] = place
            length = _load_i32(data, place)
            sizes[:, column] = length
            place = place + 4 + np.maximum(length, 0)
            if (place > ends).any():
                break
        if (place != ends).any():
            raise not_these_columns(columns)
        starts, lengths = places.ravel(), sizes.ravel()
        is_null = lengths < 0
        times = np.ones(len(data), np.intp)
        times[begins] = times[begins + 1] = _HEAD // 2
        times[starts] = np.where(is_null, 1, 2)
        nulls = starts[is_null]
        times[nulls + 1] = times[nulls + 2] = times[nulls + 3] = 0
        kinds = np.where(is_null, ord("n"), np.tile(self._kinds, len(rows))).astype(np.uint8)
        return _write(data, times, self._head, columns, kinds, lengths, is_null)


def _write(
    data: Bytes,
    times: Numbers,
    head: Bytes,
    columns: int,
    kinds: Bytes,
    lengths: Numbers,
    is_null: NDArray[np.bool_],
) -> Inserts:
    """Repeat each byte so many times, and write an Insert's marks over the extra space."""
    out = np.repeat(data, times)
    sizes = np.where(is_null, 1, 5 + lengths)
    rows = sizes.reshape(-1, columns).sum(axis=1) + _HEAD
    offsets = np.concatenate([np.zeros(1, np.intp), np.cumsum(rows)])
    out[offsets[:-1, None] + np.arange(_HEAD)] = head
    # A column starts after all before it, plus one more head with each row.
    places = np.cumsum(sizes) - sizes + np.repeat(np.arange(1, len(rows) + 1) * _HEAD, columns)
    out[places] = kinds
    there = ~is_null
    big_endian = lengths[there].astype(">u4").view(np.uint8).reshape(-1, 4)
    out[places[there][:, None] + np.arange(1, 5)] = big_endian
    return out, offsets.astype(np.int32)


def _escapes(backslashes: Numbers) -> Numbers:
    """Return the backslashes that begin an escape: every other one of a run."""
    begins = np.flatnonzero(np.diff(backslashes, prepend=-2) > 1)  # of runs
    runs = np.diff(begins, append=len(backslashes))
    within = np.arange(len(backslashes)) - np.repeat(begins, runs)
    starts: Numbers = backslashes[within % 2 == 0]
    return starts


def _rows_without_columns(head: Bytes, rows: int) -> Inserts:
    return np.tile(head, rows), np.arange(rows + 1, dtype=np.int32) * _HEAD


def _without_header(piece: bytes) -> bytes:
    if not piece.startswith(_SIGNATURE) or len(piece) < _HEADER_SIZE:
        raise not_a_copy()
    (extension,) = struct.unpack_from(">I", piece, _HEADER_SIZE - 4)
    return piece[_HEADER_SIZE + extension :]


def _load_i32(data: Bytes, places: Numbers) -> NDArray[np.int32]:
    """Read a number at each place; bytes beyond the data are read as the last byte."""
    at = np.minimum(places[:, None] + np.arange(4), len(data) - 1)
    numbers: NDArray[np.int32] = data[at].view(">i4").ravel().astype(np.int32)
    return numbers
