"""KeyIndex: keys that rows are found by, sorted once for all files of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.lake.comparison import differs
from pgwire_codec.lake.key_codes import hashable, match_codes
from pgwire_codec.lake.row_hashes import row_hashes

Numbers = npt.NDArray[np.int64]


class KeyIndex:
    """Index of keys, none of which occurs twice.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        hashes = _hashes(columns)
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]
        #: Different keys have different hashes.
        self._is_unique = not (self._sorted[1:] == self._sorted[:-1]).any()

    def match(self, rows: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        """Return the positions of rows that equal keys, and the numbers of these."""
        if not self._is_unique or not len(self._sorted):
            return self._match_slowly(rows)
        hashes = _hashes(rows)
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        positions = np.flatnonzero(self._sorted[places] == hashes)
        numbers = self._order[places[positions]]
        for row, key in zip(rows, self._columns, strict=True):
            if not len(positions):
                break
            one, other = row.take(pa.array(positions)), key.take(pa.array(numbers))
            equal = ~differs(hashable(one), hashable(other))
            positions, numbers = positions[equal], numbers[equal]
        return positions, numbers

    def _match_slowly(self, rows: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        row_codes, key_codes = match_codes(rows, self._columns)
        positions = np.flatnonzero(row_codes >= 0)
        if not len(positions):
            return positions, positions
        by_code = np.full(int(key_codes.max()) + 1, -1)
        by_code[key_codes] = np.arange(len(key_codes))
        return positions, by_code[row_codes[positions]]


def _hashes(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """Return hashes; those of one column of integers without nulls are its values."""
    (first, *others) = columns
    if not others and pa.types.is_integer(first.type) and not first.null_count:
        values = first.to_numpy(zero_copy_only=False).astype(np.int64)
        hashes: npt.NDArray[np.uint64] = values.view(np.uint64)
        return hashes
    return row_hashes(columns)
