"""KeyIndex: keys that rows are found by, and KeyCache: sorted keys of data files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.lake.comparison import Numbers, differs
from pgwire_codec.lake.key_codes import match_codes
from pgwire_codec.lake.row_hashes import row_hashes
from pgwire_codec.lake.table_files import DataFile, TableFiles

#: Bytes of all sorted keys of this process, and number of files that are remembered without them.
_MOST_BYTES: Final = 128 << 20
_MOST_NAMES: Final = 10_000

#: Bytes of a row of the smallest keys.
_ROW_BYTES: Final = 20


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
            equal = ~differs(one, other)
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


class _Name(NamedTuple):
    uri: str
    path: str
    schema: pa.Schema
    are_plain: bool


class KeyCache:
    """Keys of files from the second lookup on, those of the last lookups.

    A mirror looks up a few keys in the same files with each turn: the cost then depends on their
    number, and not on the size of the table. Data files do not change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: OrderedDict[_Name, SortedKeys] = OrderedDict()
        self._names: OrderedDict[_Name, None] = OrderedDict()
        self._bytes = 0

    def get(
        self, target: TableFiles, file: DataFile, schema: pa.Schema, index: KeyIndex
    ) -> SortedKeys | None:
        """Return the keys of a file; None if it is to be read, as it is not looked up often."""
        name = _Name(target.uri, file.path, schema, index.are_plain)
        with self._lock:
            keys = self._keys.get(name)
            if keys is not None:
                self._keys.move_to_end(name)
                return keys
            if not self._is_known(name) or (file.rows or 0) * _ROW_BYTES > _MOST_BYTES:
                return None
        with target.open(file) as opened:
            rows = pa.concat_tables([group for _, group in opened.groups(schema)])
        keys = SortedKeys(
            [column.combine_chunks() for column in rows.columns], are_plain=index.are_plain
        )
        with self._lock:
            if name not in self._keys:
                self._keys[name] = keys
                self._bytes += keys.nbytes
            while self._bytes > _MOST_BYTES:
                _, oldest = self._keys.popitem(last=False)
                self._bytes -= oldest.nbytes
        return keys

    def _is_known(self, name: _Name) -> bool:
        if name in self._names:
            self._names.move_to_end(name)
            return True
        self._names[name] = None
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        return False
