"""Carry: the state that the messages read so far leave for the messages to come.

It is small and picklable. It grows with relations, with streamed and prepared transactions that
are open (and their subtransactions), never with messages or with transactions that are over.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from pgwire_codec.protocol.messages import Relation, Type
from pgwire_codec.protocol.quoting import qualified_name
from pgwire_codec.transactions.journal import Journal

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class RelationVersion:
    """A Relation as it was sent, with the user-defined types among its columns' types.

    ``relation.xid`` and the types' ``xid`` are None: versions are equal when the table is the same,
    in whichever transaction it was sent.
    """

    relation: Relation
    types: tuple[Type, ...] = ()

    @property
    def qualified_name(self) -> str:
        """``schema.table`` as PostgreSQL quotes it; a table of pg_catalog has its bare name."""
        return qualified_name(self.relation.namespace, self.relation.name)


def unique_versions(versions: Iterable[RelationVersion]) -> tuple[RelationVersion, ...]:
    """Return versions of relations, each once, in the order in which they first come.

    To hash a version takes much longer than to compare it with the others of its relation.
    """
    found: dict[int, list[RelationVersion]] = {}
    unique = []
    for version in versions:
        of_relation = found.setdefault(version.relation.oid, [])
        if version not in of_relation:
            of_relation.append(version)
            unique.append(version)
    return tuple(unique)


class Position(NamedTuple):
    """How many changes (rows) and logical messages of a transaction have come."""

    changes: int = 0
    messages: int = 0

    def plus(self, by: tuple[int, int]) -> Position:
        """Return the position that is so many changes and logical messages later."""
        return Position(self.changes + by[0], self.messages + by[1])


START: Final = Position()


@dataclass(slots=True)
class Scope:
    """The Relations and Types that hold, by OID; with a Relation, when it came (``clock``).

    ``names`` has, by qualified name, the relation that was last sent under it: clock and OID.
    """

    relations: MutableMapping[int, tuple[int, RelationVersion]] = field(default_factory=dict)
    types: MutableMapping[int, Type] = field(default_factory=dict)
    names: MutableMapping[str, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> Scope:
        return Scope(dict(self.relations), dict(self.types), dict(self.names))

    def branch(self) -> Scope:
        """Return a scope that begins as this one and keeps its changes apart: see ``changes``.

        It costs what is changed in it, not what is known. As long as it is used, this scope must
        not change.
        """
        return Scope(
            ChainMap({}, self.relations), ChainMap({}, self.types), ChainMap({}, self.names)
        )

    def changes(self) -> Scope:
        """Return what a branch has recorded since it began."""
        return Scope(_own(self.relations), _own(self.types), _own(self.names))

    def update(self, changes: Scope) -> None:
        """Take over the changes of a branch."""
        self.relations.update(changes.relations)
        self.types.update(changes.types)
        self.names.update(changes.names)

    def with_changes(self, changes: Scope) -> Scope:
        """Return the scope after the changes of a branch: the same one without changes."""
        if not (changes.relations or changes.types or changes.names):
            return self
        found = self.copy()
        found.update(changes)
        return found

    def only(self, relations: Collection[int], types: Collection[int]) -> Scope:
        """Return the Relations and Types of these OIDs, without the names of others."""
        found = Scope(types={oid: self.types[oid] for oid in types if oid in self.types})
        for oid in relations:
            if oid in self.relations:
                found.relations[oid] = self.relations[oid]
        return found

    def keep(self, journal: Journal) -> None:
        self.relations = journal.map(self.relations)
        self.types = journal.map(self.types)
        self.names = journal.map(self.names)

    def add(self, clock: int, version: RelationVersion) -> None:
        """Take a Relation as it was sent."""
        self.relations[version.relation.oid] = clock, version
        self.names[version.qualified_name] = clock, version.relation.oid

    def named(self, name: str) -> RelationVersion | None:
        """Return the relation that has a qualified name, or None.

        Of several that were sent under the name, the one that came last has it, and nobody once it
        has another name: the others were dropped or renamed, which a server only reports with their
        next change.
        """
        if name not in self.names:
            return None
        version = self.relations[self.names[name][1]][1]
        return version if version.qualified_name == name else None

    def adopt(self, other: Scope) -> None:
        """Take over what came later in the other scope."""
        self.types.update(other.types)
        for oid, (clock, version) in other.relations.items():
            if oid not in self.relations or self.relations[oid][0] < clock:
                self.relations[oid] = (clock, version)
        for name, last in other.names.items():
            self.names[name] = max(last, self.names.get(name, last))


def _own(content: MutableMapping[_K, _V]) -> dict[_K, _V]:
    """Return the changes of a map of a branch."""
    assert isinstance(content, ChainMap)
    return dict(content.maps[0])


@dataclass(slots=True)
class OpenTransaction:
    """A transaction begun and not yet committed or rolled back.

    Attributes
    ----------
    xid : int
        The top-level transaction's ID.
    final_lsn, commit_time : int
        Of a plain transaction, from its Begin; else 0.
    gid : str or None
        Of a transaction that is prepared, or will be.
    origin : str or None
        The replication origin that its Origin message named.
    position : Position
        Position of its next change.
    first : dict of int to Position
        Of a streamed transaction: the position of each subtransaction's first change, ascending.
    scope : Scope
        Relations and Types sent in a streamed transaction; they hold for it alone until it
        commits.
    delivered : int
        Of a plain transaction: how many of its changes came before, in a session that broke off.
    """

    xid: int
    final_lsn: int = 0
    commit_time: int = 0
    gid: str | None = None
    origin: str | None = None
    position: Position = START
    first: dict[int, Position] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    delivered: int = 0

    def cut(self, position: Position) -> None:
        """Go back to a position: forget the subtransactions that began there or later."""
        self.position = position
        while self.first:
            last = next(reversed(self.first))
            if self.first[last] < position:
                return
            self.first.popitem()  # `del` would leave a gap, which reversed() goes through each time

    def copy(self) -> OpenTransaction:
        return replace(self, first=dict(self.first), scope=self.scope.copy())

    def keep(self, journal: Journal) -> None:
        self.first = journal.map(self.first)
        self.scope.keep(journal)
        journal.keep_fields(self)


@dataclass(slots=True)
class Carry:
    """State between two messages of one stream; the default is that before the first.

    Attributes
    ----------
    scope : Scope
        Relations and Types that hold for everyone.
    plain : OpenTransaction or None
        The transaction between Begin and Commit, or Begin Prepare and Prepare.
    streams : dict of int to OpenTransaction
        Streamed transactions by xid.
    prepared : dict of str to OpenTransaction
        Prepared transactions by gid.
    in_block : bool
        Whether the last message is between Stream Start and Stream Stop: then changes carry an
        xid.
    in_stream : int or None
        The xid of the transaction whose stream block is open.
    delivered_lsn : int
        Commit LSN of the last committed transaction. A server commits in the order of LSNs, so
        one at or before it is a repetition.
    cut_off : tuple of int, int
        Final LSN of the last plain transaction that a session broke off in, and how many of its
        changes had come.
    clock : int
        How many Relation messages have come.
    """

    scope: Scope = field(default_factory=Scope)
    plain: OpenTransaction | None = None
    streams: dict[int, OpenTransaction] = field(default_factory=dict)
    prepared: dict[str, OpenTransaction] = field(default_factory=dict)
    in_block: bool = False
    in_stream: int | None = None
    delivered_lsn: int = 0
    cut_off: tuple[int, int] = (0, 0)
    clock: int = 0

    def copy(self) -> Carry:
        return self.with_scope(self.scope.copy())

    def with_scope(self, scope: Scope) -> Carry:
        """Return a copy with another scope, which is not copied."""
        return replace(
            self,
            scope=scope,
            plain=None if self.plain is None else self.plain.copy(),
            streams={xid: open_.copy() for xid, open_ in self.streams.items()},
            prepared={gid: open_.copy() for gid, open_ in self.prepared.items()},
        )

    def only(self, relations: Collection[int], types: Collection[int]) -> Carry:
        """Return a copy with the Relations and Types of these OIDs alone."""

        def limited(open_: OpenTransaction) -> OpenTransaction:
            return replace(open_, first=dict(open_.first), scope=open_.scope.only(relations, types))

        return replace(
            self,
            scope=self.scope.only(relations, types),
            plain=None if self.plain is None else limited(self.plain),
            streams={xid: limited(open_) for xid, open_ in self.streams.items()},
            prepared={gid: limited(open_) for gid, open_ in self.prepared.items()},
        )

    def keep(self, journal: Journal) -> None:
        self.scope.keep(journal)
        if self.plain is not None:
            journal.keep(self.plain)
        self.streams = journal.entries(self.streams)
        self.prepared = journal.entries(self.prepared)
        journal.keep_fields(self)

    @property
    def pending(self) -> list[int]:
        """IDs of the transactions begun and not yet committed or rolled back."""
        opened = [] if self.plain is None else [self.plain]
        opened += [*self.streams.values(), *self.prepared.values()]
        return sorted({open_.xid for open_ in opened})
