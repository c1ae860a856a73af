"""Plain transactions by the million: what their Begins and Commits say, as arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import Boundaries
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS, unix_microseconds
from pgwire_codec.transactions.committed import Transactions
from pgwire_codec.transactions.events import Stretch


def plain_transactions(
    messages: Messages, stretch: Stretch, boundaries: Callable[..., Boundaries]
) -> Transactions | None:
    """Give the transactions of a stretch, or None where something about them is out of order.

    ``boundaries`` is the implementation's.
    """
    told = boundaries(messages, stretch.begin, stretch.commit)
    if (told.final_lsn != told.commit_lsn).any():
        return None
    if (told.commit_lsn[:-1] >= told.commit_lsn[1:]).any():
        return None
    nothing = np.full(len(stretch.begin), None, np.object_)
    return Transactions(
        xid=told.xid,
        commit_lsn=told.commit_lsn,
        end_lsn=told.end_lsn,
        commit_time=_times(told.commit_time),
        origin=nothing,
        gid=nothing,
        changes=stretch.commit - stretch.begin - 1,
    )


def _times(wire: npt.NDArray[np.int64]) -> npt.NDArray[np.datetime64]:
    """Give wire times as datetime64; what passes int64 stays at its end."""
    latest = unix_microseconds(2**63 - 1)
    return np.where(wire > latest - EPOCH_MICROSECONDS, latest, wire + EPOCH_MICROSECONDS).view(
        "datetime64[us]"
    )
