"""Tasks of a merge: facts about a batch of changes, then data files and deleted rows."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.changes.table_schema import cast_array
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.change_split import ChangeSplit, moved_keys
from pgwire_codec.lake.comparison import Mask, Numbers
from pgwire_codec.lake.data_files import FileLayout, write_data_files
from pgwire_codec.lake.fold import key_events, places_of
from pgwire_codec.lake.merge import TableMerge, merge_events
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.task_errors import error_of
from pgwire_codec.lake.tasks import MergeOutcome, Place, write_merge
from pgwire_codec.spark.tasks import (
    Batches,
    compressed,
    decompressed,
    map_in_arrow,
    result_batch,
    results_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET_ROWS: Final = 1 << 17  # changes that one task merges

_ERROR: Final = -1  # bucket of an error, which is that of no changes

_UNKNOWN: Final = -1  # OID in place of an unknown relation

#: Types of the metadata that a merge needs.
_METADATA: Final = {
    "_op": pa.string(),
    "_commit_lsn": pa.int64(),
    "_seq": pa.int64(),
    "_unchanged": pa.list_(pa.field("element", pa.string())),
}


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """Columns of numbered changes, and of their table in the types of the target. Picklable."""

    columns: ChangeColumns
    schema: pa.Schema

    @property
    def has_old_keys(self) -> bool:
        """True if changes of keys can be detected."""
        return bool(self.columns.keys and self.columns.before)

    def changes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes in these types, with the columns that they have of all."""
        present = set(batch.schema.names)
        kinds = {f"c{number}": column.type for number, column in enumerate(self.schema)}
        wanted = {name: kind for name, kind in (kinds | _METADATA).items() if name in present}
        result = {name: cast_array(batch.column(name), kind) for name, kind in wanted.items()}
        if "_before" in present:
            before = batch.column("_before")
            # Fields of columns that were left out of the changes have other names.
            names = [member.name for member in before.type if member.name in kinds]
            members = [cast_array(before.field(name), kinds[name]) for name in names]
            if names:
                result["_before"] = pa.StructArray.from_arrays(
                    members, names=names, mask=before.is_null()
                )
        return pa.RecordBatch.from_pydict(result)


