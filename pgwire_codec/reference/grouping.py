"""group_rows: the changes of an array, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.runs import GroupedRows, RunPieces


def group_rows(
    rows: npt.NDArray[np.int64],
    group: npt.NDArray[np.int32],
    batch: npt.NDArray[np.int32],
    pieces: Sequence[npt.NDArray[np.int64] | RunPieces],
) -> GroupedRows:
    """Sort pieces of the rows of an array by their batches. Rows of a batch keep their order.

    Parameters
    ----------
    rows, group : numpy.ndarray
        As in :class:`pgwire_codec.codec.runs.Runs`.
    batch : numpy.ndarray of int32
        The batch of each group, less than there are groups.
    pieces : sequence of RunPieces, and numpy.ndarray of int64, 4 x pieces
        In order. Of each piece: its first row, the end of its rows, the number of its first row in
        its transaction, and the transaction.
    """
    found: dict[int, list[tuple[int, int, int]]] = {}
    several = [each.columns() if isinstance(each, RunPieces) else each for each in pieces]
    for start, stop, seq, transaction in chain.from_iterable(each.T.tolist() for each in several):
        for row in range(start, stop):
            place = found.setdefault(int(batch[group[row]]), [])
            place.append((int(rows[row]), seq + row - start, transaction))
    columns = np.array([row for batch_rows in found.values() for row in batch_rows], np.int64)
    by_row, by_seq, by_transaction = np.ascontiguousarray(columns.reshape(-1, 3).T)
    return GroupedRows(
        by_row,
        by_seq,
        by_transaction,
        batch=np.array(list(found), np.int64),
        stop=np.cumsum([len(batch_rows) for batch_rows in found.values()], dtype=np.int64),
    )
