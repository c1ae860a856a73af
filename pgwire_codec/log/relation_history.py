"""RelationHistory: versions of relations in a range of a log, with the commits that they begin at.

The log's own list of versions has each once, in the order of the messages. A target needs those
after the commit that it has, in the order of commits, also if a version comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pgwire_codec.log.reader import Log
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.transactions.plan import apply_summary
from pgwire_codec.transactions.resolver import Resolver


@dataclass(frozen=True, slots=True)
class VersionInForce:
    """A version of a relation.

    Attributes
    ----------
    commit_lsn : int
        Commit LSN of the first transaction that has it, or the beginning of the range.
    version : RelationVersion
    """

    commit_lsn: int
    version: RelationVersion

    @property
    def relation(self) -> Relation:
        """The relation, as the server declared it."""
        return self.version.relation


class RelationHistory:
    """Reads the versions of relations from a log, which must not be refreshed meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._found: dict[tuple[int, int], dict[int, list[VersionInForce]]] = {}
        # Of many tables, at the same few LSNs.
        self._relations_at = lru_cache(4)(lambda lsn: log.relations_at(lsn).relations)

    def between(self, oid: int, after: int, until: int) -> list[VersionInForce]:
        """Return the versions from the one known after a commit LSN to that at another one.

        The first is left out if the relation is not known there. Consecutive ones differ in their
        columns or their replica identity.
        """
        log = self._log
        after = max(after, log.begin.lsn)
        start, end = (self._relations_at(lsn).get(oid) for lsn in (after, until))
        found = [] if start is None else [VersionInForce(after, start[1])]
        if len(log.versions_of(oid)) > 1:
            if (after, until) not in self._found:
                self._found[after, until] = _read(log, after, until)
            found += self._found[after, until].get(oid, [])
        if end is not None and not (found and found[-1].relation == end[1].relation):
            found.append(VersionInForce(until, end[1]))
        return [each for place, each in enumerate(found) if not place or _differ(found, place)]


def _differ(found: list[VersionInForce], place: int) -> bool:
    one, other = (found[at].relation for at in (place - 1, place))
    return (one.columns, one.replica_identity) != (other.columns, other.replica_identity)


def _read(log: Log, after: int, until: int) -> dict[int, list[VersionInForce]]:
    """Return the versions that begin in a range, by OID."""
    found: dict[int, list[VersionInForce]] = {}
    if not len(log):
        return found
    first, place = _start(log, after)
    known = log.state_before(first, place)
    held = {oid: version for oid, (_, version) in known.scope.relations.items()}
    opened = (*known.log.carry.streams.values(), *known.log.carry.prepared.values())
    # Relations that transactions declared for themselves.
    streamed = {oid for transaction in opened for oid in transaction.scope.relations}
    new: list[RelationVersion] = []  # after the last commit
    committed = 0
    for resolver in _events(log, first, place):
        carry = resolver.carry
        declared = {version.relation.oid for version in resolver.versions}
        resolver.versions.clear()
        if carry.in_stream is not None:
            streamed |= declared
        if carry.delivered_lsn > committed:
            declared |= streamed
        for oid in declared:
            _, version = carry.scope.relations.get(oid, (0, held.get(oid)))
            if version is not None and held.get(oid) != version:
                held[oid] = version
                new.append(version)
        if carry.delivered_lsn > committed:
            committed = carry.delivered_lsn
            if committed > until:
                break
            for each in new if committed > after else ():
                of_relation = found.setdefault(each.relation.oid, [])
                of_relation.append(VersionInForce(committed, each))
            new.clear()
    return found


def _start(log: Log, after: int) -> tuple[int, int]:
    """Return the numbers of a segment and of its part from which on to read, for a commit LSN.

    Before it, nothing commits after the LSN, and no plain transaction is open.
    """
    number = log.number_at(after)
    parts = log.segment(number).parts
    place = next((at for at, part in enumerate(parts) if part.delivered_lsn > after), len(parts))
    while place and log.state_before(number, place).log.carry.plain is not None:
        place -= 1
    return number, place


def _events(log: Log, first: int, place: int) -> Iterator[Resolver]:
    """Yield the state after each event from a part of a segment on."""
    known = log.state_before(first, place)
    resolver = Resolver(known.log.carry.with_scope(known.scope.branch()), _NullListener())
    for number in range(first, len(log)):
        for part in log.segment(number).parts[place if number == first else 0 :]:
            if part.summary.new_session:
                resolver.new_session()
            for event in part.summary.events(resolver.carry.in_block):
                one = replace(part.summary, outside=(event,), inside=(event,), ends_in_block=None)
                apply_summary(one, resolver, skip=True)
                yield resolver
            if part.summary.ends_in_block is not None:
                resolver.carry.in_block = part.summary.ends_in_block


class _NullListener:
    """A transaction listener that does nothing."""

    def commit(self, key: Any, committed: Any) -> None: ...
    def drop(self, key: Any) -> None: ...
    def truncate(self, key: Any, position: Any) -> None: ...
    def rename(self, key: Any, new: Any) -> None: ...
