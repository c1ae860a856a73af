"""Facts about a batch of changes, by which it is merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.lake.change_split import moved_keys
from pgwire_codec.lake.comparison import Mask
from pgwire_codec.lake.fold import key_events
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tasks import Place
from pgwire_codec.spark.reduction.map_in_arrow import Batches
from pgwire_codec.spark.sinks.change_form import ChangeForm
from pgwire_codec.spark.task_results import result_batch, results_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class MergeFacts:
    """Facts about the changes of a relation.

    Attributes
    ----------
    relation : int or None
        Its OID, if that is known.
    newest : Place
        Place of the last change.
    truncated : Place or None
        Place of the last truncate.
    rows : int
        Number of changes that the target does not have.
    has_inserts_only : bool
        Whether these are inserts.
    moved : list of pyarrow.Table
        Keys of their updates that changed a key and did not send all values.
    """

    relation: int | None
    newest: Place
    truncated: Place | None = None
    rows: int = 0
    has_inserts_only: bool = True
    moved: list[pa.Table] = field(default_factory=list)

    def join(self, other: MergeFacts) -> None:
        """Take over the facts about other changes of the relation."""
        self.newest = max(self.newest, other.newest)
        places = [place for place in (self.truncated, other.truncated) if place is not None]
        self.truncated = max(places, default=None)
        self.rows += other.rows
        self.has_inserts_only &= other.has_inserts_only
        self.moved += other.moved


def merge_facts(rows: DataFrame, form: ChangeForm, position: Position) -> MergeFacts | None:
    """Return the facts about the relation that changed last; None without changes.

    ``rows`` are numbered changes, and ``position`` is the target's.
    """
    names = ["_op", "_commit_lsn", "_seq", "_unchanged"]
    names += [name for name in (RELATION_OID,) if name in rows.columns]
    names += [f"c{number}" for number in form.columns.keys]
    selected: list[Any] = list(names)
    if form.columns.keys and form.columns.before:
        selected.append(_old_keys(form))

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        facts: dict[int | None, MergeFacts] = {}
        for batch in batches:
            _join(facts, _facts(batch, form, position))
        yield result_batch(list(facts.values()))

    facts: dict[int | None, MergeFacts] = {}
    for several in results_of(rows.select(*selected), run):
        _join(facts, several)
    return max(facts.values(), key=lambda each: each.newest, default=None)


def _old_keys(form: ChangeForm) -> Any:
    from pyspark.sql import functions

    before = functions.col("_before")
    keys = (before[f"c{number}"].alias(f"c{number}") for number in form.columns.keys)
    return functions.when(before.isNotNull(), functions.struct(*keys)).alias("_before")


def _join(facts: dict[int | None, MergeFacts], others: list[MergeFacts]) -> None:
    for other in others:
        if other.relation in facts:
            facts[other.relation].join(other)
        else:
            facts[other.relation] = other


def _facts(batch: pa.RecordBatch, form: ChangeForm, position: Position) -> list[MergeFacts]:
    """Return the facts about the changes of each relation in a batch."""
    lsn, seq = (batch.column(name).to_numpy() for name in ("_commit_lsn", "_seq"))
    op = batch.column("_op").to_numpy(zero_copy_only=False)
    found = []
    for relation, rows in _by_relation(batch):
        is_other = None not in (relation, position.relation) and relation != position.relation
        after = -1 if is_other or position.commit_lsn is None else position.commit_lsn
        truncates, new = rows[op[rows] == "T"], rows[lsn[rows] > after]
        facts = MergeFacts(relation, _last(lsn[rows], seq[rows]))
        if len(truncates):
            facts.truncated = _last(lsn[truncates], seq[truncates])
        facts.rows = len(new)
        facts.has_inserts_only = bool((op[new] == "I").all())
        if form.columns.keys and form.columns.before:
            facts.moved = _moved(batch, form, new[op[new] == "U"])
        found.append(facts)
    return found


def _by_relation(batch: pa.RecordBatch) -> Iterator[tuple[int | None, Numbers]]:
    """Yield the relations in a batch and the numbers of their rows."""
    if not len(batch):
        return
    if RELATION_OID not in batch.schema.names:
        yield None, np.arange(len(batch))
        return
    oids = batch.column(RELATION_OID).fill_null(-1).to_numpy(zero_copy_only=False)
    for oid in np.unique(oids).tolist():
        yield (None if oid < 0 else oid), np.flatnonzero(oids == oid)


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
