"""KeyIndex: keys that rows are found by, sorted once for all files of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.lake.comparison import Numbers, differs
from pgwire_codec.lake.key_codes import hashable, match_codes
from pgwire_codec.lake.row_hashes import row_hashes


class SortedKeys:
    """Key columns of a file, sorted by hash, for indexes with the same hashes."""

    def __init__(self, columns: Sequence[pa.Array], *, are_plain: bool) -> None:
        self.columns = columns
        hashes = _hashes(columns, are_plain=are_plain)
        order = np.argsort(hashes, kind="stable")
        self.hashes = hashes[order]
        self.positions = order.astype(np.int32 if len(order) < 1 << 31 else np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        columns: int = sum(column.nbytes for column in self.columns)
        return columns + self.hashes.nbytes + self.positions.nbytes


class KeyIndex:
    """Index of keys, none of which occurs twice."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        first = columns[0]
        self.are_plain = (
            len(columns) == 1 and pa.types.is_integer(first.type) and not first.null_count
        )
        hashes = _hashes(columns, are_plain=self.are_plain)
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]
        #: Different keys have different hashes.
        self._is_unique = not (self._sorted[1:] == self._sorted[:-1]).any()

    def __len__(self) -> int:
        return len(self._sorted)

    def match(self, rows: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        """Return the positions of rows that equal keys, and the numbers of these."""
        if not self._is_unique or not len(self):
            return self._match_slowly(rows)
        hashes = _hashes(rows, are_plain=self.are_plain)
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        positions = np.flatnonzero(self._sorted[places] == hashes)
        return self._equal(rows, positions, self._order[places[positions]])

    def match_sorted(self, rows: SortedKeys) -> tuple[Numbers, Numbers]:
        """Return the same for sorted rows, in time that depends on the number of keys."""
        if not self._is_unique or not len(self):
            return self._match_slowly(rows.columns)
        first = np.searchsorted(rows.hashes, self._sorted, side="left")
        counts = np.searchsorted(rows.hashes, self._sorted, side="right") - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = rows.positions[np.repeat(first, counts) + within].astype(np.int64)
        return self._equal(rows.columns, positions, np.repeat(self._order, counts))

    def _equal(
        self, rows: Sequence[pa.Array], positions: Numbers, numbers: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return those of some pairs that are equal, and not in their hashes only."""
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


def _hashes(columns: Sequence[pa.Array], *, are_plain: bool) -> npt.NDArray[np.uint64]:
    if not are_plain:
        return row_hashes(columns)
    (column,) = columns
    if column.null_count:  # no key is null, and equal hashes are compared
        column = column.fill_null(0)
    hashes: npt.NDArray[np.uint64] = (
        column.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    )
    return hashes
