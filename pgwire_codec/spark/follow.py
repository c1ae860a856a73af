"""What rows that changed their key bring along from the keys that they had before, in Arrow."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = "npt.NDArray[np.intp]"

#: Columns that say how lives of keys hang together.
CHAIN: Final = ("far", "is_last", "arrived", "left")

_PLACE: Final = np.dtype([("lsn", np.int64), ("seq", np.int64)])


def follow(lives: pa.Table, values: Collection[int], keys: int) -> pa.Table:
    """Give rows the values that they lack, and their root, from the lives that they came from.

    Parameters
    ----------
    lives : pyarrow.Table
        Lives of keys that left for another key, and those for which it is done: ``far`` bool.
        ``arrived`` and ``left`` struct of ``lsn`` and ``seq``, int64: the changes of a key that
        each began and ended with, or null. ``c0``, ``c1``, … the table's columns; ``u0``, … bool,
        where each is unknown; ``r0``, … the root's key columns. Any others.
    values : collection of int
        Numbers of the columns that are not of the key.
    keys : int
        How many are of the key.

    Returns
    -------
    pyarrow.Table
        The rows that are ``far``, without the columns of :data:`CHAIN`.
    """
    has_arrived, arrived = _places(lives.column("arrived"))
    has_left, left = _places(lives.column("left"))
    leaving = np.flatnonzero(has_left)
    leaving = leaving[np.argsort(left[leaving])]
    left = left[leaving]
    unknown = {number: _mask(lives.column(f"u{number}")) for number in values}

    # Of each row, where it has its root and each of its values from.
    itself: Rows = np.arange(len(lives))
    root = itself.copy()
    origin = {number: itself.copy() for number in values}
    far = np.flatnonzero(_mask(lives.column("far")))
    rows = now = far
    while len(rows):
        found = np.searchsorted(left, arrived[now])
        assert np.array_equal(left[found], arrived[now]), "a row came from nowhere"
        now = leaving[found]
        for number, mask in unknown.items():
            still = mask[origin[number][rows]]
            origin[number][rows[still]] = now[still]
        root[rows] = now
        further = has_arrived[now]
        rows, now = rows[further], now[further]

    source = {f"{kind}{number}": origin[number] for kind in "cu" for number in values}
    source |= {f"r{number}": root for number in range(keys)}
    return pa.table(
        {
            name: lives.column(name).take(pa.array(source.get(name, itself)[far]))
            for name in lives.column_names
            if name not in CHAIN
        }
    )


def _mask(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = column.to_numpy()
    return mask


def _places(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Give where there is a place, and the places, which can be compared."""
    found = np.zeros(len(column), _PLACE)
    for name in _PLACE.names or ():
        found[name] = pc.struct_field(column, name).fill_null(0).to_numpy()
    return _mask(pc.is_valid(column)), found
