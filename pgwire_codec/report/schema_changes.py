"""Schema changes, found by the Relation versions of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.protocol.messages import RelationColumn
from pgwire_codec.protocol.spec import REPLICA_IDENTITIES
from pgwire_codec.report.findings import SchemaChange, SchemaChanges
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import default_registry

_MAX_KEPT: Final = 100
_CHARACTERS: Final = ("bpchar", "varchar")
_PLAIN_MODIFIER: Final = ("bit", "varbit", "time", "timetz", "timestamp", "timestamptz")


class SchemaTracker:
    """Versions of relations in committed changes, compared in commit order."""

    def __init__(self) -> None:
        self._versions: dict[int, RelationVersion] = {}  # by OID
        self._oids: dict[str, int] = {}  # the last relation of each name
        self._first_seen: dict[str, int] = {}
        self._first: list[SchemaChange] = []
        self._count = 0

    def add(self, batches: Sequence[ChangeBatch]) -> None:
        """Take the batches of one call of the decoder."""
        of_table: dict[int, list[ChangeBatch]] = {}
        for batch in batches:
            of_table.setdefault(batch.relation.oid, []).append(batch)
        runs = [each for found in of_table.values() for each in _runs(found)]
        for lsn, _, time, version in sorted(runs, key=lambda each: each[:2]):
            self._compare(version, lsn, time)

    def changes(self) -> SchemaChanges:
        """Return the changes so far."""
        return SchemaChanges(tuple(self._first), self._count, dict(self._first_seen))

    def _compare(self, version: RelationVersion, lsn: int, time: int) -> None:
        oid, name = version.relation.oid, version.qualified_name
        before = self._versions.get(oid)
        details: list[tuple[str, str]] = []
        if before is None and name in self._oids:
            before = self._versions[self._oids[name]]
            details = [("~", "another table of this name")]
        self._versions[oid] = version
        self._oids[name] = oid
        self._first_seen.setdefault(name, time)
        if before is not None:
            details += differences(before, version)
        if details:
            self._count += 1
            if len(self._first) < _MAX_KEPT:
                self._first.append(SchemaChange(time, lsn, name, tuple(details)))


def differences(before: RelationVersion, after: RelationVersion) -> Iterator[tuple[str, str]]:
    """Yield the differences of two versions, as in :attr:`SchemaChange.details`."""
    if before.qualified_name != after.qualified_name:
        yield "~", f"was {before.qualified_name}"
    old = {each.name: each for each in before.relation.columns}
    new = {each.name: each for each in after.relation.columns}
    for name, column in old.items():
        if name not in new:
            yield "-", f"{name} {_type_name(column, before)}"
    for name, column in new.items():
        if name not in old:
            yield "+", f"{name} {_type_name(column, after)}"
            continue
        types = _type_name(old[name], before), _type_name(column, after)
        if types[0] != types[1]:
            yield "~", f"{name} {types[0]} → {types[1]}"
        if (old[name].flags ^ column.flags) & 1:
            yield "~", f"{name} is {'now' if column.flags & 1 else 'no longer'} part of the key"
    order = [name for name in old if name in new]
    if order != [name for name in new if name in old]:
        yield "~", "the order of columns"
    identities = [
        REPLICA_IDENTITIES.get(letter, letter)
        for letter in (before.relation.replica_identity, after.relation.replica_identity)
    ]
    if identities[0] != identities[1]:
        yield "~", f"replica identity {identities[0]} → {identities[1]}"


def _runs(batches: list[ChangeBatch]) -> Iterator[tuple[int, int, int, RelationVersion]]:
    """Yield the first row of each run of one version among a table's rows in commit order.

    Yields commit LSN, number in the transaction, time and version.
    """
    lsn = np.concatenate([batch.commit_lsn for batch in batches])
    seq = np.concatenate([batch.seq for batch in batches])
    number = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    order = np.lexsort((seq, lsn))
    time = np.concatenate([batch.commit_time for batch in batches])
    for place in order[np.flatnonzero(np.diff(number[order], prepend=-1))].tolist():
        at = int(time[place].astype(np.int64))
        yield int(lsn[place]), int(seq[place]), at, batches[int(number[place])].version


def _type_name(column: RelationColumn, version: RelationVersion) -> str:
    declared = {each.oid: each.name for each in version.types}
    known = default_registry.lookup(column.type_oid)
    name = declared.get(column.type_oid) or (known.name if known else f"type {column.type_oid}")
    modifier = column.type_modifier
    if modifier < 0:
        return name
    if name in _CHARACTERS:
        return f"{name}({modifier - 4})"
    if name == "numeric":
        scale = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400  # 11 bits, signed
        return f"numeric({modifier - 4 >> 16 & 0xFFFF},{scale})"
    if name in _PLAIN_MODIFIER:
        return f"{name}({modifier})"
    return f"{name} (modifier {modifier})"
