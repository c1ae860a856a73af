"""boundaries: the fields of Begin and Commit messages as arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import Boundaries


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
