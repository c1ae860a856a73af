"""Lookup of rows by key: data file and position of each key in a table.

Files are skipped by the bounds that the table records, and row groups by those of Parquet. Then
the key columns are read and matched. Rows that are deleted already do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgwire_codec.errors import TableError
from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.key_codes import match_codes
from pgwire_codec.lake.tables.target import DataFile, Target
from pgwire_codec.lake.vectors import positions_of

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of a table that have some keys.

    Attributes
    ----------
    files : list of DataFile
        Files of the table.
    file : ndarray
        For each key, the number of the file that has its row; -1 if no file has it.
    position : ndarray
        For each key, the row's position in that file.
    """

    files: list[DataFile]
    file: Numbers
    position: Numbers

    @property
    def exists(self) -> npt.NDArray[np.bool_]:
        """True for each key that has a row."""
        return self.file >= 0


class Readable(Target, Protocol):
    """A table whose files are in a folder."""

    folder: Folder


def find_rows(target: Readable, keys: pa.Table) -> FoundRows:
    """Return the rows of a table that have some keys.

    Parameters
    ----------
    target : Target
    keys : pyarrow.Table
        Key columns, with their names; each key once.

    Raises
    ------
    TableError
        If a key has two rows.
    """
    files = target.files
    found = FoundRows(files, np.full(len(keys), -1), np.full(len(keys), -1))
    if not len(keys):
        return found
    columns = [column.combine_chunks() for column in keys.columns]
    filters = [
        _Filter(name, column) for name, column in zip(keys.column_names, columns, strict=True)
    ]
    for number, file in enumerate(files):
        if not all(each.may_match_file(file) for each in filters):
            continue
        for positions, owners in _matches(target, file, keys.schema, columns, filters):
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


def find_copies(target: Readable, rows: pa.Table, counts: Numbers) -> dict[str, Numbers]:
    """Return positions of as many equal rows as are asked for, by the file's path.

    Parameters
    ----------
    target : Target
    rows : pyarrow.Table
        Columns of the table; each row once.
    counts : ndarray of int64
        How many of each row.

    Raises
    ------
    TableError
        If the table has fewer.
    """
    missing = counts.copy()
    positions: dict[str, Numbers] = {}
    columns = [column.combine_chunks() for column in rows.columns]
    filters = [
        _Filter(name, column) for name, column in zip(rows.column_names, columns, strict=True)
    ]
    for file in target.files if len(rows) else ():
        if not missing.any():
            break
        if not all(each.may_match_file(file) for each in filters):
            continue
        for hits, owners in _matches(target, file, rows.schema, columns, filters):
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


def read_rows(target: Readable, found: FoundRows, wanted: Numbers, schema: pa.Schema) -> pa.Table:
    """Return columns of the rows of some keys, in the order of ``wanted``.

    ``wanted`` has numbers of keys whose rows were found. Columns that a file lacks are null.
    """
    parts, order = [], []
    for number in np.unique(found.file[wanted]).tolist():
        chosen = np.flatnonzero(found.file[wanted] == number)
        positions = found.position[wanted[chosen]]
        with (
            target.folder.open(found.files[number].path) as opened,
            pq.ParquetFile(opened) as parquet,
        ):
            parts.append(_taken(parquet, positions, schema))
        order.append(chosen)
    if not parts:
        return schema.empty_table()
    inverse = np.argsort(np.concatenate(order), kind="stable")
    return pa.concat_tables(parts).take(pa.array(inverse))


def _matches(
    target: Readable,
    file: DataFile,
    schema: pa.Schema,
    columns: Sequence[pa.Array],
    filters: Sequence[_Filter],
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield positions of a file's rows that equal some rows, and the numbers of these."""
    deleted: Numbers | None = None
    with target.folder.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
        for start, rows in _key_rows(parquet, schema, filters):
            row_codes, key_codes = match_codes(rows, columns)
            hits = np.flatnonzero(row_codes >= 0)
            if not len(hits):
                continue
            positions = hits + start
            if file.deleted:
                if deleted is None:
                    deleted = positions_of(target.vector(file.path)).astype(np.int64)
                lives = ~np.isin(positions, deleted)
                hits, positions = hits[lives], positions[lives]
            by_code = np.full(int(key_codes.max()) + 1, -1)
            by_code[key_codes] = np.arange(len(key_codes))
            yield positions, by_code[row_codes[hits]]


def _taken(parquet: pq.ParquetFile, positions: Numbers, schema: pa.Schema) -> pa.Table:
    """Return rows of a file at some positions, in their order."""
    starts = _group_starts(parquet)
    groups = np.searchsorted(starts, positions, side="right") - 1
    parts, order = [], []
    for group in np.unique(groups).tolist():
        chosen = np.flatnonzero(groups == group)
        rows = _read(parquet, group, schema)
        parts.append(rows.take(pa.array(positions[chosen] - starts[group])))
        order.append(chosen)
    inverse = np.argsort(np.concatenate(order), kind="stable")
    return pa.concat_tables(parts).take(pa.array(inverse))


def _group_starts(parquet: pq.ParquetFile) -> Numbers:
    """Return the position of the first row of each row group."""
    metadata = parquet.metadata
    counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    starts: Numbers = np.append(0, np.cumsum(counts)[:-1]).astype(np.int64)
    return starts


def _read(parquet: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    """Return columns of a row group, in the types of a schema; null if the file lacks them."""
    present = set(parquet.schema_arrow.names)
    rows = parquet.read_row_group(group, columns=[name for name in schema.names if name in present])
    for place, column in enumerate(schema):
        if column.name not in present:
            rows = rows.add_column(place, column, pa.nulls(len(rows), column.type))
    return rows.select(schema.names).cast(schema)


def _key_rows(
    parquet: pq.ParquetFile, schema: pa.Schema, filters: Sequence[_Filter]
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yield the first position and the key columns of each row group that may have a key."""
    start = 0
    metadata = parquet.metadata
    places = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if all(each.may_match_group(group, places) for each in filters):
            rows = _read(parquet, number, schema)
            yield start, [column.combine_chunks() for column in rows.columns]
        start += group.num_rows


class _Filter:
    """Values of a key column, which decide what cannot have a key."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self._name = name
        self._values: Any = None
        if pa.types.is_signed_integer(column.type) or pa.types.is_string(column.type):
            unique = pc.drop_null(pc.unique(column))
            self._values = unique.take(pc.sort_indices(unique))
            self._has_null = column.null_count > 0

    def may_match_file(self, file: DataFile) -> bool:
        """Return whether a file may have one of the values."""
        return self._may_match(file.bounds.lower.get(self._name), file.bounds.upper.get(self._name))

    def may_match_group(self, group: pq.RowGroupMetaData, places: dict[str, int]) -> bool:
        """Return whether a row group may have one of the values."""
        if self._name not in places:
            return True
        statistics = group.column(places[self._name]).statistics
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
    row = keys.slice(number, 1).to_pylist()[0]
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())
