"""Plain transactions by the million: what their Begins and Commits say, as arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgwire_codec._input import Messages
from pgwire_codec.changes import EPOCH_MICROSECONDS, Transactions, unix_microseconds
from pgwire_codec.walk import Stretch


def plain_transactions(messages: Messages, stretch: Stretch) -> Transactions | None:
    """Give the transactions of a stretch, or None where something about them is out of order.

    Source of the fields' places: Begin and Commit in :mod:`pgwire_codec.spec`.
    """
    final_lsn = _load(messages, stretch.begin, 1, 8)
    commit_lsn = _load(messages, stretch.commit, 2, 8)
    if (final_lsn != commit_lsn).any() or (commit_lsn[:-1] >= commit_lsn[1:]).any():
        return None
    nothing = np.full(len(stretch.begin), None, np.object_)
    return Transactions(
        xid=_load(messages, stretch.begin, 17, 4).astype(np.uint32),
        commit_lsn=commit_lsn,
        end_lsn=_load(messages, stretch.commit, 10, 8),
        commit_time=_times(_load(messages, stretch.commit, 18, 8).view(np.int64)),
        origin=nothing,
        gid=nothing,
        changes=stretch.commit - stretch.begin - 1,
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


def _times(wire: npt.NDArray[np.int64]) -> npt.NDArray[np.datetime64]:
    """Give wire times as datetime64; what passes int64 stays at its end."""
    latest = unix_microseconds(2**63 - 1)
    return np.where(wire > latest - EPOCH_MICROSECONDS, latest, wire + EPOCH_MICROSECONDS).view(
        "datetime64[us]"
    )
