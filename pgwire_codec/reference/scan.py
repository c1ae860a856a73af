"""scan: one pass over the messages, which tabulates the head of each."""

from __future__ import annotations

from typing import cast

import numpy as np

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol.messages import (
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Truncate,
    TupleData,
    Update,
)
from pgwire_codec.protocol.tags import ROW_CHANGES, TABULATED, in_stream_block
from pgwire_codec.reference.codec import decode_message


def scan(
    messages: Messages,
    *,
    streaming: bool = False,
    skip: bool = False,
    heads: bool = False,
    threads: int = 1,
) -> MessageTable:
    """Read every message, whole, and tabulate it.

    Parameters
    ----------
    messages : Messages
        One input array.
    streaming : bool
        Whether the first message comes inside a stream block.
    skip : bool
        Whether a message that does not decode is set aside in ``errors``, instead of raised.
    heads : bool
        Whether changes may be cut off after the relation's OID. Their tuples are not read then, and
        ``width`` is 0.
    threads : int
        Number of threads that may scan at the same time; here always one.

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
    decoded: dict[int, LogicalMessage] = {}
    for index in range(count):
        data = messages[index]
        start = 5 if streaming else 1  # of a change's relation
        if heads and data[:1] and data[:1] in ROW_CHANGES and len(data) >= start + 4:
            kind[index] = data[0]
            relation[index] = int.from_bytes(data[start : start + 4], "big")
            xid[index] = int.from_bytes(data[1:5], "big") if streaming else 0
            body[index] = messages.offsets[index] + start + 4
            continue
        try:
            message = decode_message(data, streaming=streaming)
        except DecodeError as error:
            placed = error.at(index)
            if not skip:
                raise placed from None
            errors[index] = placed
        else:
            kind[index] = data[0]
            if data[:1] not in TABULATED:
                decoded[index] = message
            if isinstance(message, (Insert, Update, Delete)):
                relation[index] = message.relation_oid
                body[index] = messages.offsets[index] + start + 4
                width[index] = len(_first_tuple(message).values)
            if isinstance(message, (Insert, Update, Delete, Truncate, Message)):
                xid[index] = message.xid or 0
        # The tag alone decides if the messages after it carry an xid, even if it is damaged.
        streaming = in_stream_block(data[:1], streaming)
    return MessageTable(kind, relation, xid, body, width, errors, streaming, decoded)


def _first_tuple(message: Insert | Update | Delete) -> TupleData:
    if isinstance(message, Insert):
        return message.new
    first = message.key or message.old
    return first if first is not None else cast(Update, message).new
