"""group_rows: the changes of an array, batch after batch; run_pieces: its input of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.runs import GroupedRows


def run_pieces(
    first_row: npt.NDArray[np.int64], changes: npt.NDArray[np.int64], transaction: int
) -> npt.NDArray[np.int64]:
    """Return the pieces of a run of whole transactions, as ``group_rows`` takes them.

    Parameters
    ----------
    first_row, changes : numpy.ndarray of int64, transactions
        As in :class:`pgwire_codec.codec.runs.PlainTransactions`.
    transaction : int
        The number of the first transaction; the others follow it.
    """
    if len(first_row) != len(changes):
        raise ValueError("each transaction must have a first row, and a number of changes")
    numbers = np.arange(transaction, transaction + len(first_row))
    earlier = np.maximum(-first_row, 0)  # changes before the array
    return np.stack([first_row + earlier, first_row + changes, earlier, numbers])


def group_rows(
    rows: npt.NDArray[np.int64],
    group: npt.NDArray[np.int32],
    batch: npt.NDArray[np.int32],
    pieces: Sequence[npt.NDArray[np.int64]],
) -> GroupedRows:
    """Sort pieces of the rows of an array by their batches. Rows of a batch keep their order.

    Parameters
    ----------
    rows, group : numpy.ndarray
        As in :class:`pgwire_codec.codec.runs.Runs`.
    batch : numpy.ndarray of int32
        The batch of each group, less than there are groups.
    pieces : sequence of numpy.ndarray of int64, 4 x pieces
        In order. Of each piece: its first row, the end of its rows, the number of its first row in
        its transaction, and the transaction.
    """
    found: dict[int, list[tuple[int, int, int]]] = {}
    for start, stop, seq, transaction in chain.from_iterable(each.T.tolist() for each in pieces):
        for row in range(start, stop):
            place = found.setdefault(int(batch[group[row]]), [])
            place.append((int(rows[row]), seq + row - start, transaction))
    columns = np.array([each for several in found.values() for each in several], np.int64)
    by_row, by_seq, by_transaction = np.ascontiguousarray(columns.reshape(-1, 3).T)
    return GroupedRows(
        by_row,
        by_seq,
        by_transaction,
        batch=np.array(list(found), np.int64),
        stop=np.cumsum([len(several) for several in found.values()], dtype=np.int64),
    )
