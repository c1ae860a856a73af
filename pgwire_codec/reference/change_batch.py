"""change_batch: the place of a short cut, which the reference does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.tables import ScannedArray

if TYPE_CHECKING:
    import pyarrow as pa


def change_batch(
    source: ScannedArray,
    rows: npt.NDArray[np.int64],
    seq: npt.NDArray[np.int64],
    transactions: Any,
    transaction: npt.NDArray[np.int64],
    plan: Any,
    *,
    unrepresentable: str = "raise",
    threads: int = 1,
) -> pa.RecordBatch | None:
    """Return the record batch of some changes, or None if it has to be built from its columns.

    An implementation builds those batches here that are common, at once: their types are common
    ones, and each value is one that its type can hold. Here none is built.

    Parameters
    ----------
    source : ScannedArray
        The input array.
    rows, seq, transaction : numpy.ndarray of int64
        Of each change: index of its message, number in its transaction, number of the transaction.
    transactions : pgwire_codec.transactions.committed.Transactions
        The transactions.
    plan : pgwire_codec.changes.plan.RecordPlan
        The plan of the record batch.
    unrepresentable, threads
        As for ``decode_columns``.
    """
    return None
