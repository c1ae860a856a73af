"""KeyIndex: keys that rows are found by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pgwire_codec.lake.comparison import Numbers, differs
from pgwire_codec.lake.key_codes import match_codes
from pgwire_codec.lake.key_file import KeyFile, key_hashes


class KeyIndex:
    """Index of keys, none of which occurs twice."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        first = columns[0]
        self.are_plain = (
            len(columns) == 1 and pa.types.is_integer(first.type) and not first.null_count
        )
        hashes = key_hashes(columns, are_plain=self.are_plain)
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]
        #: Different keys have different hashes.
        self.is_unique = not (self._sorted[1:] == self._sorted[:-1]).any()

    def __len__(self) -> int:
        return len(self._sorted)

    def match(self, rows: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        """Return the positions of rows that equal keys, and the numbers of these."""
        if not self.is_unique or not len(self):
            return self._match_slowly(rows)
        hashes = key_hashes(rows, are_plain=self.are_plain)
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        positions = np.flatnonzero(self._sorted[places] == hashes)
        candidates = [row.take(pa.array(positions)) for row in rows]
        return self._equal(candidates, positions, self._order[places[positions]])

    def match_file(self, keys: KeyFile) -> tuple[Numbers, Numbers]:
        """Return the same for a file, in time that depends on the number of keys.

        The hashes of the index must be unique.
        """
        positions, places = keys.match(self._sorted)
        numbers = self._order[places]
        if self.are_plain or not len(positions):  # plain keys are equal if their hashes are
            return positions, numbers
        rows = keys.take(positions)
        return self._equal([row.combine_chunks() for row in rows.columns], positions, numbers)

    def _equal(
        self, rows: Sequence[pa.Array], positions: Numbers, numbers: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return those of some pairs that are equal, and not in their hashes only.

        ``rows`` has the rows at the positions.
        """
        equal = np.ones(len(positions), np.bool_)
        for row, key in zip(rows, self._columns, strict=True):
            equal &= ~differs(row, key.take(pa.array(numbers)))
        return positions[equal], numbers[equal]

    def _match_slowly(self, rows: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        row_codes, key_codes = match_codes(rows, self._columns)
        positions = np.flatnonzero(row_codes >= 0)
        if not len(positions):
            return positions, positions
        by_code = np.full(int(key_codes.max()) + 1, -1)
        by_code[key_codes] = np.arange(len(key_codes))
        return positions, by_code[row_codes[positions]]
