"""Tasks of a mirror: work on a part of the log, or on a part of a table's changes.

Tasks run in any process. Their arguments and results are picklable and small, except the changes
that go from one task to another.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError, PgwireError, Rejected
from pgwire_codec.lake.change_split import ChangeSplit
from pgwire_codec.lake.data_files import DataFilesWriter, FileLayout, NewFile, write_data_files
from pgwire_codec.lake.merge import TableMerge, merge_events
from pgwire_codec.lake.row_form import RowForm
from pgwire_codec.lake.runners.runner import BucketKey, Piece
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.task_errors import error_of
from pgwire_codec.lake.vectors import bitmap, deserialize, serialize
from pgwire_codec.log.dead_letters import to_arrow
from pgwire_codec.log.partition import LogPartition
from pgwire_codec.options import DecoderOptions

if TYPE_CHECKING:
    from pyroaring import BitMap64

#: Bytes of rows that a task keeps in memory for the files that it writes.
_BUFFERED_BYTES: Final = 128 << 20

_TRUNCATED: Final = b"pgwire_codec.truncated"
_TRUNCATE: Final = ord("T")


class Place(NamedTuple):
    """Place of a change in the total order."""

    commit_lsn: int
    seq: int


@dataclass(frozen=True, slots=True)
class TableWork:
    """Work on a table, as tasks need it. Picklable."""

    form: RowForm
    file_schema: pa.Schema  # columns of new data files
    target: TableFiles  # files in which rows are looked up: none if all are replaced
    layout: FileLayout = field(default_factory=FileLayout)  # paths of new data files
    appends: bool = False  # whether changes are appended as they are
    buckets: int = 1  # number of tasks that merge its changes
    pinned: pa.Table | None = None  # keys whose changes are all in the first bucket

    def without_files(self) -> TableWork:
        """Return the work of tasks that look nothing up."""
        return replace(self, target=replace(self.target, files=()))


@dataclass(slots=True)
class ChangeFacts:
    """Facts about a table's changes in a partition of the log, or in several."""

    relation_oid: int
    rows: int = 0  # number of changes
    first_lsn: int = -1  # lowest commit LSN; -1 without changes
    last_lsn: int = -1  # highest commit LSN
    last_time: int = 0  # commit time of the last one in microseconds since 1970
    truncated: Place | None = None  # the last truncate
    #: Data files with the rows that were appended.
    files: list[NewFile] = field(default_factory=list)
    error: PgwireError | None = None  # the table's changes cannot be applied
    moved: list[pa.Table] = field(default_factory=list)  # see moved_keys()
    letters: pa.RecordBatch | None = None  # messages that do not decode

    def add(self, batch: ChangeBatch) -> None:
        """Take over the facts about a batch."""
        lsn = batch.commit_lsn
        self.rows += len(batch)
        first, last = int(lsn.min()), int(lsn.argmax())
        self.first_lsn = first if self.first_lsn < 0 else min(first, self.first_lsn)
        if int(lsn[last]) > self.last_lsn:
            self.last_lsn = int(lsn[last])
            self.last_time = int(batch.commit_time[last].astype(np.int64))
        for row in np.flatnonzero(batch.op == _TRUNCATE):
            place = Place(int(lsn[row]), int(batch.seq[row]))
            self.truncated = max(place, self.truncated or place)

    def join(self, other: ChangeFacts) -> None:
        """Take over the facts about another partition."""
        self.rows += other.rows
        lsns = [lsn for lsn in (self.first_lsn, other.first_lsn) if lsn >= 0]
        self.first_lsn = min(lsns, default=-1)
        if other.last_lsn > self.last_lsn:
            self.last_lsn, self.last_time = other.last_lsn, other.last_time
        places = [place for place in (self.truncated, other.truncated) if place is not None]
        self.truncated = max(places, default=None)
        self.files += other.files
        self.error = self.error or other.error
        self.moved += other.moved
        letters = [each for each in (self.letters, other.letters) if each is not None]
        self.letters = pa.concat_batches(letters) if letters else None


