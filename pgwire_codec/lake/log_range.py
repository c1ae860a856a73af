"""LogRange: a range of a log as the jobs of tables read it, and its pieces.

Each piece is read and merged by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pgwire_codec.changes.identity import column_names, key_columns
from pgwire_codec.errors import Rejected
from pgwire_codec.lake.table_state import LogIdentity
from pgwire_codec.log import Log, LogPlan
from pgwire_codec.log.relation_history import RelationHistory, VersionInForce
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion

_TRUNCATE: Final = ord("T")

#: For changes of which only the kind is read; other messages may be damaged.
_TEXTS: Final = DecoderOptions(types="text", before="none", on_error="skip")


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a range in which columns are only added, and the replica identity stays the same."""

    after: int  # commit LSNs
    until: int
    #: From the version that is valid before it, if that is known, to that at its end.
    in_force: list[VersionInForce]

    @property
    def declared(self) -> list[RelationVersion]:
        """The versions, as the server declared them."""
        return [each.version for each in self.in_force]

    @property
    def versions(self) -> list[Relation]:
        """The relation in each version."""
        return [each.relation for each in self.in_force]

    def since(self, column: str) -> int:
        """Return the commit LSN from which on its newest version has a column."""
        start = self.in_force[-1].commit_lsn
        for version in reversed(self.in_force):
            if column not in column_names(version.relation):
                break
            start = version.commit_lsn
        return start


def pieces_of(versions: list[VersionInForce], after: int, until: int) -> list[Piece]:
    """Return the parts of a range between the commits after which rows are to be read otherwise.

    That is so when the replica identity changes, or a column's type, and when a column goes:
    earlier rows have it.
    """
    pieces = [Piece(after, until, versions[:1])] if versions else []
    for version in versions[1:]:
        last = pieces[-1]
        end, newest = version.commit_lsn - 1, last.in_force[-1]
        # A transaction is not cut, even if several versions came in it.
        is_inside = end <= last.after or version.commit_lsn == newest.commit_lsn
        if is_inside or _continues(newest.relation, version.relation):
            last.in_force.append(version)
        else:
            pieces[-1] = replace(last, until=end)
            pieces.append(Piece(end, until, [newest, version]))
    return pieces


def _continues(before: Relation, after: Relation) -> bool:
    """Return whether rows of two versions can be read together: columns are only added."""
    kinds, later = _kinds(before), _kinds(after)
    return key_columns(before) == key_columns(after) and kinds.items() <= later.items()


def _kinds(relation: Relation) -> dict[str, tuple[int, int]]:
    return {each.name: (each.type_oid, each.type_modifier) for each in relation.columns}


class LogRange:
    """Range of a log that ends at a commit LSN, for the jobs of its tables.

    They run in several threads, and a Log is not for many threads.
    """

    def __init__(self, log: Log, until: int) -> None:
        self.uri = log.uri
        self.identity = LogIdentity.from_log(log)
        self.begin = log.begin.lsn
        self.until = until
        self.server_version = log.source.server_version
        self.registry = log.registry
        self.scope = log.relations_at(until)
        self.leaves = log.leaves_at(until)
        self._log = log
        self._history = RelationHistory(log)
        self._lock = threading.Lock()

    def between(self, oid: int, after: int, until: int) -> list[VersionInForce]:
        """Return the versions of a relation between two commit LSNs."""
        with self._lock:
            return self._history.between(oid, after, until)

    def versions(self, oid: int) -> Sequence[RelationVersion]:
        """Return all versions of a relation."""
        with self._lock:
            return self._log.versions_of(oid)

    def plan(self, oid: int, after: int, until: int) -> LogPlan:
        """Plan the decoding of a relation's changes between two commit LSNs."""
        with self._lock:
            return self._log.plan(after, until, relation_oid=oid, on_error="skip")

    def has_changes(self, oid: int, piece: Piece) -> bool:
        """Return whether a relation has changes in a piece, or messages that do not decode."""
        for partition in self.plan(oid, piece.after, piece.until).partitions:
            letters: list[Rejected] = []
            for batch in partition.decode(_TEXTS, letters):
                if batch.relation.oid == oid:
                    return True
            if letters:
                return True
        return False

    def last_truncate(self, oid: int, after: int) -> int | None:
        """Return the commit LSN of the last truncate of a relation, up to the log's end."""
        log = self._log
        with self._lock:
            segments = {
                segment.name
                for segment in log.segments
                if any(each.relation_oid in (oid, 0) and each.truncates for each in segment.tables)
            }
            plan = log.plan(max(after, self.begin), None, relation_oid=oid, on_error="skip")
            lsns = [
                lsn
                for partition in plan.partitions
                if partition.segment in segments
                for batch in partition.decode(_TEXTS)
                if batch.relation.oid == oid
                for lsn in batch.commit_lsn[batch.op == _TRUNCATE].tolist()
            ]
        return max(lsns, default=None)

    def was_pruned(self, oid: int) -> bool:
        """Return whether the log may have had earlier changes of a relation."""
        with self._lock:
            return bool(self.begin) and oid in self._log.relations_at(self.begin).relations
