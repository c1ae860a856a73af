"""What one call of a decoder gives: batches of changes, transactions, and what was set aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pgwire_codec.errors import DecodeError
from pgwire_codec.messages import Message

if TYPE_CHECKING:
    from pgwire_codec.columns import ChangeBatch
    from pgwire_codec.transactions import Committed

#: Microseconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
EPOCH_MICROSECONDS = 946_684_800_000_000
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Transactions:
    """The transactions that committed, one element each, in commit order.

    Attributes
    ----------
    xid : numpy.ndarray of uint32
    commit_lsn, end_lsn : numpy.ndarray of uint64
    commit_time : numpy.ndarray of datetime64[us]
        UTC.
    origin : numpy.ndarray of object
        Name of the replication origin, or None.
    gid : numpy.ndarray of object
        Name of the prepared transaction, or None.
    changes : numpy.ndarray of int64
        Number of changes (a truncate counts once for each table).
    """

    xid: npt.NDArray[np.uint32]
    commit_lsn: npt.NDArray[np.uint64]
    end_lsn: npt.NDArray[np.uint64]
    commit_time: npt.NDArray[np.datetime64]
    origin: npt.NDArray[np.object_]
    gid: npt.NDArray[np.object_]
    changes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, committed: Sequence[Committed]) -> Transactions:
        times = [unix_microseconds(each.commit_time) for each in committed]
        return cls(
            xid=np.array([each.xid for each in committed], np.uint32),
            commit_lsn=np.array([each.commit_lsn for each in committed], np.uint64),
            end_lsn=np.array([each.end_lsn for each in committed], np.uint64),
            commit_time=np.array(times, np.int64).view("datetime64[us]"),
            origin=np.array([each.origin for each in committed], np.object_),
            gid=np.array([each.gid for each in committed], np.object_),
            changes=np.array([each.changes for each in committed], np.int64),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Transactions]) -> Transactions:
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls.of([])
        return cls(
            *(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls))
        )

    def __len__(self) -> int:
        return len(self.xid)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that was set aside under ``on_error="skip"``: its index, its bytes, and why."""

    message_index: int
    data: bytes
    error: DecodeError


@dataclass(frozen=True, slots=True)
class Changes:
    """What one call of ``Decoder.decode`` gives. Iterating gives the batches.

    Attributes
    ----------
    batches : list of ChangeBatch
        Committed changes, one batch a Relation version and input array.
    transactions : Transactions
        What committed.
    logical_messages : list of Message
        Logical decoding messages: transactional ones when their transaction committed, others
        when they came.
    rejected : list of Rejected
        Messages set aside, under ``on_error="skip"``.
    warnings : list of DecodeError
        What is odd and was decoded all the same: tuples wider or narrower than their Relation.
    """

    batches: list[ChangeBatch]
    transactions: Transactions
    logical_messages: list[Message] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    warnings: list[DecodeError] = field(default_factory=list)

    def __iter__(self) -> Iterator[ChangeBatch]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def unix_microseconds(time: int) -> int:
    """Give a wire time (microseconds since 2000) as microseconds since 1970, held in int64."""
    return min(time + EPOCH_MICROSECONDS, _INT64_MAX)
