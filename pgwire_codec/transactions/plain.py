"""Plain transactions by the million: the fields of their Begins and Commits, as arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import Boundaries
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS, unix_microseconds
from pgwire_codec.transactions.committed import Transactions
from pgwire_codec.transactions.events import PlainRun


def plain_transactions(
    messages: Messages, run: PlainRun, boundaries: Callable[..., Boundaries]
) -> Transactions | None:
    """Return the transactions of a run, or None if their LSNs are out of order.

    ``boundaries`` is the implementation's.
    """
    found = boundaries(messages, run.begin, run.commit)
    if (found.final_lsn != found.commit_lsn).any():
        return None
    if (found.commit_lsn[:-1] >= found.commit_lsn[1:]).any():
        return None
    nothing = np.full(len(run.begin), None, np.object_)
    return Transactions(
        xid=found.xid,
        commit_lsn=found.commit_lsn,
        end_lsn=found.end_lsn,
        commit_time=_times(found.commit_time),
        origin=nothing,
        gid=nothing,
        changes=run.commit - run.begin - 1,
    )


def _times(wire: npt.NDArray[np.int64]) -> npt.NDArray[np.datetime64]:
    """Convert wire times to datetime64; times past int64 become the latest one."""
    latest = unix_microseconds(2**63 - 1)
    return np.where(wire > latest - EPOCH_MICROSECONDS, latest, wire + EPOCH_MICROSECONDS).view(
        "datetime64[us]"
    )