@dataclass(frozen=True)
class DecodeTask:
    """Decodes a partition of the log: appends the rows of some tables, and splits the changes."""

    tables: Mapping[int, TableWork]  # by the relation's OID
    options: DecoderOptions
    #: Names of relations for dead letters; empty if such a message is an error of its table.
    names: Mapping[int, str]

    def __call__(self, partition: LogPartition) -> Iterator[Piece | ChangeFacts]:
        """Yield pieces, then the facts about each table."""
        parts: dict[int, _TablePart] = {}
        letters: list[Rejected] = []
        try:
            for batch in partition.decode(self.options, letters):
                oid = batch.relation.oid
                if oid not in self.tables:
                    continue
                part = self._part(parts, oid)
                if part.facts.error is None:
                    yield from part.add(batch, partition)
                writers = [each.writer for each in parts.values() if each.writer is not None]
                if sum(writer.buffered_bytes for writer in writers) > _BUFFERED_BYTES:
                    max(writers, key=lambda writer: writer.buffered_bytes).flush()
            self._add_letters(partition, letters, parts)
            for part in parts.values():
                yield from part.finish()
        except BaseException:
            for part in parts.values():
                part.discard()
            raise

    def _part(self, parts: dict[int, _TablePart], oid: int) -> _TablePart:
        if oid not in parts:
            parts[oid] = _TablePart(self.tables.get(oid), oid)
        return parts[oid]

    def _add_letters(
        self, partition: LogPartition, letters: Sequence[Rejected], parts: dict[int, _TablePart]
    ) -> None:
        """Take messages that do not decode into account: as letters, or as errors."""
        by_oid: dict[int, list[Rejected]] = {}
        for letter in letters:
            by_oid.setdefault(letter.relation_oid or 0, []).append(letter)
        for oid, rejected in by_oid.items():
            if self.names:
                self._part(parts, oid).facts.letters = to_arrow(rejected, self.names)
            elif self.options.on_error == "raise" and oid in self.tables:
                self._part(parts, oid).fail(partition.error(rejected[0]))
            elif self.options.on_error == "raise" and not oid:
                raise partition.error(rejected[0])


class _TablePart:
    """Changes of a table in a partition."""

    def __init__(self, work: TableWork | None, oid: int) -> None:
        self.facts = ChangeFacts(oid)
        self._work = work
        self.writer: DataFilesWriter | None = None
        self._split: ChangeSplit | None = None
        if work is not None and work.appends:
            self.writer = DataFilesWriter(work.target.folder, work.file_schema, work.layout)
        elif work is not None:
            self._split = ChangeSplit(work.form.change_columns, work.buckets, work.pinned)

    def add(self, batch: ChangeBatch, partition: LogPartition) -> Iterator[Piece]:
        """Take changes; yield the pieces that are complete."""
        work = self._work
        assert work is not None
        self.facts.add(batch)
        try:
            if self.writer is not None:
                self.writer.add(work.form.rows(batch))
            elif self._split is not None:
                changes = work.form.changes(batch)
                truncates = batch.op == _TRUNCATE
                if truncates.any():
                    changes = changes.filter(pa.array(~truncates))
                yield from map(self._piece, self._split.add(changes))
        except DecodeError as error:
            self.fail(partition.placed(error, batch))
        except Exception as error:  # noqa: BLE001  (the other tables go on)
            self.fail(error_of(error, work.target.uri))

    def fail(self, error: PgwireError) -> None:
        """Leave out the table's changes."""
        self.facts.error = self.facts.error or error
        self.discard()

    def finish(self) -> Iterator[Piece | ChangeFacts]:
        """Yield the remaining pieces, and the facts."""
        if self.writer is not None:
            try:
                self.facts.files += self.writer.finish()
            except OSError as error:
                self.fail(error_of(error, self._work.target.uri if self._work else ""))
        if self._split is not None:
            yield from map(self._piece, self._split.finish())
            self.facts.moved += self._split.moved
        work, truncated = self._work, self.facts.truncated
        if work is not None and truncated is not None and not work.appends:
            schema = pa.schema([], {_TRUNCATED: b"%d %d" % truncated})
            for bucket in range(work.buckets):
                key = BucketKey(self.facts.relation_oid, bucket)
                yield Piece(key, pa.record_batch([], schema))
        yield self.facts

    def discard(self) -> None:
        """Remove the file that is being written, and forget the remaining pieces."""
        if self.writer is not None:
            self.writer.discard()
            self.writer = None
        self._split = None

    def _piece(self, split: tuple[int, pa.RecordBatch]) -> Piece:
        bucket, events = split
        return Piece(BucketKey(self.facts.relation_oid, bucket), events)


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """Result of a task that merges changes."""

    relation_oid: int
    files: list[NewFile] = field(default_factory=list)
    #: Vectors of the rows to delete, by the file's path.
    deleted: dict[str, bytes] = field(default_factory=dict)
    inserted: int = 0  # number of rows, as ``updated`` and ``removed``
    updated: int = 0
    removed: int = 0
    error: PgwireError | None = None  # the table's changes cannot be applied


