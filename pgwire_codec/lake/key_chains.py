"""Chains of key changes, in Arrow: the values that a row has from its earlier keys."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Mask, Numbers, mask_of
from pgwire_codec.lake.key_states import PLACE
from pgwire_codec.lake.unsent_values import missing_values, unchanged_names

#: Columns of lives about their connection to one another.
CHAIN: Final = ("is_last", "far", "written", "arrived", "left")


def resolve_chains(lives: pa.Table, columns: ChangeColumns) -> pa.Table:
    """Return the rows that are ``far``, with their root and the values of earlier lives.

    ``lives`` are those rows, and the lives that left for another key, as
    :func:`~pgwire_codec.lake.key_states.fold` yields them. The rows are returned without the
    columns of :data:`CHAIN`.
    """
    has_arrived, arrived = _places(lives.column("arrived"))
    has_left, left = _places(lives.column("left"))
    leaving = np.flatnonzero(has_left)
    leaving = leaving[np.argsort(left[leaving])]
    left = left[leaving]
    names = lives.column("unchanged").combine_chunks()
    unknown = {}
    for number, rows in missing_values(names, columns.table).items():
        unknown[number] = ~mask_of(lives.column("written"))
        unknown[number][rows] = True

    # The life from which each one came; itself, if it came from none.
    came = np.flatnonzero(has_arrived)
    before: Numbers = np.arange(len(lives))
    if len(left):
        found = np.minimum(np.searchsorted(left, arrived[came]), len(left) - 1)
        is_known = left[found] == arrived[came]
        before[came[is_known]] = leaving[found[is_known]]
    # For each row, the rows with its root and with each of its values.
    far = np.flatnonzero(mask_of(lives.column("far")))
    root = _ends(before)[far]
    assert not has_arrived[root].any(), "a row has an unknown origin"
    itself = np.arange(len(lives))
    origin = {
        number: _ends(np.where(mask, before, itself))[far] for number, mask in unknown.items()
    }

    source = {f"c{number}": each for number, each in origin.items()}
    source |= {f"r{place}": root for place in range(len(columns.keys))}
    result = {
        name: lives.column(name).take(pa.array(source.get(name, far)))
        for name in lives.column_names
        if name not in CHAIN
    }
    missing = {number: np.flatnonzero(mask[origin[number]]) for number, mask in unknown.items()}
    result["unchanged"] = unchanged_names(missing, columns.table, len(far), names.type)
    return pa.table(result)


def _ends(step: Numbers) -> Numbers:
    """Return where each chain of steps ends, in as many rounds as the longest has binary digits."""
    while not np.array_equal(further := step[step], step):
        step = further
    return step


def _places(column: pa.ChunkedArray) -> tuple[Mask, npt.NDArray[Any]]:
    """Return which rows have a place, and the places, which can be compared."""
    found = np.zeros(len(column), PLACE)
    for name in PLACE.names or ():
        found[name] = pc.struct_field(column, name).fill_null(0).to_numpy()
    return mask_of(pc.is_valid(column)), found
