"""Packed rows: changes of many tables, each row a run of one table's changes in Arrow's format.

With a place for staged files, larger runs are in these, and their packed rows name the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pgwire_codec._impl import decode_message, encode_message
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.metadata import metadata_names
from pgwire_codec.errors import DecodeError, Rejected, TableError
from pgwire_codec.lake.identity import has_other_identity
from pgwire_codec.log.dead_letters import DEAD_LETTERS, to_arrow
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.formats.staged import StagedFiles, Staging, fits_parquet

#: In the exact form that Spark uses.
PACKED: Final = spark_arrow_schema(
    pa.schema(
        {
            "relation_oid": pa.int64(),
            "relation": pa.string(),
            "rows": pa.int64(),
            "bytes": pa.int64(),
            "inserts": pa.int64(),
            "last_lsn": pa.int64(),
            "last_time": pa.int64(),
            "truncated": pa.string(),
            "has_unsent": pa.bool_(),
            "other_identity": pa.bool_(),
            "error": pa.string(),
            "folder": pa.string(),
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

#: Size of a group of rows in a staged file. A smaller file costs more than packed rows do.
_GROUP_BYTES: Final = 8 << 20
_MIN_FILE_BYTES: Final = 1 << 20

#: Spark copies packed rows several times, which costs more than LZ4 does.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


_INSERT: Final = ord("I")
_TRUNCATE: Final = ord("T")

#: In place of a table's name, in packed rows of dead letters. No table has this name.
LETTERS: Final = ""

_RELATION: Final = b"pgwire_codec.relation"
_RANGE: Final = b"pgwire_codec.range"


@dataclass(frozen=True, slots=True)
class TableRange:
    """Range of a log of which packed rows have all changes of a table.

    Attributes
    ----------
    relation : Relation
        The table as of the end of the range.
    after, until : int
        Commit LSNs: the changes have ``after < commit_lsn <= until``.
    """

    relation: Relation
    after: int
    until: int

    def metadata(self) -> dict[bytes, bytes]:
        """Return it as metadata of a schema."""
        return {
            _RELATION: encode_message(self.relation),
            _RANGE: f"{self.after} {self.until}".encode(),
        }

    @classmethod
    def of(cls, schema: pa.Schema) -> TableRange:
        """Return the range in a schema of packed rows."""
        after, until = schema.metadata[_RANGE].split()
        relation: Any = decode_message(schema.metadata[_RELATION])
        return cls(relation, int(after), int(until))


@dataclass(frozen=True, slots=True)
class PackedTable:
    """A table of packed rows.

    Attributes
    ----------
    name : str
        ``schema.table``, at the end of the range.
    rows : RowFormat
        Format of its rows.
    range : TableRange
        Range whose changes are packed.
    """

    name: str
    rows: RowFormat
    range: TableRange


@dataclass(slots=True)
class ChangeFacts:
    """Facts about changes of a table.

    Attributes
    ----------
    inserts : int
        Number of inserts.
    last_lsn : int
        Commit LSN of the last transaction; -1 without changes.
    last_time : int
        Its commit time in microseconds since 1970.
    truncated : tuple of int or None
        Commit LSN and number of the last truncate.
    has_unsent : bool
        Whether updates left values unsent (unchanged TOAST).
    other_identity : bool
        Whether updates or deletes were sent with another replica identity than the table has at the
        end of the range.
    """

    inserts: int = 0
    last_lsn: int = -1
    last_time: int = 0
    truncated: tuple[int, int] | None = None
    has_unsent: bool = False
    other_identity: bool = False

    def add(self, batch: ChangeBatch, records: pa.RecordBatch, relation: Relation) -> None:
        """Take over the facts about a batch of a table, which is ``relation`` at the end."""
        self.other_identity |= has_other_identity(batch, relation)
        self.inserts += int(np.count_nonzero(batch.op == _INSERT))
        unchanged = metadata_names(records.schema.names).get("_unchanged")
        self.has_unsent |= unchanged is None or records.column(unchanged).null_count < len(records)
        for row in np.flatnonzero(batch.op == _TRUNCATE):
            place = int(batch.commit_lsn[row]), int(batch.seq[row])
            self.truncated = max(place, self.truncated or place)
        lsn = batch.commit_lsn
        last = int(lsn.argmax())
        if int(lsn[last]) > self.last_lsn:
            self.last_lsn = int(lsn[last])
            self.last_time = int(batch.commit_time[last].astype(np.int64))


@dataclass(slots=True)
class _Buffered:
    """Record batches of a table that are not packed yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0


