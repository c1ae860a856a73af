"""TableFiles: the data files of a table at one of its versions, for tasks that read them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgwire_codec.lake.comparison import Numbers
from pgwire_codec.lake.damage import reading
from pgwire_codec.lake.data_files import Bounds, FileChecksum
from pgwire_codec.lake.folder import Folder, open_folder
from pgwire_codec.lake.vectors import StoredVector, bitmap, positions_of

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table."""

    path: str  # in the table's folder
    size: int  # in bytes
    rows: int | None  # deleted ones included; None if the table does not record it
    bounds: Bounds
    deleted: int = 0  # number of its rows that are deleted
    vector: StoredVector | None = None  # positions of these
    checksum: FileChecksum | None = None  # None if the table does not record it


@dataclass(frozen=True)
class TableFiles:
    """Data files of a table. Picklable."""

    name: str  # for messages
    uri: str  # path or URI of the folder that has them
    files: tuple[DataFile, ...] = ()
    #: As for ``deltalake.DeltaTable``.
    storage_options: Mapping[str, str] = field(default_factory=dict)
    #: By column, if the columns of files are found by them, and not by name.
    field_ids: Mapping[str, int] | None = None

    @cached_property
    def folder(self) -> Folder:
        """The folder."""
        return open_folder(self.uri, self.storage_options)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "folder"}

    @property
    def is_empty(self) -> bool:
        """True if it certainly has no rows."""
        return all(file.rows == file.deleted for file in self.files)

    def vector(self, file: DataFile) -> BitMap64:
        """Return the positions of a file's deleted rows."""
        if file.vector is None:
            return bitmap(())
        path = file.vector.path
        with reading(self.folder, path or file.path, f"deletion vector{'' if path else ' of'}"):
            return file.vector.read(self.folder)

    def deleted_positions(self, file: DataFile) -> Numbers:
        """Return the positions of a file's deleted rows, ascending."""
        if file.vector is None:
            return np.zeros(0, np.int64)
        return positions_of(self.vector(file))

    def open(self, file: DataFile) -> OpenFile:
        """Open a file. A context manager."""
        return OpenFile(self.folder, file, self.field_ids)

    def batches(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not deleted, in the types of a schema."""
        deleted = self.deleted_positions(file)
        with self.open(file) as opened:
            for start, rows in opened.groups(schema):
                inside = deleted[(deleted >= start) & (deleted < start + len(rows))] - start
                if len(inside):
                    kept = np.ones(len(rows), np.bool_)
                    kept[inside] = False
                    rows = rows.filter(pa.array(kept))
                yield from rows.to_batches()

    def has_nulls(self, column: pa.Field, deleted: str | None) -> bool:
        """Return whether a column is null in a row.

        Rows with true in the boolean column ``deleted`` do not count, if a name is given.
        """
        fields = [column] if deleted is None else [column, pa.field(deleted, pa.bool_())]
        for file in self.files:
            if file.rows is not None and file.rows == file.deleted:
                continue
            if file.bounds.nulls.get(column.name) == 0:
                continue
            for batch in self.batches(file, pa.schema(fields)):
                is_null = batch.column(0).is_null()
                if deleted is not None:
                    is_null = pc.and_not(is_null, batch.column(1).fill_null(False))
                if pc.any(is_null).as_py():
                    return True
        return False


def grouped(files: Iterable[DataFile], size: int) -> list[list[DataFile]]:
    """Return files in groups of some bytes, or of one file."""
    groups: list[list[DataFile]] = []
    filled = size
    for file in sorted(files, key=lambda each: each.size):
        if filled + file.size > size:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += file.size
    return groups


class OpenFile:
    """An open data file, whose columns have the names and types of the table's."""

    def __init__(self, folder: Folder, file: DataFile, field_ids: Mapping[str, int] | None) -> None:
        self._reading = partial(reading, folder, file.path, "data file")
        self._field_ids = field_ids
        with self._reading(), ExitStack() as opened:
            self._file = opened.enter_context(folder.open(file.path))
            size = self._file.size()
            if size != file.size:
                raise ValueError(f"it has {size} bytes, and the table records {file.size}")
            metadata = None
            if file.checksum is not None:
                self._file.seek(file.checksum.footer_start)
                footer = self._file.read_buffer()
                if zlib.crc32(footer) != file.checksum.footer:
                    raise ValueError("its footer does not match its checksum")
                metadata = pq.read_metadata(pa.BufferReader(footer))
            self.parquet = pq.ParquetFile(
                self._file, metadata=metadata, page_checksum_verification=True
            )
            rows = self.parquet.metadata.num_rows
            if file.rows not in (None, rows):
                raise ValueError(f"it has {rows} rows, and the table records {file.rows}")
            opened.pop_all()

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.parquet.close()
        self._file.close()

    @cached_property
    def _names(self) -> dict[str, str]:
        """Names in the file, by the table's."""
        fields = self.parquet.schema_arrow
        if self._field_ids is None:
            return {name: name for name in fields.names}
        by_id = {int((each.metadata or {}).get(b"PARQUET:field_id", -1)): each for each in fields}
        return {
            name: by_id[number].name for name, number in self._field_ids.items() if number in by_id
        }

    @cached_property
    def starts(self) -> Numbers:
        """Position of the first row of each row group."""
        metadata = self.parquet.metadata
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        starts: Numbers = np.cumsum([0, *counts])[:-1]
        return starts

    def statistics(self, group: int, name: str) -> pq.Statistics | None:
        """Return the statistics of a column of a row group, if it has some."""
        place = self._places.get(self._names.get(name, ""))
        if place is None:
            return None
        return self.parquet.metadata.row_group(group).column(place).statistics

    @cached_property
    def _places(self) -> dict[str, int]:
        schema = self.parquet.metadata.schema
        return {schema.column(place).path: place for place in range(len(schema))}

    def read(self, group: int, schema: pa.Schema) -> pa.Table:
        """Return columns of a row group, in the types of a schema; null if the file lacks them."""
        present = {name: self._names[name] for name in schema.names if name in self._names}
        with self._reading():
            found = self.parquet.read_row_group(group, columns=[*present.values()])
        count = self.parquet.metadata.row_group(group).num_rows
        columns = [
            found.column(present[column.name]).cast(column.type)
            if column.name in present
            else pa.chunked_array([pa.nulls(count, column.type)])
            for column in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def groups(self, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
        """Yield the position of the first row, and the rows, of each row group."""
        for number, start in enumerate(self.starts.tolist()):
            yield start, self.read(number, schema)

    def take(self, positions: Numbers, schema: pa.Schema) -> pa.Table:
        """Return the rows at some positions, in their order."""
        groups = np.searchsorted(self.starts, positions, side="right") - 1

        def read(group: int, chosen: Numbers) -> pa.Table:
            rows = self.read(group, schema)
            return rows.take(pa.array(positions[chosen] - self.starts[group]))

        return gather(groups, read)


def gather(groups: Numbers, read: Callable[[int, Numbers], pa.Table]) -> pa.Table:
    """Return a row for each number of a group; ``read`` returns those at places of one group."""
    chosen = {group: np.flatnonzero(groups == group) for group in np.unique(groups).tolist()}
    rows = pa.concat_tables([read(group, places) for group, places in chosen.items()])
    order = np.argsort(np.concatenate(list(chosen.values())), kind="stable")
    return rows.take(pa.array(order))
