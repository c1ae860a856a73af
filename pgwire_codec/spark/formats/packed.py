"""Packed rows: changes of many tables, each row a run of one table's changes in Arrow's format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pgwire_codec.errors import DecodeError, Rejected, TableError
from pgwire_codec.log.dead_letters import DEAD_LETTERS, to_arrow
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema
from pgwire_codec.spark.formats.row_format import RowFormat

#: In the exact form that Spark uses.
PACKED: Final = spark_arrow_schema(
    pa.schema(
        {
            "relation_oid": pa.int64(),
            "relation": pa.string(),
            "rows": pa.int64(),
            "bytes": pa.int64(),
            "error": pa.string(),
            "schema": pa.binary(),
            "data": pa.binary(),
        }
    )
)

#: Columns of dead letters, in the exact form that Spark uses.
SPARK_LETTERS: Final = spark_arrow_schema(DEAD_LETTERS)

#: Spark's cache skips whole batches of about 4 MB by the OIDs in them. So rows are smaller, and
#: those of a table are together. They are large enough that the cost of a row does not matter.
_PIECE_BYTES: Final = 2 << 20

#: Spark copies packed rows several times, which costs more than LZ4 does.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

#: In place of a table's name, in packed rows of dead letters. No table has this name.
LETTERS: Final = ""


class PackedTable(NamedTuple):
    """A table of packed rows: ``schema.table`` at the end of the range, and the rows' format."""

    name: str
    rows: RowFormat


class _Row(NamedTuple):
    """Values of a packed row, in the order of :data:`PACKED`."""

    relation_oid: int
    relation: str
    rows: int
    size: int
    error: str | None
    schema: pa.Buffer
    data: pa.Buffer | bytes


class Packer:
    """Packs record batches of tables, by OID, into rows of about the same size."""

    def __init__(self, tables: Mapping[int, PackedTable]) -> None:
        self._tables = tables
        self._buffered: dict[int, list[pa.RecordBatch]] = {}
        self._sizes: Counter[int] = Counter()  # bytes of these
        self._errors: dict[int, DecodeError | TableError] = {}
        self._letters: dict[int, list[Rejected]] = {}
        self._schemas: dict[int, pa.Buffer] = {}

    def add(self, oid: int, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take records of a table; yield the rows that are complete."""
        if oid in self._errors:
            return
        self._buffered.setdefault(oid, []).append(records)
        self._sizes[oid] += records.nbytes
        if self._sizes[oid] >= _PIECE_BYTES:
            yield _packed(self._rows(oid))

    def reject(self, oid: int, error: DecodeError | TableError) -> None:
        """Leave out the changes of a table, of which one does not decode, or has no row."""
        self._errors.setdefault(oid, error)
        self._buffered.pop(oid, None)
        self._sizes.pop(oid, None)

    def set_apart(self, letter: Rejected) -> None:
        """Take a dead letter, which is packed with those of the same relation; 0 for no relation.

        The relation has a row, also if it has no other changes.
        """
        self._letters.setdefault(letter.relation_oid or 0, []).append(letter)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, those of a table together."""
        rows: list[_Row] = []
        size = 0
        for oid in sorted(self._buffered):
            size += self._sizes[oid]
            rows += self._rows(oid)
            if size >= _PIECE_BYTES:
                yield _packed(rows)
                rows, size = [], 0
        rows += [self._row(oid) for oid in {**self._errors, **self._letters} if oid in self._tables]
        if rows:
            yield _packed(rows)
        if self._letters:
            yield self._letter_rows()

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Yield a row without changes of each table."""
        if self._tables:
            yield _packed([self._row(oid) for oid in self._tables])

    def _rows(self, oid: int) -> list[_Row]:
        """Return the rows of the buffered records of a table: one, or pieces if it is large."""
        batches, size = self._buffered.pop(oid), self._sizes.pop(oid)
        records = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        rows = max(1, -(-len(records) // max(1, size // _PIECE_BYTES)))
        starts = range(0, len(records), rows)
        return [self._row(oid, records.slice(start, rows)) for start in starts]

    def _row(self, oid: int, records: pa.RecordBatch | None = None) -> _Row:
        table = self._tables[oid]
        if oid not in self._schemas:
            self._schemas[oid] = table.rows.schema.serialize()
        error = self._errors.get(oid)
        text = None if error is None else str(error)
        return _packed_row(oid, table.name, self._schemas[oid], records, text)

    def _letter_rows(self) -> pa.RecordBatch:
        """Return a row for the dead letters of each relation."""
        names = {oid: table.name for oid, table in self._tables.items()}
        schema = SPARK_LETTERS.serialize()
        rows = []
        for oid, letters in self._letters.items():
            records = cast_batch(to_arrow(letters, names).columns, SPARK_LETTERS)
            rows.append(_packed_row(oid, LETTERS, schema, records))
        return _packed(rows)


def unpack(packed: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the record batches in the column ``data`` of packed rows of one table."""
    for batch in packed:
        for value in batch.column("data"):
            message = value.as_buffer()
            if message is not None and message.size:
                yield pa.ipc.read_record_batch(message, schema)


def _packed_row(
    oid: int,
    name: str,
    schema: pa.Buffer,
    records: pa.RecordBatch | None,
    error: str | None = None,
) -> _Row:
    """Return a row with records as one message of Arrow IPC, compressed."""
    data: pa.Buffer | bytes = b""
    if records is not None:
        file = pa.BufferOutputStream()
        pa.ipc.new_stream(file, records.schema, options=_COMPRESSED).write(records)
        data = file.getvalue()[schema.size :]
    return _Row(oid, name, len(records or ()), len(data), error, schema, data)


def _packed(rows: list[_Row]) -> pa.RecordBatch:
    *columns, schemas, data = zip(*rows, strict=True)
    arrays = [pa.array(values, PACKED.field(place).type) for place, values in enumerate(columns)]
    return pa.RecordBatch.from_arrays([*arrays, _binary(schemas), _binary(data)], schema=PACKED)


def _binary(values: Sequence[pa.Buffer | bytes]) -> pa.BinaryArray:
    """Return values as an array, without a copy if there is one."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = values[0] if len(values) == 1 else b"".join(values)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
