"""Data files of tables: Parquet, written from record batches, with the bounds of their columns."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgwire_codec.lake.folder import Folder

#: Rows of a row group, which a lookup reads or skips as a whole, and their bytes in memory.
_GROUP_ROWS: Final = 1 << 18
_GROUP_BYTES: Final = 64 << 20

#: Columns that have bounds. A commit has them for each of its files.
_MOST_BOUNDS: Final = 32

#: Characters of a text in bounds.
_TEXT: Final = 32

_LAST: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(slots=True)
class Bounds:
    """Bounds of a file's columns, for readers and lookups that skip files.

    They contain all values. So only integers and texts have them: floating-point bounds lack NaN,
    and readers parse those of decimals, dates and timestamps in ways that lose values.

    Attributes
    ----------
    lower, upper : dict
        An int or str by the column's name.
    nulls : dict of str to int
        Numbers of nulls of the columns that have them counted.
    """

    lower: dict[str, Any] = field(default_factory=dict)
    upper: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that no commit has added yet.

    Attributes
    ----------
    path : str
        Path in the table's folder.
    size : int
        Bytes.
    rows : int
    bounds : Bounds
    """

    path: str
    size: int
    rows: int
    bounds: Bounds


def bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a schema that have bounds."""
    names = [column.name for column in schema if _is_bounded(column.type)]
    return names[:_MOST_BOUNDS]


def _is_bounded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_string(kind))


class BoundsBuilder:
    """Bounds of the rows of some batches.

    Parameters
    ----------
    columns : sequence of str
        Those of :func:`bounded_columns`.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._lowest: dict[str, Any] = {}
        self._highest: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch into account."""
        for name in self._nulls:
            column = batch.column(name)
            self._nulls[name] += column.null_count
            if column.null_count == len(column):
                continue
            found = pc.min_max(column).as_py()
            if name not in self._lowest:
                self._lowest[name], self._highest[name] = found["min"], found["max"]
                continue
            self._lowest[name] = min(self._lowest[name], found["min"])
            self._highest[name] = max(self._highest[name], found["max"])

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


def write_data_file(
    folder: Folder, schema: pa.Schema, batches: Iterable[pa.RecordBatch], directory: str = ""
) -> NewFile:
    """Write rows into a new file, and return it.

    Parameters
    ----------
    folder : Folder
        That of the table.
    schema : pyarrow.Schema
        Columns of the table, which the batches have.
    batches : iterable of pyarrow.RecordBatch
    directory : str
        Directory of the file in the folder.
    """
    path = f"{directory}/{uuid.uuid4()}.parquet" if directory else f"{uuid.uuid4()}.parquet"
    bounds, rows = BoundsBuilder(bounded_columns(schema)), 0
    with folder.writer(path) as file:
        sink = pa.PythonFile(file, "w")
        with pq.ParquetWriter(
            sink,
            schema,
            write_statistics=_with_statistics(schema),
            version="2.6",
            coerce_timestamps="us",
        ) as writer:
            for group in _groups(batches):
                most = len(group) if len(group) < 2 * _GROUP_ROWS else _GROUP_ROWS
                writer.write_table(group, row_group_size=most)
                for batch in group.to_batches():
                    bounds.add(batch)
                rows += len(group)
        size = sink.tell()
    return NewFile(path, size, rows, bounds.build())


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches together, as many as make a row group."""
    buffered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        buffered.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(buffered)
            buffered, rows, size = [], 0, 0
    if buffered:
        yield pa.Table.from_batches(buffered)


def _with_statistics(schema: pa.Schema) -> list[str] | bool:
    """Return the columns of which row groups have bounds: floating-point ones would lack NaN."""
    floating = [column.name for column in schema if pa.types.is_floating(column.type)]
    if not floating:
        return True
    return [column.name for column in schema if column.name not in floating]
