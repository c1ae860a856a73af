"""Packed rows: changes of many tables, each row a run of one table's changes in Arrow's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from pgwire_codec.spark.arrow_types import spark_arrow_schema
from pgwire_codec.spark.formats.row_format import RowFormat

#: In the exact form that Spark uses.
PACKED: Final = spark_arrow_schema(
    pa.schema(
        {
            "relation_oid": pa.int64(),
            "relation": pa.string(),
            "rows": pa.int64(),
            "schema": pa.binary(),
            "data": pa.binary(),
        }
    )
)

#: Spark's cache skips whole batches of about 4 MB by the OIDs in them. So rows are smaller, and
#: those of a table are together. They are large enough that the cost of a row does not matter.
_PIECE_BYTES: Final = 2 << 20

#: Spark copies packed rows several times, which costs more than LZ4 does.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


@dataclass(frozen=True, slots=True)
class PackedTable:
    """A table of packed rows.

    Attributes
    ----------
    name : str
        ``schema.table``, at the end of the range.
    rows : RowFormat
        Format of its rows.
    """

    name: str
    rows: RowFormat


@dataclass(slots=True)
class _Buffered:
    """Record batches of a table that are not packed yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0


class Packer:
    """Packs record batches of tables, by OID, into rows of about the same size."""

    def __init__(self, tables: Mapping[int, PackedTable]) -> None:
        self._tables = tables
        self._buffered: dict[int, _Buffered] = {}
        self._schemas: dict[int, pa.Buffer] = {}

    def add(self, oid: int, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a table's records; yield the rows that are complete."""
        buffered = self._buffered.setdefault(oid, _Buffered())
        buffered.batches.append(records)
        buffered.size += records.nbytes
        if buffered.size >= _PIECE_BYTES:
            del self._buffered[oid]
            yield self._rows([(oid, piece) for piece in _pieces(buffered)])

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, those of a table together."""
        run: list[tuple[int, pa.RecordBatch]] = []
        size = 0
        for oid, buffered in sorted(self._buffered.items()):
            run += [(oid, piece) for piece in _pieces(buffered)]
            size += buffered.size
            if size >= _PIECE_BYTES:
                yield self._rows(run)
                run, size = [], 0
        if run:
            yield self._rows(run)
        self._buffered.clear()

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Yield a row without changes of each table."""
        if self._tables:
            yield self._rows([(oid, None) for oid in self._tables])

    def _rows(self, pieces: list[tuple[int, pa.RecordBatch | None]]) -> pa.RecordBatch:
        data = [b"" if piece is None else _message(piece) for _, piece in pieces]
        arrays = [
            pa.array([oid for oid, _ in pieces], pa.int64()),
            pa.array([self._tables[oid].name for oid, _ in pieces], pa.string()),
            pa.array([0 if piece is None else len(piece) for _, piece in pieces], pa.int64()),
            _binary([self._schema(oid) for oid, _ in pieces]),
            _binary(data),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PACKED)

    def _schema(self, oid: int) -> pa.Buffer:
        if oid not in self._schemas:
            self._schemas[oid] = self._tables[oid].rows.schema.serialize()
        return self._schemas[oid]


def unpack(packed: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the record batches in the column ``data`` of packed rows of one table."""
    for batch in packed:
        for value in batch.column("data"):
            message = value.as_buffer()
            if message is not None and message.size:
                yield pa.ipc.read_record_batch(message, schema)


def _pieces(buffered: _Buffered) -> Iterator[pa.RecordBatch]:
    """Yield the batches as one, or cut into pieces if it is large."""
    (first, *others) = buffered.batches
    records = pa.concat_batches([first, *others]) if others else first
    count = max(1, buffered.size // _PIECE_BYTES)
    rows = max(1, -(-len(records) // count))
    for start in range(0, len(records), rows):
        yield records.slice(start, rows)


def _binary(values: list[pa.Buffer | bytes]) -> pa.BinaryArray:
    """Return values as an array, without a copy if there is one."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = values[0] if len(values) == 1 else b"".join(values)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _message(records: pa.RecordBatch) -> pa.Buffer:
    """Return records as one message of Arrow IPC, compressed."""
    file = pa.BufferOutputStream()
    pa.ipc.new_stream(file, records.schema, options=_COMPRESSED).write(records)
    return file.getvalue()[records.schema.serialize().size :]