@dataclass(slots=True)
class MergeFacts:
    """Facts about the changes of a relation."""

    relation: int | None  # OID, if that is known
    after: int  # commit LSN up to which the target has its changes; -1 for none
    newest: Place
    truncated: Place | None = None
    #: Number of changes that the target does not have, and whether these are inserts.
    rows: int = 0
    has_inserts_only: bool = True
    #: Keys of their updates that changed a key and did not send all values.
    moved: list[pa.Table] = field(default_factory=list)

    def join(self, other: MergeFacts) -> None:
        """Take over the facts about other changes of the relation."""
        self.newest = max(self.newest, other.newest)
        places = [place for place in (self.truncated, other.truncated) if place is not None]
        self.truncated = max(places, default=None)
        self.rows += other.rows
        self.has_inserts_only &= other.has_inserts_only
        self.moved += other.moved

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return those changes that the target does not have, after the last truncate."""
        lsn, seq = places_of(batch)
        chosen: Mask = (lsn > self.after) & (batch.column("_op").to_numpy(False) != "T")
        if self.truncated is not None:
            last_lsn, last_seq = self.truncated
            chosen &= (lsn > last_lsn) | ((lsn == last_lsn) & (seq > last_seq))
        if self.relation is not None:
            chosen &= _relations(batch) == self.relation
        return batch if chosen.all() else batch.filter(pa.array(chosen))


def merge_facts(rows: DataFrame, form: ChangeForm, position: Position) -> MergeFacts | None:
    """Return the facts about the relation that changed last; None without changes.

    ``rows`` are numbered changes, and ``position`` is the target's.
    """
    names = ["_op", "_commit_lsn", "_seq", "_unchanged"]
    names += [name for name in (RELATION_OID,) if name in rows.columns]
    selected: list[Any] = [*names, *(f"c{number}" for number in form.columns.keys)]
    if form.has_old_keys:
        selected.append(_old_keys(form))

    def run(batches: Batches) -> Batches:
        yield result_batch(_joined(_facts(batch, form, position) for batch in batches))

    facts = _joined(results_of(rows.select(*selected), run))
    return max(facts, key=lambda each: each.newest, default=None)


def _old_keys(form: ChangeForm) -> Any:
    from pyspark.sql import functions

    before = functions.col("_before")
    keys = (before[f"c{number}"].alias(f"c{number}") for number in form.columns.keys)
    return functions.when(before.isNotNull(), functions.struct(*keys)).alias("_before")


def _joined(parts: Iterable[Iterable[MergeFacts]]) -> list[MergeFacts]:
    """Return the facts about each relation, from those about parts of its changes."""
    facts: dict[int | None, MergeFacts] = {}
    for part in itertools.chain.from_iterable(parts):
        if part.relation in facts:
            facts[part.relation].join(part)
        else:
            facts[part.relation] = part
    return [*facts.values()]


def _facts(batch: pa.RecordBatch, form: ChangeForm, position: Position) -> Iterator[MergeFacts]:
    """Yield the facts about the changes of each relation in a batch."""
    lsn, seq = places_of(batch)
    op = batch.column("_op").to_numpy(zero_copy_only=False)
    oids = _relations(batch)
    for oid in np.unique(oids).tolist():
        rows = np.flatnonzero(oids == oid)
        relation = None if oid == _UNKNOWN else oid
        is_other = None not in (relation, position.relation) and relation != position.relation
        after = -1 if is_other or position.commit_lsn is None else position.commit_lsn
        truncates, new = rows[op[rows] == "T"], rows[lsn[rows] > after]
        facts = MergeFacts(relation, after, _last(lsn[rows], seq[rows]), rows=len(new))
        if len(truncates):
            facts.truncated = _last(lsn[truncates], seq[truncates])
        facts.has_inserts_only = bool((op[new] == "I").all())
        if form.has_old_keys:
            facts.moved = _moved(batch, form, new[op[new] == "U"])
        yield facts


def _relations(batch: pa.RecordBatch) -> Numbers:
    """Return the relation of each change."""
    if RELATION_OID not in batch.schema.names:
        return np.full(len(batch), _UNKNOWN)
    oids: Numbers = batch.column(RELATION_OID).fill_null(_UNKNOWN).to_numpy(zero_copy_only=False)
    return oids


def _last(lsn: Numbers, seq: Numbers) -> Place:
    newest = int(lsn.max())
    return Place(newest, int(seq[lsn == newest].max()))


def _moved(batch: pa.RecordBatch, form: ChangeForm, updates: Numbers) -> list[pa.Table]:
    is_update: Mask = np.zeros(len(batch), np.bool_)
    is_update[updates] = True
    for name in ("_unchanged", "_before"):
        is_update &= batch.column(name).is_valid().to_numpy(zero_copy_only=False)
    if not is_update.any():
        return []
    changes = form.changes(batch.filter(pa.array(is_update)))
    moved = moved_keys(key_events(changes, form.columns), form.columns)
    return [moved] if len(moved) else []


@dataclass(frozen=True)
class MergeWork:
    """Work of the tasks of a merge. Picklable."""

    form: ChangeForm
    facts: MergeFacts
    replaces: bool  # True if the changes replace all rows of the target
    target: TableFiles  # files in which rows are looked up: none if all are replaced
    file_schema: pa.Schema  # columns of new data files
    layout: FileLayout
    kept: pa.Schema  # columns that only the table has, which keep their values
    buckets: int  # number of tasks that merge the changes

    def append(self, rows: DataFrame) -> list[MergeOutcome]:
        """Append the rows of inserts."""
        return results_of(rows.coalesce(self.buckets), self._append)

    def merge(self, rows: DataFrame) -> list[MergeOutcome]:
        """Merge numbered changes."""
        if self.buckets == 1:
            return results_of(rows.coalesce(1), self._merge_all)
        pieces = map_in_arrow(rows, self._split, "bucket int, data binary")
        by_bucket = pieces.repartition(self.buckets, "bucket").sortWithinPartitions("bucket")
        return results_of(by_bucket, self._merge_buckets)

    def _append(self, batches: Batches) -> Batches:
        names, schema = self.form.columns.numbers, self.form.schema
        rows = (
            pa.RecordBatch.from_arrays([changes.column(name) for name in names], schema=schema)
            for changes in self._changes(batches)
        )
        try:
            files = write_data_files(self.target.folder, self.file_schema, rows, self.layout)
        except Exception as error:  # noqa: BLE001  (it is data for the driver)
            yield result_batch(self._failed(error))
            return
        inserted = sum(file.rows for file in files)
        yield result_batch(MergeOutcome(_UNKNOWN, files, inserted=inserted))

    def _merge_all(self, batches: Batches) -> Batches:
        """Merge all changes in this task."""
        yield result_batch(self._outcome(events for _, events in self._events(batches)))

    def _split(self, batches: Batches) -> Batches:
        """Yield pieces of the changes for the tasks that merge them."""
        try:
            for bucket, events in self._events(batches):
                yield _piece(bucket, compressed(events))
        except Exception as error:  # noqa: BLE001  (it is data for the driver)
            yield _piece(_ERROR, pickle.dumps(self._failed(error)))

    def _merge_buckets(self, batches: Batches) -> Batches:
        """Merge pieces, those of a bucket after one another."""
        pieces = itertools.chain.from_iterable(
            zip(batch.column(0).to_pylist(), batch.column(1), strict=True) for batch in batches
        )
        for bucket, of_bucket in itertools.groupby(pieces, itemgetter(0)):
            if bucket == _ERROR:
                for _, outcome in of_bucket:
                    yield pa.record_batch({"data": [outcome.as_py()]})
            else:
                yield result_batch(
                    self._outcome(decompressed(data.as_buffer()) for _, data in of_bucket)
                )

    def _changes(self, batches: Batches) -> Batches:
        """Yield the changes to merge, in the target's types."""
        for batch in batches:
            yield self.form.changes(self.facts.select(batch))

    def _events(self, batches: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
        moved = self.facts.moved
        pinned = pa.concat_tables(moved).drop_columns("_commit_lsn") if moved else None
        split = ChangeSplit(self.form.columns, self.buckets, pinned)
        for changes in self._changes(batches):
            yield from split.add(changes)
        yield from split.finish()

    def _outcome(self, pieces: Iterable[pa.RecordBatch]) -> MergeOutcome:
        def find() -> TableMerge:
            if not (batches := [*pieces]):
                return TableMerge(self.file_schema.empty_table())
            events = pa.concat_batches(batches)
            return merge_events(self.target, events, self.form.columns, self.kept)

        return write_merge(_UNKNOWN, self.target, self.file_schema, self.layout, find)

    def _failed(self, error: Exception) -> MergeOutcome:
        return MergeOutcome(_UNKNOWN, error=error_of(error, self.target.uri))


def _piece(bucket: int, data: bytes) -> pa.RecordBatch:
    return pa.record_batch({"bucket": pa.array([bucket], pa.int32()), "data": [data]})
