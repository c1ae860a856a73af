"""Relations of a log at one of its commits, with their present and former names.

A name is not a table: another table can get it. The server sends a relation's new name with its
first change, so a log has names as of changes, not as of DDL.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import LogError, OptionError, TableError
from pgwire_codec.format import suggest_table
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.transactions.carry import RelationVersion, Scope
from pgwire_codec.transactions.plan import apply_summary
from pgwire_codec.transactions.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgwire_codec.log.part_states import PartState
    from pgwire_codec.log.segment import Segment, SegmentPart
    from pgwire_codec.log.segment_sequence import SegmentSequence


_WILD: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class LoggedRelation:
    """A relation that a log has changes of, or has had.

    Attributes
    ----------
    oid : int
        Its identity: other relations can get its name.
    name : str
        Its last known name, ``schema.table``.
    names : tuple of str
        All its names, oldest first.
    is_current : bool
        Whether it has the name at the log's end; False if another relation has it now.
    """

    oid: int
    name: str
    names: tuple[str, ...]
    is_current: bool


def relations_at(log: SegmentSequence, lsn: int) -> Scope:
    """Return the relations known after the last transaction that commits at or before an LSN.

    The result does not depend on what the log has after that transaction.

    Raises ``LogError`` when the log was pruned beyond it.
    """
    if not len(log):
        return Scope()
    if lsn < log.pruned_lsn:
        raise LogError(
            f"cannot read the relations at {format_lsn(lsn)}: {log.uri} was pruned up to "
            f"{format_lsn(log.pruned_lsn)}"
        )
    delivered = lsn
    while delivered > log.pruned_lsn:
        number = log.number_at(delivered)
        found = _relations_in(log, number, delivered)
        if found is not None:
            return found
        # The transaction before that LSN commits in an earlier segment.
        delivered = log.segment(number).header.before.carry.delivered_lsn
    return log.scope_before(0)


def logged_relations(
    versions: Sequence[RelationVersion], scope: Scope
) -> tuple[LoggedRelation, ...]:
    """Return the relations of a log, by all its versions and the scope at its end."""
    names: dict[int, dict[str, None]] = {}
    for version in versions:
        names.setdefault(version.relation.oid, {})[version.qualified_name] = None
    found = []
    for oid, (_, version) in scope.relations.items():
        name = version.qualified_name
        holder = scope.named(name)
        earlier = [each for each in names.get(oid, {}) if each != name]
        is_current = holder is not None and holder.relation.oid == oid
        found.append(LoggedRelation(oid, name, (*earlier, name), is_current))
    return tuple(sorted(found, key=lambda each: (each.name, not each.is_current, each.oid)))


def select_relation(
    scope: Scope,
    versions: Callable[[], Sequence[RelationVersion]],
    *,
    table: str | None = None,
    relation_oid: int | None = None,
) -> RelationVersion:
    """Return the newest version of the relation with a name or an OID.

    Parameters
    ----------
    scope : Scope
        The relations at the end of the changes.
    versions : callable
        Returns all versions of all relations. It is called for errors only.
    table : str, optional
        ``schema.table``, at the end of the changes.
    relation_oid : int, optional
        OID, in place of ``table``.

    Raises
    ------
    OptionError
        Unless exactly one of ``table`` and ``relation_oid`` is given.
    TableError
        When there is no such relation. The hint lists the existing ones.
    """
    if (table is None) == (relation_oid is None):
        raise OptionError("exactly one of table and relation_oid is required")
    found = None
    if table is not None:
        found = scope.named(table)
    elif relation_oid is not None and relation_oid in scope.relations:
        found = scope.relations[relation_oid][1]
    if found is None:
        known = logged_relations(versions(), scope)
        raise _unknown_oid(relation_oid, known) if table is None else _unknown_name(table, known)
    return found


def select_relations(
    scope: Scope,
    versions: Callable[[], Sequence[RelationVersion]],
    tables: Sequence[str | None],
    *,
    relation_oid: int | None = None,
) -> frozenset[int]:
    """Return the OIDs of the relations with some names, or with names that match a pattern.

    The parameters and errors are those of :func:`select_relation`. ``*``, ``?`` and ``[`` make a
    name a pattern, unless a table has it.
    """
    found: set[int] = set()
    for table in tables:
        if table is not None and scope.named(table) is None and _WILD.search(table):
            matching = map(scope.named, fnmatch.filter(scope.names, table))
            oids = {each.relation.oid for each in matching if each is not None}
            if oids:
                found |= oids
                continue
        version = select_relation(scope, versions, table=table, relation_oid=relation_oid)
        found.add(version.relation.oid)
    return frozenset(found)


def _unknown_oid(relation_oid: int | None, known: Sequence[LoggedRelation]) -> TableError:
    existing = ", ".join(f"{each.oid} ({each.name})" for each in known) or "none"
    return TableError(
        f"the messages have no relation {relation_oid!r}", hint=f"Their relations: {existing}."
    )


def _unknown_name(table: str, known: Sequence[LoggedRelation]) -> TableError:
    """Return the error for a name that no relation has, with what became of those that had it."""
    had = [each for each in known if table in each.names]
    if had:
        became = ", ".join(
            f"relation {each.oid} lost it to a later one"
            if each.name == table
            else f"relation {each.oid} is {each.name} now"
            for each in had
        )
        return TableError(
            f"no relation has the name {table!r} at the end of the range: {became}",
            hint="Read it by its new name or by its OID.",
        )
    names = {each.name for each in known if each.is_current}
    return TableError(f"the messages have no table {table!r}", hint=suggest_table(table, names))


def _relations_in(log: SegmentSequence, number: int, lsn: int) -> Scope | None:
    """Return the scope after a segment's last commit up to an LSN, or None without such one."""
    segment = log.segment(number)
    parts = segment.parts
    later = next((at for at, part in enumerate(parts) if part.delivered_lsn > lsn), len(parts))
    # Only a new session can repeat transactions that were delivered before.
    if any(part.summary.new_session for part in parts[later + 1 :]):
        later = len(parts)
    in_block = _in_block_before(segment)
    before = segment.header.before.carry.delivered_lsn
    for place in range(min(later, len(parts) - 1), -1, -1):
        last = None
        events = parts[place].summary.events(in_block[place])
        for index, event in enumerate(events):
            commit_lsn = getattr(event, "commit_lsn", None)
            if commit_lsn is not None and before < commit_lsn <= lsn:
                last = index
        if last == len(events) - 1 and events:
            return log.state_before(number, place + 1).scope
        if last is not None:
            return _after_event(log.state_before(number, place), parts[place], last + 1)
    return None


def _in_block_before(segment: Segment) -> list[bool]:
    """Return, for each part of a segment, whether it begins inside a stream block."""
    in_block = segment.header.before.carry.in_block
    found = []
    for part in segment.parts:
        in_block = in_block and not part.summary.new_session
        found.append(in_block)
        if part.summary.ends_in_block is not None:
            in_block = part.summary.ends_in_block
    return found


def _after_event(before: PartState, part: SegmentPart, stop: int) -> Scope:
    """Return the relations known after the first events of a part."""
    scope = before.scope.branch()
    resolver = Resolver(before.log.carry.with_scope(scope), _NullListener())
    if part.summary.new_session:
        resolver.new_session()
    apply_summary(part.summary, resolver, skip=True, stop=stop)
    return before.scope.with_changes(scope.changes())


class _NullListener:
    """A transaction listener that does nothing."""

    def commit(self, key: Any, committed: Any) -> None: ...
    def drop(self, key: Any) -> None: ...
    def truncate(self, key: Any, position: Any) -> None: ...
    def rename(self, key: Any, new: Any) -> None: ...
