"""Lookup of rows by key: data file and position of each key in a table.

Files are skipped by the bounds that the table records, and row groups by those of Parquet. Then
the key columns are read and matched. Rows that are deleted already do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.comparison import Mask, Numbers
from pgwire_codec.lake.key_cache import KeyCache
from pgwire_codec.lake.key_index import KeyIndex
from pgwire_codec.lake.table_files import DataFile, OpenFile, TableFiles
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
    files = target.files
    found = FoundRows(files, np.full(len(keys), -1), np.full(len(keys), -1))
    if not len(keys):
        return found
    columns = [column.combine_chunks() for column in keys.columns]
    filters = [
        _Filter(name, column) for name, column in zip(keys.column_names, columns, strict=True)
    ]
    index = KeyIndex(columns)
    for number, file in enumerate(files):
        if not all(each.may_match_file(file) for each in filters):
            continue
        for positions, owners in _matches(target, file, keys.schema, index, filters):
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
    columns = [column.combine_chunks() for column in rows.columns]
    filters = [
        _Filter(name, column) for name, column in zip(rows.column_names, columns, strict=True)
    ]
    index = KeyIndex(columns)
    for file in target.files if len(rows) else ():
        if not missing.any():
            break
        if not all(each.may_match_file(file) for each in filters):
            continue
        for hits, owners in _matches(target, file, rows.schema, index, filters):
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
    parts, order = [], []
    for number in np.unique(found.file[wanted]).tolist():
        chosen = np.flatnonzero(found.file[wanted] == number)
        positions = found.position[wanted[chosen]]
        with target.open(found.files[number]) as file:
            parts.append(file.take(positions, schema))
        order.append(chosen)
    if not parts:
        return schema.empty_table()
    inverse = np.argsort(np.concatenate(order), kind="stable")
    return pa.concat_tables(parts).take(pa.array(inverse))


def _matches(
    target: TableFiles,
    file: DataFile,
    schema: pa.Schema,
    index: KeyIndex,
    filters: Sequence[_Filter],
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield positions of a file's rows that equal some rows, and the numbers of these."""
    deleted = target.vector(file) if file.deleted else None
    for positions, owners in _hits(target, file, schema, index, filters):
        if deleted is not None and len(positions):
            lives = ~_are_in(positions, deleted)
            owners, positions = owners[lives], positions[lives]
        yield positions, owners


def _hits(
    target: TableFiles,
    file: DataFile,
    schema: pa.Schema,
    index: KeyIndex,
    filters: Sequence[_Filter],
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the same, with rows that are deleted."""
    keys = _CACHE.get(target, file, schema, index) if len(index) <= _FEW_KEYS else None
    if keys is not None:
        yield index.match_sorted(keys)
        return
    with target.open(file) as opened:
        for start, rows in _key_rows(opened, schema, filters):
            positions, owners = index.match(rows)
            yield positions + start, owners


def _are_in(positions: Numbers, vector: BitMap64) -> Mask:
    if len(positions) <= _FEW_KEYS:
        return np.fromiter((position in vector for position in positions.tolist()), np.bool_)
    return np.isin(positions, positions_of(vector).astype(np.int64))


def _key_rows(
    file: OpenFile, schema: pa.Schema, filters: Sequence[_Filter]
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yield the first position and the key columns of each row group that may have a key."""
    for number, start in enumerate(file.starts.tolist()):
        if all(each.may_match_group(file, number) for each in filters):
            rows = file.read(number, schema)
            yield start, [column.combine_chunks() for column in rows.columns]


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
        if self._values is None or self._has_null or lower is None or upper is None:
            return True
        if isinstance(lower, str) != pa.types.is_string(self._values.type):
            return True  # bounds of another type that the column had
        values = self._values
        if isinstance(lower, str):
            first = pc.greater_equal(values, lower)
            return bool(pc.any(pc.and_(first, pc.less_equal(values, upper))).as_py())
        numbers = values.to_numpy()
        place = int(np.searchsorted(numbers, lower))
        return place < len(numbers) and bool(numbers[place] <= upper)


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
