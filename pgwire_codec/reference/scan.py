"""scan and boundaries: the heads of all messages, and the fields of Begin and Commit, as arrays."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import Boundaries, MessageTable
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol.messages import Delete, Insert, Message, Truncate, TupleData, Update
from pgwire_codec.protocol.tags import in_stream_block
from pgwire_codec.reference.codec import decode_message


def scan(messages: Messages, *, streaming: bool = False, skip: bool = False) -> MessageTable:
    """Read every message, whole, and tabulate it.

    Parameters
    ----------
    messages : Messages
        One input array.
    streaming : bool
        Whether the first message comes inside a stream block.
    skip : bool
        Whether a message that does not decode is set aside in ``errors``, instead of raised.

    Raises
    ------
    DecodeError
        For the first message that does not decode, with its index.
    """
    count = len(messages)
    kind = np.zeros(count, np.uint8)
    relation = np.zeros(count, np.uint32)
    xid = np.zeros(count, np.uint32)
    body = np.full(count, -1, np.int64)
    width = np.zeros(count, np.int16)
    errors: dict[int, DecodeError] = {}
    for index in range(count):
        data = messages[index]
        try:
            message = decode_message(data, streaming=streaming)
        except DecodeError as error:
            placed = error.at(index)
            if not skip:
                raise placed from None
            errors[index] = placed
        else:
            kind[index] = data[0]
            if isinstance(message, (Insert, Update, Delete)):
                relation[index] = message.relation_oid
                body[index] = messages.offsets[index] + (9 if streaming else 5)
                width[index] = len(_first_tuple(message).values)
            if isinstance(message, (Insert, Update, Delete, Truncate, Message)):
                xid[index] = message.xid or 0
        # The tag alone decides if the messages after it carry an xid, even if it is damaged.
        streaming = in_stream_block(data[:1], streaming)
    return MessageTable(kind, relation, xid, body, width, errors, streaming)


def _first_tuple(message: Insert | Update | Delete) -> TupleData:
    if isinstance(message, Insert):
        return message.new
    first = message.key or message.old
    return first if first is not None else cast(Update, message).new


def boundaries(
    messages: Messages, begin: npt.NDArray[np.int64], commit: npt.NDArray[np.int64]
) -> Boundaries:
    """Read the fields of Begin and Commit messages that ``scan`` accepted.

    Parameters
    ----------
    messages : Messages
        One input array.
    begin, commit : numpy.ndarray of int64
        Indexes of the Begin and of the Commit messages, one each a transaction.

    Notes
    -----
    The fields' places are those of Begin and Commit in :mod:`pgwire_codec.protocol.spec`.
    """
    return Boundaries(
        xid=_load(messages, begin, 17, 4).astype(np.uint32),
        final_lsn=_load(messages, begin, 1, 8),
        commit_lsn=_load(messages, commit, 2, 8),
        end_lsn=_load(messages, commit, 10, 8),
        commit_time=_load(messages, commit, 18, 8).view(np.int64),
    )


def _load(
    messages: Messages, indexes: npt.NDArray[np.int64], at: int, size: int
) -> npt.NDArray[np.uint64]:
    """Read the same big-endian field, ``at`` bytes from its start, of many messages."""
    places = messages.offsets[indexes] + at
    value = np.zeros(len(indexes), np.uint64)
    for byte in range(size):
        value = value << np.uint64(8) | messages.data[places + byte]
    return value
