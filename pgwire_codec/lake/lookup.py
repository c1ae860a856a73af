"""Lookup of rows by key: data file and position of each key in a table.

Files are skipped by the bounds that the table records, and row groups by those of Parquet. Then
the key columns are read and matched. Rows that are deleted already do not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.comparison import Mask, Numbers
from pgwire_codec.lake.key_cache import KeyCache
from pgwire_codec.lake.key_index import KeyIndex
from pgwire_codec.lake.table_files import DataFile, OpenFile, TableFiles, gather
from pgwire_codec.lake.vectors import positions_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

_CACHE: Final = KeyCache()

#: Number of keys for which a file's keys are worth to be kept.
_FEW_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of a table that have some keys."""

    files: tuple[DataFile, ...]  # files of the table
    file: Numbers  # for each key, the number of the file that has its row; -1 if no file has it
    position: Numbers  # for each key, the row's position in that file

    @property
    def exists(self) -> Mask:
        """True for each key that has a row."""
        return self.file >= 0


def find_rows(target: TableFiles, keys: pa.Table) -> FoundRows:
    """Return the rows of a table that have some keys, each of which is there once.

    Raises ``TableError`` if a key has two rows.
    """
    found = FoundRows(target.files, np.full(len(keys), -1), np.full(len(keys), -1))
    if not len(keys):
        return found
    search = _Search(target, keys)
    for number, file in enumerate(target.files):
        for positions, owners in search.matches(file):
            again = found.file[owners] >= 0
            counts = np.bincount(owners[~again], minlength=len(keys))
            if again.any() or counts.max(initial=0) > 1:
                place = owners[again][0] if again.any() else int(np.argmax(counts))
                raise TableError(
                    f"{target.name} has two rows with the key {key_text(keys, int(place))}",
                    hint="Remove one of them, or remove the table, and resume it.",
                )
            found.file[owners] = number
            found.position[owners] = positions
    return found


def find_copies(target: TableFiles, rows: pa.Table, counts: Numbers) -> dict[str, Numbers]:
    """Return positions of as many equal rows as are asked for, by the file's path.

    Each of ``rows`` is there once. Raises ``TableError`` if the table has fewer than ``counts``.
    """
    missing = counts.copy()
    positions: dict[str, Numbers] = {}
    search = _Search(target, rows)
    for file in target.files if len(rows) else ():
        if not missing.any():
            break
        for hits, owners in search.matches(file):
            # The n-th row that equals another one is wanted if that one lacks n.
            order = np.argsort(owners, kind="stable")
            hits, owners = hits[order], owners[order]
            starts = np.searchsorted(owners, owners)
            wanted = np.arange(len(owners)) - starts < missing[owners]
            hits, owners = hits[wanted], owners[wanted]
            missing -= np.bincount(owners, minlength=len(missing))
            if len(hits):
                known = positions.get(file.path, hits[:0])
                positions[file.path] = np.append(known, hits)
    if missing.any():
        row = int(np.argmax(missing))
        raise TableError(
            f"{target.name} has {counts[row] - missing[row]} rows with {key_text(rows, row)}, of "
            f"which the changes remove {counts[row]}: earlier changes are missing there",
            hint="Apply them first, in the order of their commits.",
        )
    return positions


def read_rows(target: TableFiles, found: FoundRows, wanted: Numbers, schema: pa.Schema) -> pa.Table:
    """Return columns of the rows of some keys, in the order of ``wanted``.

    ``wanted`` has numbers of keys whose rows were found. Columns that a file lacks are null.
    """

    def read(number: int, chosen: Numbers) -> pa.Table:
        with target.open(found.files[number]) as file:
            return file.take(found.position[wanted[chosen]], schema)

    return gather(found.file[wanted], read) if len(wanted) else schema.empty_table()


class _Search:
    """Search for rows of a table that equal some rows, each of which is there once."""

    def __init__(self, target: TableFiles, rows: pa.Table) -> None:
        self._target = target
        self._schema = rows.schema
        columns = [column.combine_chunks() for column in rows.columns]
        self._filters = list(map(_Filter, rows.column_names, columns))
        self._index = KeyIndex(columns)

    def matches(self, file: DataFile) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield positions of a file's rows that equal some rows, and the numbers of these."""
        if not all(each.may_match_file(file) for each in self._filters):
            return
        deleted = self._target.vector(file) if file.deleted else None
        for positions, owners in self._hits(file):
            if deleted is not None and len(positions):
                lives = ~_are_in(positions, deleted)
                owners, positions = owners[lives], positions[lives]
            yield positions, owners

    def _hits(self, file: DataFile) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield the same, with rows that are deleted."""
        index = self._index
        if len(index) <= _FEW_KEYS and index.is_unique:
            hits = _CACHE.match(self._target, file, self._schema, index)
            if hits is not None:
                yield hits
                return
        with self._target.open(file) as opened:
            for number, start in enumerate(opened.starts.tolist()):
                if all(each.may_match_group(opened, number) for each in self._filters):
                    rows = opened.read(number, self._schema)
                    found, owners = index.match([each.combine_chunks() for each in rows.columns])
                    yield found + start, owners


def _are_in(positions: Numbers, vector: BitMap64) -> Mask:
    if len(positions) <= _FEW_KEYS:
        return np.fromiter((position in vector for position in positions.tolist()), np.bool_)
    return np.isin(positions, positions_of(vector))


class _Filter:
    """Values of a key column, which decide what cannot have a key."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self._name = name
        self._values: Any = None
        if pa.types.is_signed_integer(column.type) or pa.types.is_string(column.type):
            self._has_null = column.null_count > 0
            if pa.types.is_string(column.type):
                unique = pc.drop_null(pc.unique(column))
                self._values = unique.take(pc.sort_indices(unique))
            else:
                self._values = pa.array(np.sort(pc.drop_null(column).to_numpy()))

    def may_match_file(self, file: DataFile) -> bool:
        """Return whether a file may have one of the values."""
        return self._may_match(file.bounds.lower.get(self._name), file.bounds.upper.get(self._name))

    def may_match_group(self, file: OpenFile, group: int) -> bool:
        """Return whether a row group may have one of the values."""
        if self._values is None:  # bounds of other types may not be values of Python's
            return True
        statistics = file.statistics(group, self._name)
        if statistics is None or not statistics.has_min_max:
            return True
        return self._may_match(statistics.min, statistics.max)

    def _may_match(self, lower: Any, upper: Any) -> bool:
        values = self._values
        if values is None or self._has_null or lower is None or upper is None:
            return True
        if isinstance(lower, str) != pa.types.is_string(values.type):
            return True  # bounds of another type that the column had
        # Texts of Python are in the order of their bytes in UTF-8, too.
        place = bisect_left(range(len(values)), lower, key=lambda number: values[number].as_py())
        return place < len(values) and bool(values[place].as_py() <= upper)


def key_text(keys: pa.Table, number: int) -> str:
    """Return a key for messages: ``id = 1, part = 'a'``."""
    columns = zip(keys.column_names, keys.columns, strict=True)
    return ", ".join(f"{name} = {_value(column[number])!r}" for name, column in columns)


def _value(scalar: pa.Scalar) -> object:
    try:
        value: object = scalar.as_py()
    except (OverflowError, ValueError):  # a time that Python does not have
        return scalar.cast(pa.int64()).as_py()
    return value
