"""Keys of the rows that a range of the log changes, and changes of the server that it lacks."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.identity import column_names, key_columns
from pgwire_codec.changes.table_schema import TableSchema, table_schema, to_record_batch
from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.lake.comparison import Mask, mask_of
from pgwire_codec.lake.row_hashes import Hashes
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.unsent_values import missing_values, replaced
from pgwire_codec.log import Log, LogSource
from pgwire_codec.log.partition import LogPartition
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import quote_identifier
from pgwire_codec.transactions.carry import RelationVersion

#: Number of messages that are looked at: a server keeps their text meanwhile.
_MOST: Final = 100_000

#: Begin and Truncate as they are, and of other messages the first bytes, with the relation.
_PEEK: Final = """
    SELECT CASE WHEN get_byte(data, 0) IN (66, 84) THEN data ELSE substring(data, 1, 5) END
    FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version', '1',
                                             'publication_names', %s)
"""

_NO_KEYS: Final = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of a table that a range of the log changes."""

    last_lsn: int  # commit LSN of the last transaction that changes some; 0 without one
    keys: Hashes | None  # hashes of their keys, before and after; None if all rows may change

    def explain(self, keys: Hashes) -> Mask:
        """Return which keys are those of changed rows."""
        if self.keys is None:
            return np.ones(len(keys), np.bool_)
        explained: Mask = np.isin(keys, self.keys)
        return explained

    @classmethod
    def join(cls, parts: Iterable[ChangedRows]) -> ChangedRows:
        """Return the changed rows of all parts of a range."""
        last, keys, is_known = 0, [_NO_KEYS], True
        for part in parts:
            last = max(last, part.last_lsn)
            if part.keys is None:
                is_known = False
            else:
                keys.append(part.keys)
        return cls(last, np.unique(np.concatenate(keys)) if is_known else None)


def changed_rows(
    runner: Runner,
    log: Log,
    history: RelationHistory,
    oid: int,
    after: int,
    until: int,
    columns: ComparedColumns | None,
    options: DecoderOptions,
) -> ChangedRows:
    """Return the rows of a relation that change in a range of commit LSNs.

    Without ``columns``, all rows may change if one does.
    """
    until = min(until, log.end.lsn)
    if until <= after or oid not in log.relations_at(until).relations:
        return ChangedRows(0, _NO_KEYS)
    versions = [part.version for part in history.between(oid, after, until)]
    schema = None
    if columns is not None and _have_old_keys([each.relation for each in versions], columns):
        schema = _key_schema(versions, columns, log, options)
    plan = log.plan(after, until, relation_oid=oid, on_error=options.on_error)
    size = sum(extent.length for partition in plan.partitions for extent in partition.extents)
    task = _ChangedKeys(oid, columns, schema, options)
    return ChangedRows.join(runner.map(task, plan.partitions, size))


@dataclass(frozen=True, slots=True)
class _ChangedKeys:
    """Task that decodes the keys of the changes of a relation. Picklable."""

    relation_oid: int
    columns: ComparedColumns | None
    schema: TableSchema | None  # of the keys; None if all rows may change
    options: DecoderOptions

    def __call__(self, partition: LogPartition) -> ChangedRows:
        letters: list[Rejected] = []
        parts: list[ChangedRows] = []
        is_known = self.schema is not None
        for batch in partition.decode(self.options, letters):
            if batch.relation.oid != self.relation_oid:
                continue
            keys = None
            is_known &= not (batch.op == ord("T")).any()
            if self.schema is not None and is_known:
                try:
                    keys = np.concatenate([*self._keys(batch, self.schema)])
                except DecodeError as error:
                    raise partition.placed(error, batch) from None
            parts.append(ChangedRows(int(batch.commit_lsn.max()), keys))
        for letter in letters:  # of another relation, it does not matter here
            if letter.relation_oid in (None, self.relation_oid):
                raise partition.error(letter)
        return ChangedRows.join(parts)

    def _keys(self, batch: ChangeBatch, schema: TableSchema) -> Iterator[Hashes]:
        """Yield the hashes of the old and new keys."""
        assert self.columns is not None
        rows = to_record_batch(batch, schema)
        keys = {name: rows.column(name) for name in self.columns.keys}
        before = schema.metadata.get("_before")
        if before is not None:
            old_rows = rows.column(before)
            old_keys = {name: pc.struct_field(old_rows, name) for name in keys}
            unsent = missing_values(rows.column(schema.metadata["_unchanged"]), list(keys))
            for number, name in enumerate(keys):
                if number in unsent:  # the old row has it
                    keys[name] = replaced(keys[name], old_keys[name], unsent[number])
            has_old = pa.array(np.flatnonzero(mask_of(old_rows.is_valid())))
            yield self.columns.key_hashes(
                {name: column.take(has_old) for name, column in old_keys.items()}
            )
        yield self.columns.key_hashes(keys)


