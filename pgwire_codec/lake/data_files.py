"""Data files of tables: Parquet, written from record batches, with the bounds of their columns."""

from __future__ import annotations

import io
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgwire_codec.lake.folder import Folder

#: Rows of a row group, which a lookup reads or skips as a whole, and their bytes in memory.
_GROUP_ROWS: Final = 1 << 18
_GROUP_BYTES: Final = 64 << 20

#: Rows by which columns with few different values are recognized.
_SAMPLE_ROWS: Final = 1 << 13

#: Columns that have bounds. A commit has them for each of its files.
_MOST_BOUNDS: Final = 32

_TEXT: Final = 32  # characters of a text in bounds

#: Bytes of texts, on average, from which on they are cut before they are compared.
_LONG_TEXT: Final = 4 * _TEXT

#: Bytes of a value whose column gets neither statistics nor a dictionary: both copy it.
_LARGE_VALUE: Final = 1 << 20

COMMIT_TIME: Final = "_commit_time"  # column of the time of a row's commit, in histories

_OPEN_FILES: Final = 4  # files of different dates that a task has open at a time

_DAY: Final = 86_400_000_000  # microseconds of a day

_LAST: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(slots=True)
class Bounds:
    """Bounds of a file's columns, for readers and lookups that skip files.

    They contain all values. So only integers and texts have them: floating-point bounds lack NaN,
    and readers parse those of decimals, dates and timestamps in ways that lose values.
    """

    lower: dict[str, Any] = field(default_factory=dict)  # an int or str by the column's name
    upper: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)  # of the columns that have them counted


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """CRC-32 of a data file, and of its footer, which page checksums leave out."""

    whole: int
    footer_start: int
    footer: int

    def to_text(self) -> str:
        """Return it as a table records it."""
        return f"{self.whole:08x} {self.footer_start} {self.footer:08x}"

    @classmethod
    def parse(cls, text: str) -> FileChecksum:
        """Return the checksum of a text. Raises ``ValueError``."""
        whole, start, footer = text.split(" ")
        return cls(int(whole, 16), int(start), int(footer, 16))


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that no commit has added yet."""

    path: str  # in the table's folder
    size: int  # in bytes
    rows: int
    bounds: Bounds
    checksum: FileChecksum | None = None


def bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a schema that have bounds."""
    kinds = pa.types.is_signed_integer, pa.types.is_string
    names = [column.name for column in schema if any(is_kind(column.type) for is_kind in kinds)]
    return names[:_MOST_BOUNDS]


class BoundsBuilder:
    """Bounds of the rows of some batches, in the columns of :func:`bounded_columns`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._lowest: dict[str, Any] = {}
        self._highest: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows into account."""
        for name in self._nulls:
            column = rows.column(name)
            self._nulls[name] += column.null_count
            if column.null_count == len(column):
                continue
            if pa.types.is_string(column.type) and column.nbytes > _LONG_TEXT * len(column):
                # As long as it takes to see that a text is cut.
                column = pc.utf8_slice_codeunits(column, 0, _TEXT + 1)
            lowest, highest = pc.min_max(column).as_py().values()
            self._lowest[name] = min(self._lowest.get(name, lowest), lowest)
            self._highest[name] = max(self._highest.get(name, highest), highest)

    def build(self) -> Bounds:
        """Return the bounds of all rows; long texts are cut, and the highest is increased."""
        bounds = Bounds(nulls=dict(self._nulls))
        for name, lowest in self._lowest.items():
            highest = self._highest[name]
            if isinstance(lowest, str):
                lowest, highest = lowest[:_TEXT], _upper_text(highest)
            if highest is not None:
                bounds.lower[name], bounds.upper[name] = lowest, highest
        return bounds


def _upper_text(text: str) -> str | None:
    """Return a short text that is not below another one; None if no such text exists.

    Texts are compared by their bytes in UTF-8, which have the order of the code points.
    """
    if len(text) <= _TEXT:
        return text
    begin = text[:_TEXT].rstrip(_LAST)
    if not begin:
        return None
    code = ord(begin[-1]) + 1
    return begin[:-1] + chr(_SURROGATES.stop if code in _SURROGATES else code)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Paths of a table's new data files, for the tasks that write them."""

    prefix: str = ""  # first characters of the paths, which are unique between these and the ending
    ending: str = ".parquet"
    #: True if each file has rows of one date: that of the commit in UTC, which the path contains.
    by_date: bool = False

    def path(self, date: str = "") -> str:
        """Return the path of a new file."""
        name = f"{date}-{uuid.uuid4()}" if date else str(uuid.uuid4())
        return f"{self.prefix}{name}{self.ending}"


class DataFilesWriter:
    """Writes new data files of a table: one, or one of each date, or without rows not any.

    A date has more than one file if its rows are scattered among those of many others, because
    only a few files are open at a time.
    """

    def __init__(self, folder: Folder, schema: pa.Schema, layout: FileLayout) -> None:
        self._folder = folder
        self._schema = schema
        self._layout = layout
        self._open: dict[str, _FileWriter] = {}  # that of the last rows is last
        self._finished: list[NewFile] = []

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows in memory."""
        return sum(writer.buffered_bytes for writer in self._open.values())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns that they lack are null."""
        for date, rows in _rows_by_date(batch) if self._layout.by_date else [("", batch)]:
            writer = self._open.pop(date, None)
            if writer is None:
                if len(self._open) == _OPEN_FILES:
                    self._finish_first()
                writer = _FileWriter(self._folder, self._layout.path(date), self._schema)
            self._open[date] = writer
            writer.add(rows)

    def flush(self) -> None:
        """Write the rows that are buffered as row groups."""
        for writer in self._open.values():
            writer.flush()

    def finish(self) -> list[NewFile]:
        """Return the files, which are durable."""
        while self._open:
            self._finish_first()
        return self._finished

    def discard(self) -> None:
        """Remove the files."""
        for writer in self._open.values():
            writer.discard()
        for file in self._finished:
            self._folder.remove(file.path)
        self._open.clear()
        self._finished.clear()

    def _finish_first(self) -> None:
        date = next(iter(self._open))
        file = self._open[date].finish()
        del self._open[date]
        self._finished += [] if file is None else [file]


