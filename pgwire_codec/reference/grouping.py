"""group_rows: the changes of an array, one batch after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.runs import GroupedRows


def group_rows(
    rows: npt.NDArray[np.int64],
    group: npt.NDArray[np.int32],
    batch: npt.NDArray[np.int32],
    pieces: npt.NDArray[np.int64],
) -> GroupedRows:
    """Sort pieces of the rows of an array by their batches. Rows of a batch keep their order.

    Parameters
    ----------
    rows, group : numpy.ndarray
        As in :class:`pgwire_codec.codec.runs.Runs`.
    batch : numpy.ndarray of int32
        The batch of each group, less than there are groups.
    pieces : numpy.ndarray of int64, 4 x pieces
        Of each piece: its first row, the end of its rows, the number of its first row in its
        transaction, and the transaction.
    """
    found: dict[int, list[tuple[int, int, int]]] = {}
    for start, stop, seq, transaction in pieces.T.tolist():
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
