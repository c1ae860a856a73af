"""Result of ``runs``: the changes of an array in their transactions, and by their relations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class RelationGroup(NamedTuple):
    """Changes of one relation, among which its version is the same.

    Attributes
    ----------
    relation : int
        OID of the relation.
    first : int
        Index of the first message with such a change.
    narrowest, widest : int
        Smallest and largest number of columns of the changes' first tuples. Without tuples (only
        truncates) the smallest is larger than the largest.
    """

    relation: int
    first: int
    narrowest: int
    widest: int


class Begun(NamedTuple):
    """A plain transaction that is open before an array.

    Attributes
    ----------
    xid, final_lsn : int
        Of its Begin.
    changes : int
        How many of its changes came.
    """

    xid: int
    final_lsn: int
    changes: int


class PlainRun(NamedTuple):
    """Consecutive whole plain transactions with ascending LSNs.

    The first may have begun before the array. Their Commits have the LSNs of their Begins. Inside
    are only changes, truncates, logical messages, Relations, Types and Origins; between two of them
    only Relations, Types and logical messages that are not transactional.

    Attributes
    ----------
    start, stop : int
        The messages ``start`` to ``stop - 1``.
    first_transaction, stop_transaction : int
        Range of their numbers in :class:`PlainTransactions`.
    others : list of tuple of int, int
        Index of each Relation, Type, Origin and logical message, and the number of the transaction
        that it is in or before.
    """

    start: int
    stop: int
    first_transaction: int
    stop_transaction: int
    others: list[tuple[int, int]]


class StreamBlock(NamedTuple):
    """A whole stream block, with the same messages inside as a plain transaction of a run.

    Attributes
    ----------
    start, stop : int
        The messages ``start`` to ``stop - 1``.
    xid : int
        The top-level transaction.
    first_segment : bool
        Whether it is the transaction's first block.
    first_row, stop_row : int
        Range of its changes among the rows.
    messages : int
        Number of transactional logical messages.
    first : dict of int to tuple of int, int
        By (sub)transaction, in order: how many changes and transactional logical messages of the
        block come before its first one.
    others : list of int
        Index of each Relation, Type, Origin and logical message.
    """

    start: int
    stop: int
    xid: int
    first_segment: bool
    first_row: int
    stop_row: int
    messages: int
    first: dict[int, tuple[int, int]]
    others: list[int]


class PlainTransactions(NamedTuple):
    """Transactions of the runs of an array, one element each.

    Attributes
    ----------
    xid : numpy.ndarray of uint32
    commit_lsn, end_lsn : numpy.ndarray of uint64
    commit_time : numpy.ndarray of int64
        Microseconds since 1970-01-01 UTC, at most int64.
    begin : numpy.ndarray of int64
        Index of the Begin message; -1: before the array.
    first_row, changes : numpy.ndarray of int64
        The first of its changes among the rows, and how many it has. ``first_row`` is ``-n`` if
        ``n`` of them came before the array.
    """

    xid: npt.NDArray[np.uint32]
    commit_lsn: npt.NDArray[np.uint64]
    end_lsn: npt.NDArray[np.uint64]
    commit_time: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]
    changes: npt.NDArray[np.int64]


class Runs(NamedTuple):
    """Result of ``runs``. A row is a change, or one of the tables of a truncate.

    Attributes
    ----------
    rows : numpy.ndarray of int64
        Index of each row's message, ascending.
    group : numpy.ndarray of int32
        Number of each row's group.
    groups : list of RelationGroup
        In the order of their first rows.
    transactions : PlainTransactions
        Those of the runs.
    segments : list of PlainRun and StreamBlock
        In order. The messages between them are not in any.
    """

    rows: npt.NDArray[np.int64]
    group: npt.NDArray[np.int32]
    groups: list[RelationGroup]
    transactions: PlainTransactions
    segments: list[PlainRun | StreamBlock]


class RunPieces(NamedTuple):
    """Changes of consecutive transactions of a run, as ``group_rows`` takes them.

    Attributes
    ----------
    first_row, changes : numpy.ndarray of int64, transactions
        As in :class:`PlainTransactions`.
    transaction : int
        The number of the first transaction; the others follow it.
    """

    first_row: npt.NDArray[np.int64]
    changes: npt.NDArray[np.int64]
    transaction: int

    def columns(self) -> npt.NDArray[np.int64]:
        """Return them as an array of pieces."""
        earlier = np.maximum(-self.first_row, 0)  # changes before the array
        numbers = np.arange(self.transaction, self.transaction + len(earlier))
        return np.stack([self.first_row + earlier, self.first_row + self.changes, earlier, numbers])


class GroupedRows(NamedTuple):
    """Result of ``group_rows``: rows, one batch after the other.

    Attributes
    ----------
    rows, seq, transaction : numpy.ndarray of int64
        Of each row: index of its message, number in its transaction, number of the transaction.
    batch : numpy.ndarray of int64
        The batches that have rows, in the order of their first.
    stop : numpy.ndarray of int64
        The end of each of them among the rows.
    """

    rows: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    transaction: npt.NDArray[np.int64]
    batch: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