def _key_schema(
    versions: Sequence[RelationVersion], columns: ComparedColumns, log: Log, options: DecoderOptions
) -> TableSchema:
    schema = table_schema(
        versions[-1],
        versions,
        options.type_options,
        log.registry,
        before=options.before,
        invalid=False,
        columns=columns.keys,
    )
    return columns.with_texts(schema)


def _have_old_keys(versions: Sequence[Relation], columns: ComparedColumns) -> bool:
    """Return whether each change of a row's key has the key that the target has.

    A change has old values of the replica identity only. If whole rows are the keys, those of the
    target have the columns of the first version, and old rows of later changes have other ones.
    """
    if not columns.has_keys and len({version.columns for version in versions}) > 1:
        return False
    if len({_has_inserts_only(version) for version in versions}) > 1:
        return False
    keys = set(columns.keys)
    return all(keys <= set(key_columns(each) or column_names(each)) for each in versions)


def _has_inserts_only(version: Relation) -> bool:
    """Return whether rows have no identity, so that the server refuses to change them."""
    return version.replica_identity != "f" and key_columns(version) is None


def unlogged_relations(
    dsn: str, source: LogSource, publications: Sequence[str], after: int, until: int
) -> frozenset[int] | None:
    """Return the OIDs of the relations that a server changed in a range of LSNs.

    The slot of the log decodes the range, and stays where it is. None: it is in use by a capture,
    or has so many changes that they are not all looked at. The result is empty if the slot cannot
    be read.
    """
    psycopg2 = load_psycopg2()
    names = ",".join(map(quote_identifier, publications))
    with closing(connect(dsn)) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(_PEEK, (source.slot, format_lsn(until), _MOST, names))
        except psycopg2.errors.ObjectInUse:
            return None
        except psycopg2.Error:
            return frozenset()
        if cursor.rowcount >= _MOST:
            return None
        return changed_relations((bytes(data) for (data,) in cursor), after)


def changed_relations(messages: Iterable[bytes], after: int) -> frozenset[int] | None:
    """Return the OIDs of the relations that transactions change whose commit LSN is after one.

    Messages are those of protocol version 1 outside of streams; only the first five bytes of an
    Insert, Update or Delete are needed. None: a prepared transaction commits, whose changes came
    before.
    """
    oids: set[int] = set()
    is_after = False
    for message in messages:
        kind = message[:1]
        if kind == b"B":
            (commit_lsn,) = struct.unpack_from(">Q", message, 1)
            is_after = commit_lsn > after
        elif kind == b"b":
            is_after = False
        elif kind == b"K":
            return None
        elif kind == b"T" and is_after:
            (count,) = struct.unpack_from(">I", message, 1)
            oids.update(struct.unpack_from(f">{count}I", message, 6))
        elif kind in (b"I", b"U", b"D") and is_after:
            oids.update(struct.unpack_from(">I", message, 1))
    return frozenset(oids)
