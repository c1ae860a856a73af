"""Replica identity of a table: the columns by which updates and deletes name their row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.codec.tables import VALUE
from pgwire_codec.errors import TableError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import quote_identifier, quote_literal
from pgwire_codec.transactions.carry import RelationVersion

_Columns: TypeAlias = "tuple[str, frozenset[str]]"
_Key: TypeAlias = "frozenset[str]"


def column_names(relation: Relation) -> list[str]:
    """Return the names of all columns."""
    return [column.name for column in relation.columns]


def key_columns(relation: Relation) -> list[str] | None:
    """Return the columns that identify a row; None if it is the whole row, or nothing."""
    if relation.replica_identity == "f":
        return None
    return [column.name for column in relation.columns if column.flags & 1] or None


def check_identity(batch: ChangeBatch, relation: Relation) -> None:
    """Raise ``TableError`` if an update or delete was sent with another identity than a version."""
    if key_columns(batch.relation) == key_columns(relation):
        return
    lsns = batch.commit_lsn[np.isin(batch.op, (ord("U"), ord("D")))]
    if not len(lsns):
        return
    lsn = int(lsns[0])
    raise TableError(
        f"{batch.version.qualified_name}, commit LSN {format_lsn(lsn)}: an update or delete was "
        f"sent with the replica identity {_shown(batch.relation)}, and the table has "
        f"{_shown(relation)} at the end of the range",
        hint="The old values of the other columns were not sent, so the row cannot be found by "
        f"them. {COPY_AGAIN} Alter a replica identity in a transaction of its own.",
    )


class PossibleLeaves:
    """Relations that may be partitions of others: they have the same schema and columns.

    The server declares a leaf before its changes, which are those of the root, and does not declare
    of which root.
    """

    def __init__(self, versions: Iterable[RelationVersion]) -> None:
        self._found: dict[_Columns, dict[_Key, dict[int, Relation]]] = {}
        for version in versions:
            relation = version.relation
            by_key = self._found.setdefault(_columns(relation), {})
            by_key.setdefault(_key(relation), {})[relation.oid] = relation

    def of(self, root: Relation) -> tuple[Relation, ...]:
        """Return those that may be leaves of a root, and have another replica identity."""
        found = self._found.get(_columns(root), {})
        others = (relations for key, relations in found.items() if key != _key(root))
        return tuple(each for relations in others for each in relations.values())


def check_keys_sent(batch: ChangeBatch, before: pa.StructArray, leaves: Sequence[Relation]) -> None:
    """Raise ``TableError`` if an old tuple lacks a column of the table's key.

    The error names the partition with that replica identity, if it is one of the ``leaves``.
    """
    key = [column.name for column in batch.relation.columns if column.flags & 1]
    sent = {field.name: before.field(place) for place, field in enumerate(before.type)}
    if key and all(name in sent and sent[name].null_count == before.null_count for name in key):
        return
    rows = np.flatnonzero(batch.partial_keys)
    if not len(rows):
        return
    row = int(rows[0])
    sent_now = {name for name, column in batch.old.items() if column.state[row] == VALUE}
    possible = [each for each in leaves if _key(each) == sent_now]
    leaf = _sql_name(possible[0]) if len(possible) == 1 else "a partition"
    lsn = format_lsn(int(batch.commit_lsn[row]))
    raise TableError(
        f"{batch.version.qualified_name}, commit LSN {lsn}: an update or delete was sent with the "
        f"replica identity {', '.join(sorted(sent_now)) or '(none)'} of {leaf}, and the table has "
        f"{_shown(batch.relation)}: its row cannot be found",
        hint=f"Run {_mending(batch.relation, possible)} on the server. {COPY_AGAIN}",
    )


def _mending(root: Relation, leaves: Sequence[Relation]) -> str:
    """Return the SQL that gives leaves an identity by which rows of the root are found."""
    identity = "DEFAULT" if root.replica_identity == "d" else "FULL"
    if leaves:
        alter = (f"ALTER TABLE {_sql_name(each)} REPLICA IDENTITY {identity};" for each in leaves)
        return " ".join(alter)
    name = quote_literal(_sql_name(root))
    return (
        f"ALTER TABLE … REPLICA IDENTITY {identity}; for the partitions that have another one than "
        f"the table (SELECT relid::regclass, relreplident FROM pg_partition_tree({name}) JOIN "
        "pg_class ON oid = relid)"
    )


def _columns(relation: Relation) -> _Columns:
    return relation.namespace, frozenset(column_names(relation))


def _key(relation: Relation) -> _Key:
    return frozenset(key_columns(relation) or ())


def _sql_name(relation: Relation) -> str:
    names = (relation.namespace, relation.name) if relation.namespace else (relation.name,)
    return ".".join(map(quote_identifier, names))


def _shown(relation: Relation) -> str:
    keys = key_columns(relation)
    return "of whole rows" if keys is None else ", ".join(keys)