@dataclass(frozen=True)
class MergeTask:
    """Merges changes of a bucket: folds them, looks rows up, and writes new ones.

    Another process loads the work on a table when it needs it.
    """

    tables: Mapping[int, TableWork]  # by the relation's OID

    def __reduce__(self) -> tuple[object, ...]:
        if isinstance(self.tables, _Works):
            return _unpickled, (self.tables.pickled,)
        return _unpickled, ({oid: pickle.dumps(work) for oid, work in self.tables.items()},)

    def __call__(self, key: BucketKey, pieces: list[pa.RecordBatch]) -> MergeOutcome:
        """Return the outcome; an error of the table is in it. The list is empty then."""
        work = self.tables[key.relation_oid]
        return write_merge(
            key.relation_oid,
            work.target,
            work.file_schema,
            work.layout,
            lambda: _merge(work, pieces),
        )


class _Works(dict[int, TableWork]):
    """Work on tables, from pickles."""

    def __init__(self, pickled: Mapping[int, bytes]) -> None:
        self.pickled = pickled

    def __missing__(self, oid: int) -> TableWork:
        work: TableWork = pickle.loads(self.pickled[oid])
        self[oid] = work
        return work


def _unpickled(pickled: Mapping[int, bytes]) -> MergeTask:
    return MergeTask(_Works(pickled))


def write_merge(
    relation_oid: int,
    target: TableFiles,
    file_schema: pa.Schema,
    layout: FileLayout,
    find: Callable[[], TableMerge],
) -> MergeOutcome:
    """Write the rows that a merge adds; return the outcome, with an error of the table."""
    try:
        merge = find()
        files = write_data_files(target.folder, file_schema, merge.added.to_batches(), layout)
    except Exception as error:  # noqa: BLE001  (the other tables go on)
        return MergeOutcome(relation_oid, error=error_of(error, target.uri))
    return MergeOutcome(
        relation_oid,
        files,
        {path: serialize(vector) for path, vector in merge.deleted.items()},
        merge.inserted,
        merge.updated,
        merge.removed,
    )


def deleted_rows(outcomes: Iterable[MergeOutcome]) -> dict[str, BitMap64]:
    """Return the positions of the rows that several tasks delete, by the file's path."""
    deleted: dict[str, BitMap64] = {}
    for outcome in outcomes:
        for path, data in outcome.deleted.items():
            deleted[path] = deleted.get(path, bitmap(())) | deserialize(data)
    return deleted


def _merge(work: TableWork, pieces: list[pa.RecordBatch]) -> TableMerge:
    columns = work.form.change_columns
    truncated = max((each for each in map(_truncated, pieces) if each is not None), default=None)
    target = work.target if truncated is None else replace(work.target, files=())
    batches = [piece.replace_schema_metadata(None) for piece in pieces if piece.num_rows]
    pieces.clear()
    events = pa.concat_batches(batches) if batches else None
    del batches
    if events is not None and truncated is not None:
        lsn, seq = events.column("_commit_lsn"), events.column("_seq")
        same = pc.and_(pc.equal(lsn, truncated.commit_lsn), pc.greater(seq, truncated.seq))
        events = events.filter(pc.or_(pc.greater(lsn, truncated.commit_lsn), same))
    if events is None or not len(events):
        return TableMerge(work.form.columns.empty_table())
    return merge_events(target, events, columns)


def _truncated(piece: pa.RecordBatch) -> Place | None:
    text = (piece.schema.metadata or {}).get(_TRUNCATED)
    return None if text is None else Place(*map(int, text.split()))
