"""Metadata columns of many changes at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, validity_bitmap
from pgwire_codec.codec.value_buffers import offsets_of

Int64s = npt.NDArray[np.int64]


def transaction_columns(
    transaction: Int64s,
    xid: npt.NDArray[np.uint32],
    commit_lsn: npt.NDArray[np.uint64],
    commit_time: npt.NDArray[np.datetime64],
) -> tuple[Int64s, Int64s, Int64s]:
    """Return xid, commit LSN and commit time of the transaction of each row, as Arrow stores them.

    Parameters
    ----------
    transaction : numpy.ndarray of int64, rows
        The row's transaction, an index of the other arrays.
    xid, commit_lsn, commit_time : numpy.ndarray
        Of the transactions.
    """
    return (
        xid[transaction].astype(np.int64),
        commit_lsn[transaction].view(np.int64),
        commit_time[transaction].view(np.int64),
    )


def strings_at(values: npt.NDArray[np.object_], rows: Int64s) -> ArrowBuffers:
    """Return the strings that an array has at some indexes; null for None."""
    return _strings([values[row] for row in rows.tolist()])


def name_lists(rows_by_name: Sequence[Int64s], names: Sequence[str], rows: int) -> ArrowBuffers:
    """Return, for each row, the list of the names whose rows it is among; null for none.

    Parameters
    ----------
    rows_by_name : sequence of numpy.ndarray of int64
        Rows, ascending.
    names : sequence of str
        A name for each; a list has its names in this order.
    rows : int
        Number of rows.
    """
    lists: list[list[str]] = [[] for _ in range(rows)]
    for which, name in zip(rows_by_name, names, strict=True):
        for row in which.tolist():
            lists[row].append(name)
    null_count, validity = validity_bitmap([bool(each) for each in lists])
    return ArrowBuffers(
        "+l",
        rows,
        null_count,
        validity,
        [offsets_of([len(each) for each in lists])],
        children=[_strings([name for each in lists for name in each])],
    )


def _strings(values: Sequence[str | None]) -> ArrowBuffers:
    encoded = [b"" if value is None else value.encode() for value in values]
    null_count, validity = validity_bitmap([value is not None for value in values])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = offsets_of([len(value) for value in encoded])
    return ArrowBuffers("u", len(values), null_count, validity, [offsets, data])
