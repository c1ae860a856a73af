"""Rejection of a message, with the facts that are known about it."""

from __future__ import annotations

from typing import Final

import numpy as np

from pgwire_codec.codec.tables import ScannedArray
from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.protocol.epoch import unix_microseconds
from pgwire_codec.protocol.tags import ROW_CHANGES
from pgwire_codec.transactions.carry import Carry

_OID_BYTES: Final = 4


def rejected(carry: Carry, source: ScannedArray, index: int, error: DecodeError) -> Rejected:
    """Return the rejection of a message of an array; ``carry`` is the state before it."""
    data = source.messages[index]
    is_streamed = carry.in_stream is not None
    opened = carry.plain if carry.in_stream is None else carry.streams[carry.in_stream]
    # The Begin of a plain transaction has its commit; that of another one is not known yet.
    is_promised = opened is not None and not is_streamed and opened.gid is None
    commit_lsn = commit_time = None
    if opened is not None and is_promised:
        commit_lsn = opened.final_lsn
        commit_time = np.datetime64(unix_microseconds(opened.commit_time), "us")
    return Rejected(
        source.base + index,
        data,
        error,
        relation_oid=relation_of(data, is_streamed=is_streamed),
        xid=None if opened is None else opened.xid,
        commit_lsn=commit_lsn,
        commit_time=commit_time,
        lsn=None if source.lsn is None else int(source.lsn[index]),
        after_lsn=carry.delivered_lsn,
    )


def relation_of(data: bytes, *, is_streamed: bool) -> int | None:
    """Return the OID in the head of an Insert, Update or Delete that may be damaged after it."""
    start = 5 if is_streamed else 1  # in a stream block, the xid comes first
    if len(data) < start + _OID_BYTES or data[0] not in ROW_CHANGES:
        return None
    return int.from_bytes(data[start : start + _OID_BYTES], "big")