class Packer:
    """Packs record batches of tables, by OID, into rows of about the same size."""

    def __init__(self, tables: Mapping[int, PackedTable], staging: Staging | None = None) -> None:
        self._tables = tables
        self._buffered: dict[int, _Buffered] = {}
        self._facts: dict[int, ChangeFacts] = {}  # about changes that no row has yet
        self._errors: dict[int, DecodeError | TableError] = {}
        self._letters: dict[int, list[Rejected]] = {}
        self._schemas: dict[int, pa.Buffer] = {}
        self._folder = None if staging is None else staging.folder
        self._files = None if staging is None else StagedFiles(staging)
        self._fitting = set()
        if staging is not None:
            self._fitting = {oid for oid in tables if fits_parquet(tables[oid].rows.schema)}

    def add(self, batch: ChangeBatch, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch of a table's changes and their records; yield the rows that are complete."""
        oid = batch.relation.oid
        if oid in self._errors:
            return
        relation = self._tables[oid].range.relation
        self._facts.setdefault(oid, ChangeFacts()).add(batch, records, relation)
        buffered = self._buffered.setdefault(oid, _Buffered())
        buffered.batches.append(records)
        buffered.size += records.nbytes
        if buffered.size < (_GROUP_BYTES if oid in self._fitting else _PIECE_BYTES):
            return
        del self._buffered[oid]
        if oid in self._fitting:
            self._stage(oid, buffered)
        else:
            yield self._rows([(oid, piece) for piece in _pieces(buffered)])

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
        """Yield the remaining rows, those of a table together, when staged files are complete."""
        run: list[tuple[int, pa.RecordBatch | int | None]] = []
        size = 0
        for oid, buffered in sorted(self._buffered.items()):
            if self._is_staged(oid, buffered.size):
                self._stage(oid, buffered)
                continue
            run += [(oid, piece) for piece in _pieces(buffered)]
            size += buffered.size
            if size >= _PIECE_BYTES:
                yield self._rows(run)
                run, size = [], 0
        self._buffered.clear()
        if self._files is not None:
            self._files.close()
            run += self._files.rows.items()
        run += [(oid, None) for oid in {**self._errors, **self._letters} if oid in self._tables]
        if run:
            yield self._rows(run)
        if self._letters:
            yield self._letter_rows()

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Yield a row without changes of each table."""
        if self._tables:
            yield self._rows([(oid, None) for oid in self._tables])

    def _is_staged(self, oid: int, size: int) -> bool:
        """Return whether a table's last records of some size belong into its file."""
        if self._files is None or oid not in self._fitting:
            return False
        return oid in self._files or size >= _MIN_FILE_BYTES

    def _stage(self, oid: int, buffered: _Buffered) -> None:
        assert self._files is not None
        self._files.write(oid, pa.Table.from_batches(buffered.batches))

    def _rows(self, pieces: list[tuple[int, pa.RecordBatch | int | None]]) -> pa.RecordBatch:
        """Return rows: of records, of a number of rows in a file, or without changes."""
        data = [_message(each) if isinstance(each, pa.RecordBatch) else b"" for _, each in pieces]
        # Those of all changes until now: sums and maximums of the rows are right.
        facts = [self._facts.pop(oid, ChangeFacts()) for oid, _ in pieces]
        folders = [self._folder if isinstance(each, int) else None for _, each in pieces]
        arrays = [
            pa.array([oid for oid, _ in pieces], pa.int64()),
            pa.array([self._tables[oid].name for oid, _ in pieces], pa.string()),
            pa.array([_count(each) for _, each in pieces], pa.int64()),
            pa.array([len(each) for each in data], pa.int64()),
            pa.array([each.inserts for each in facts], pa.int64()),
            pa.array([each.last_lsn for each in facts], pa.int64()),
            pa.array([each.last_time for each in facts], pa.int64()),
            pa.array([_in_order(each.truncated) for each in facts], pa.string()),
            pa.array([each.has_unsent for each in facts], pa.bool_()),
            pa.array([each.other_identity for each in facts], pa.bool_()),
            pa.array([self._error(oid) for oid, _ in pieces], pa.string()),
            pa.array(folders, pa.string()),
            _binary([self._schema(oid) for oid, _ in pieces]),
            _binary(data),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PACKED)

    def _letter_rows(self) -> pa.RecordBatch:
        """Return a row for the dead letters of each relation."""
        names = {oid: table.name for oid, table in self._tables.items()}
        schema = SPARK_LETTERS.serialize().to_pybytes()
        rows = []
        for oid, letters in self._letters.items():
            data = _message(cast_batch(to_arrow(letters, names).columns, SPARK_LETTERS))
            rows.append(
                {
                    "relation_oid": oid,
                    "relation": LETTERS,
                    "rows": len(letters),
                    "bytes": len(data),
                    "inserts": 0,
                    "last_lsn": -1,
                    "last_time": 0,
                    "has_unsent": False,
                    "other_identity": False,
                    "schema": schema,
                    "data": data.to_pybytes(),
                }
            )
        return pa.RecordBatch.from_pylist(rows, schema=PACKED)

    def _error(self, oid: int) -> str | None:
        error = self._errors.get(oid)
        return None if error is None else str(error)

    def _schema(self, oid: int) -> pa.Buffer:
        if oid not in self._schemas:
            table = self._tables[oid]
            self._schemas[oid] = table.rows.schema.with_metadata(table.range.metadata()).serialize()
        return self._schemas[oid]


def unpack(packed: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the record batches in the column ``data`` of packed rows of one table."""
    for batch in packed:
        for value in batch.column("data"):
            message = value.as_buffer()
            if message is not None and message.size:
                yield pa.ipc.read_record_batch(message, schema)


def _in_order(place: tuple[int, int] | None) -> str | None:
    """Return a place as text, whose order is that of the places."""
    return None if place is None else f"{place[0]:016x} {place[1]:016x}"


def place_of(text: str | None) -> tuple[int, int] | None:
    """Return the place in the column ``truncated``."""
    if text is None:
        return None
    lsn, seq = text.split()
    return int(lsn, 16), int(seq, 16)


def _count(piece: pa.RecordBatch | int | None) -> int:
    if piece is None or isinstance(piece, int):
        return piece or 0
    return len(piece)


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