class _SummedFile(io.RawIOBase):
    """A new file, and the CRC-32 of all its bytes and of those since ``tail`` was set to 0."""

    def __init__(self, file: Any) -> None:
        self._file, self._size = file, 0
        self.whole = self.tail = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._file.write(data)
        self._size += size
        self.whole, self.tail = zlib.crc32(data, self.whole), zlib.crc32(data, self.tail)
        return size

    def tell(self) -> int:
        return self._size


class _FileWriter:
    """Writer of a data file, which exists once it has rows."""

    def __init__(self, folder: Folder, path: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._path = path
        self._schema = schema
        self._bounds = BoundsBuilder(bounded_columns(schema))
        self._rows = 0
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = self.buffered_bytes = 0
        self._opened = ExitStack()
        self._sink: _SummedFile | None = None
        self._parquet: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which are written together, as many as make a row group."""
        self._buffered.append(batch)
        self._buffered_rows += len(batch)
        self.buffered_bytes += batch.nbytes
        if self._buffered_rows >= _GROUP_ROWS or self.buffered_bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are buffered as a row group."""
        if not self._buffered_rows:
            return
        group = _completed(pa.Table.from_batches(self._buffered), self._schema)
        self._buffered, self._buffered_rows, self.buffered_bytes = [], 0, 0
        if self._parquet is None:
            file = self._opened.enter_context(self._folder.writer(self._path))
            self._sink = _SummedFile(file)
            self._parquet = self._opened.enter_context(
                pq.ParquetWriter(
                    pa.PythonFile(self._sink, "w"),
                    self._schema,
                    use_dictionary=_repeated(group),
                    write_statistics=_with_statistics(group),
                    write_page_checksum=True,
                    version="2.6",
                    coerce_timestamps="us",
                )
            )
        most = len(group) if len(group) < 2 * _GROUP_ROWS else _GROUP_ROWS
        self._parquet.write_table(group, row_group_size=most)
        self._bounds.add(group)
        self._rows += len(group)

    def finish(self) -> NewFile | None:
        """Write the rest of the file, and return it."""
        with self._opened:
            self.flush()
            if self._sink is None:
                return None
            start, self._sink.tail = self._sink.tell(), 0
            self._parquet.close()
            size = self._sink.tell()
            checksum = FileChecksum(self._sink.whole, start, self._sink.tail)
        return NewFile(self._path, size, self._rows, self._bounds.build(), checksum)

    def discard(self) -> None:
        """Remove the file, unless it is finished."""
        # The folder removes a file whose context an error ends.
        with suppress(Exception), self._opened:
            raise InterruptedError


def write_data_files(
    folder: Folder,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    layout: FileLayout | None = None,
) -> list[NewFile]:
    """Write rows into new files; see :class:`DataFilesWriter`."""
    writer = DataFilesWriter(folder, schema, layout or FileLayout())
    try:
        for batch in batches:
            writer.add(batch)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def _rows_by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each date, in their order."""
    if not len(batch):
        return
    times = batch.column(COMMIT_TIME).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    days = times.to_numpy(zero_copy_only=True) // _DAY
    if (days[1:] < days[:-1]).any():
        order = np.argsort(days, kind="stable")
        batch, days = batch.take(pa.array(order)), days[order]
    starts = np.flatnonzero(np.diff(days, prepend=days[0] - 1)).tolist()
    for start, end in pairwise([*starts, len(days)]):
        yield str(days[start].astype("datetime64[D]")), batch.slice(start, end - start)


def _completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    present = set(rows.column_names)
    columns = [
        rows.column(column.name).cast(column.type)
        if column.name in present
        else pa.chunked_array([pa.nulls(len(rows), column.type)])
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _repeated(rows: pa.Table) -> list[str] | bool:
    """Return the columns with few different values, for which dictionaries are tried.

    Otherwise they cost more than the rest of the file, and are given up.
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    names = [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if not pa.types.is_nested(column.type)
        and not _has_large_values(column)
        and pc.count_distinct(column, mode="all").as_py() <= len(sample) // 4
    ]
    return names or False


def _with_statistics(rows: pa.Table) -> list[str] | bool:
    """Return the columns of which row groups have bounds: floating-point ones would lack NaN."""
    names = [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if not pa.types.is_floating(column.type) and not _has_large_values(column)
    ]
    return True if len(names) == rows.num_columns else names


def _has_large_values(column: pa.ChunkedArray) -> bool:
    """Return whether a text or binary column has a large value."""
    kind = column.type
    is_binary = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not is_binary or column.nbytes < _LARGE_VALUE:
        return False
    return (pc.max(pc.binary_length(column)).as_py() or 0) >= _LARGE_VALUE
