"""Struct-of-arrays tables that the layers hand on: positions in the bytes of the messages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.values import Decoded
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol.messages import LogicalMessage

#: States of a value, :attr:`pgwire_codec.Column.state`.
NULL: Final = 0
VALUE: Final = 1
UNCHANGED: Final = 2
NOT_SENT: Final = 3

#: Wire forms of a value, as PostgreSQL's format codes.
TEXT: Final = 0
BINARY: Final = 1


#: Up to so many messages, a look into a table takes half the time of comparisons.
_FEW: Final = 64


@cache
def _table(tags: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(tags)] = True
    return table


def tagged(kind: npt.NDArray[np.uint8], tags: bytes) -> npt.NDArray[np.bool_]:
    """Return, for each tag byte, whether it is one of ``tags``.

    ``numpy.isin`` takes forty times as long.
    """
    found: npt.NDArray[np.bool_]
    if len(kind) <= _FEW:
        found = _table(tags)[kind]
        return found
    found = kind == tags[0]
    for tag in tags[1:]:
        found |= kind == tag
    return found


@dataclass(slots=True, eq=False)
class MessageTable:
    """Result of ``scan``: the heads of ``n`` messages.

    Attributes
    ----------
    kind : numpy.ndarray of uint8, n
        The tag byte; 0 for a message that does not decode (see ``errors``).
    relation : numpy.ndarray of uint32, n
        OID of the relation for Insert, Update and Delete; 0 for others.
    xid : numpy.ndarray of uint32, n
        The (sub)transaction for changes and logical messages in a stream block; 0 for others.
    body : numpy.ndarray of int64, n
        For Insert, Update and Delete the offset, in the input's bytes, of the first tuple's marker
        byte; -1 for others.
    width : numpy.ndarray of int16, n
        For Insert, Update and Delete the number of columns of the first tuple.
    errors : dict of int to DecodeError
        By message index; empty when the first error is raised.
    streaming : bool
        Whether the messages end inside a stream block.
    decoded : dict of int to message
        By message index, the messages that had to be decoded to be checked: those of other kinds
        than ``TABULATED`` of :mod:`pgwire_codec.protocol.tags`.
    """

    kind: npt.NDArray[np.uint8]
    relation: npt.NDArray[np.uint32]
    xid: npt.NDArray[np.uint32]
    body: npt.NDArray[np.int64]
    width: npt.NDArray[np.int16]
    errors: dict[int, DecodeError]
    streaming: bool
    decoded: dict[int, LogicalMessage]


@dataclass(slots=True, eq=False)
class TupleTable:
    """One tuple a row (the old or the new one), column-major: arrays are ``columns x rows``.

    Attributes
    ----------
    marker : numpy.ndarray of uint8, rows
        ``N``, ``K`` or ``O``; 0 where the message has no such tuple.
    state : numpy.ndarray of uint8, columns x rows
        0 NULL, 1 value, 2 unchanged TOAST, 3 not sent.
    format : numpy.ndarray of uint8, columns x rows
        Of a value: 0 text, 1 binary.
    offset : numpy.ndarray of int64, columns x rows
        Of a value: where it starts in the input's bytes.
    length : numpy.ndarray of int32, columns x rows
        Of a value: its length in bytes.
    """

    marker: npt.NDArray[np.uint8]
    state: npt.NDArray[np.uint8]
    format: npt.NDArray[np.uint8]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]

    @classmethod
    def current(cls, old: TupleTable, new: TupleTable) -> TupleTable:
        """Return the new tuples, or the old one if there is only that (a delete)."""
        gone = (new.marker == 0) & (old.marker != 0)
        if not gone.any():
            return new
        return cls(
            *(
                np.where(gone, getattr(old, each.name), getattr(new, each.name))
                for each in fields(cls)
            )
        )

    @classmethod
    def empty(cls, columns: int, rows: int) -> TupleTable:
        """Return a table in which nothing is sent."""
        shape = (columns, rows)
        return cls(
            marker=np.zeros(rows, np.uint8),
            state=np.full(shape, NOT_SENT, np.uint8),
            format=np.zeros(shape, np.uint8),
            offset=np.zeros(shape, np.int64),
            length=np.zeros(shape, np.int32),
        )


@dataclass(slots=True, eq=False)
class DecodedColumns:
    """Columns of the old, the new or the current tuples.

    Attributes
    ----------
    columns : list of Decoded
        The values of the columns that were wanted.
    unchanged : list of numpy.ndarray of int64, one a column of the relation
        The rows in which the column is unchanged TOAST.
    present : numpy.ndarray of bool, rows
        Whether the row has such a tuple.
    """

    columns: list[Decoded]
    unchanged: list[npt.NDArray[np.int64]]
    present: npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class ScannedArray:
    """An input array with the result of ``scan``.

    Attributes
    ----------
    messages : Messages
        The array.
    kind, body : numpy.ndarray
        As in :class:`MessageTable`.
    lsn : numpy.ndarray of uint64 or None
        LSNs of the messages, if they were passed.
    base : int
        Index of the first message in the call that the array came in.
    """

    messages: Messages
    kind: npt.NDArray[np.uint8]
    body: npt.NDArray[np.int64]
    lsn: npt.NDArray[np.uint64] | None
    base: int
