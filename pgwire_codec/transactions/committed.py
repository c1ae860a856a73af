"""Committed transactions: one at a time, and many as a struct of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import MOST_SHARED
from pgwire_codec.codec.runs import PlainTransactions
from pgwire_codec.protocol.epoch import unix_microseconds


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed transaction: a row of ``Changes.transactions``. Times as on the wire."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time: int
    origin: str | None
    gid: str | None
    changes: int


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
    def plain(
        cls, found: PlainTransactions, start: int, stop: int, origins: Mapping[int, str]
    ) -> Transactions:
        """Return some of the transactions that ``runs`` found.

        ``origins`` has those of transactions that have one, by their number among these.
        """
        several = slice(start, stop)
        origin = gid = _nones(stop - start)
        if origins:
            origin = gid.copy()
            origin[list(origins)] = list(origins.values())
        return cls(
            xid=found.xid[several],
            commit_lsn=found.commit_lsn[several],
            end_lsn=found.end_lsn[several],
            commit_time=found.commit_time[several].view("datetime64[us]"),
            origin=origin,
            gid=gid,
            changes=found.changes[several],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Transactions]) -> Transactions:
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls.of([])
        return cls(
            *(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls))
        )

    @classmethod
    def collect(cls, committed: Iterable[Committed | Transactions]) -> Transactions:
        """Return single transactions and arrays of them as one."""
        pieces: list[Transactions] = []
        singly: list[Committed] = []
        for each in committed:
            if isinstance(each, Committed):
                singly.append(each)
            else:
                pieces += [cls.of(singly), each] if singly else [each]
                singly = []
        return cls.concatenate([*pieces, cls.of(singly)] if singly else pieces)

    def __len__(self) -> int:
        return len(self.xid)


@cache
def _shared_nones() -> npt.NDArray[np.object_]:
    nones = np.full(MOST_SHARED, None, np.object_)
    nones.flags.writeable = False
    return nones


def _nones(count: int) -> npt.NDArray[np.object_]:
    """Return an array of None that must not be written to."""
    return _shared_nones()[:count] if count <= MOST_SHARED else np.full(count, None, np.object_)
