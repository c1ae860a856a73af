"""Packed rows: changes of many tables, each row a run of one table's changes in Arrow's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


class _Run(NamedTuple):
    """Content of a packed row."""

    relation_oid: int
    relation: str
    schema: pa.Buffer
    records: pa.RecordBatch | None = None
    error: str | None = None


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
        self._errors: dict[int, DecodeError | TableError] = {}
        self._letters: dict[int, list[Rejected]] = {}
        self._schemas: dict[int, pa.Buffer] = {}

    def add(self, oid: int, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take records of a table; yield the rows that are complete."""
        if oid in self._errors:
            return
        buffered = self._buffered.setdefault(oid, _Buffered())
        buffered.batches.append(records)
        buffered.size += records.nbytes
        if buffered.size >= _PIECE_BYTES:
            del self._buffered[oid]
            yield _packed([self._run(oid, piece) for piece in _pieces(buffered)])

    def reject(self, oid: int, error: DecodeError | TableError) -> None:
        """Leave out the changes of a table, of which one does not decode, or has no row."""
        self._errors.setdefault(oid, error)
        self._buffered.pop(oid, None)

    def set_apart(self, letter: Rejected) -> None:
        """Take a dead letter, which is packed with those of the same relation; 0 for no relation.

        The relation has a row, also if it has no other changes.
        """
        self._letters.setdefault(letter.relation_oid or 0, []).append(letter)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, those of a table together."""
        runs: list[_Run] = []
        size = 0
        for oid, buffered in sorted(self._buffered.items()):
            runs += [self._run(oid, piece) for piece in _pieces(buffered)]
            size += buffered.size
            if size >= _PIECE_BYTES:
                yield _packed(runs)
                runs, size = [], 0
        self._buffered.clear()
        runs += [self._run(oid) for oid in {**self._errors, **self._letters} if oid in self._tables]
        if runs:
            yield _packed(runs)
        if self._letters:
            yield self._letter_rows()

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Yield a row without changes of each table."""
        if self._tables:
            yield _packed([self._run(oid) for oid in self._tables])

    def _run(self, oid: int, records: pa.RecordBatch | None = None) -> _Run:
        table = self._tables[oid]
        if oid not in self._schemas:
            self._schemas[oid] = table.rows.schema.serialize()
        error = self._errors.get(oid)
        text = None if error is None else str(error)
        return _Run(oid, table.name, self._schemas[oid], records, text)

    def _letter_rows(self) -> pa.RecordBatch:
        """Return a row for the dead letters of each relation."""
        names = {oid: table.name for oid, table in self._tables.items()}
        schema = SPARK_LETTERS.serialize()
        return _packed(
            [
                _Run(oid, LETTERS, schema, cast_batch(to_arrow(each, names).columns, SPARK_LETTERS))
                for oid, each in self._letters.items()
            ]
        )


def unpack(packed: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the record batches in the column ``data`` of packed rows of one table."""
    for batch in packed:
        for value in batch.column("data"):
            message = value.as_buffer()
            if message is not None and message.size:
                yield pa.ipc.read_record_batch(message, schema)


def _packed(runs: Sequence[_Run]) -> pa.RecordBatch:
    """Return runs as packed rows."""
    data = [b"" if run.records is None else _message(run.records) for run in runs]
    arrays = [
        pa.array([run.relation_oid for run in runs], pa.int64()),
        pa.array([run.relation for run in runs], pa.string()),
        pa.array([len(run.records or ()) for run in runs], pa.int64()),
        pa.array([len(each) for each in data], pa.int64()),
        pa.array([run.error for run in runs], pa.string()),
        _binary([run.schema for run in runs]),
        _binary(data),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKED)


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
