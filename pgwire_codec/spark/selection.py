"""Selection of relations by the names that they have at the end of a range of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate

from pgwire_codec.errors import LogError, TableError
from pgwire_codec.log import Log
from pgwire_codec.log.relations import select_relation
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion, Scope

_WILDCARD = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class TableNames:
    """Names of tables, and patterns of names.

    Attributes
    ----------
    exact : tuple of str
        Names, ``schema.table``.
    patterns : tuple of re.Pattern
        Regular expressions that match whole names.
    """

    exact: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TableNames:
        """Return names and patterns: those with ``*``, ``?`` or ``[`` are patterns."""
        exact: list[str] = []
        patterns = []
        for text in texts:
            if _WILDCARD.search(text):
                patterns.append(re.compile(translate(text)))
            else:
                exact.append(text)
        return cls(tuple(exact), tuple(patterns))

    def match(self, name: str) -> bool:
        """Return whether a name is one of the names, or matches a pattern."""
        return name in self.exact or any(each.match(name) for each in self.patterns)

    def held_in(self, scope: Scope) -> dict[str, RelationVersion]:
        """Return the relations that have one of the names, by name."""
        names = [name for name in self.exact if name in scope.names]
        if self.patterns:
            others = (name for name in sorted(scope.names) if name not in self.exact)
            names += [name for name in others if self.match(name)]
        held = ((name, scope.named(name)) for name in names)
        return {name: version for name, version in held if version is not None}

    def select(self, log: Log, lsn: int | None) -> dict[str, RelationVersion]:
        """Return the relations that have one of the names at a commit LSN, by name.

        Raises ``TableError`` for a name that no relation has. A pattern may match none.
        """
        scope = log.relations_at(lsn)
        for name in self.exact:
            select_relation(scope, lambda: log.versions, table=name)
        return self.held_in(scope)


@dataclass(frozen=True, slots=True)
class SelectedRelations:
    """Relations whose changes a micro-batch has.

    Attributes
    ----------
    versions : dict of str to RelationVersion
        Their newest versions, by name.
    replacing : frozenset of int
        OIDs of those that replace another relation: the micro-batch has all their changes since
        the log's beginning.
    """

    versions: dict[str, RelationVersion]
    replacing: frozenset[int]


def select_in_range(
    log: Log, names: TableNames, options: SourceOptions, after: int, until: int
) -> SelectedRelations:
    """Return the relations that have the names at the end of a range.

    The result depends on the range alone: it is the same when the log has grown.

    Raises ``LogError`` when another relation, or no relation, has a name that one had at the
    range's beginning, unless the option ``onRelationChange`` is ``replace``. It raises one, too,
    when earlier changes of a relation that got a name were pruned.
    """
    before, at_end = log.relations_at(after), log.relations_at(until)
    old, new = names.held_in(before), names.held_in(at_end)
    changed = [name for name, version in old.items() if _oid(new.get(name)) != _oid(version)]
    if changed and options.on_relation_change == "fail":
        name = changed[0]
        holder = _oid(new.get(name))
        raise _other_relation(
            name, at_end, old[name].relation.oid, holder, after, until, options.table is not None
        )
    replacing = set()
    for name, version in new.items():
        oid = version.relation.oid
        if oid != _oid(old.get(name)) and oid in before.relations:  # under other names
            if oid in log.relations_at(log.begin.lsn).relations:
                raise _pruned(name, log, oid, after, until)
            replacing.add(oid)
    return SelectedRelations(new, frozenset(replacing))


def no_table(patterns: Sequence[str], log: Log) -> TableError:
    """Return the error for patterns that no table of a log matches."""
    existing = ", ".join(sorted({each.name for each in log.relations if each.is_current}))
    return TableError(
        f"no table matches {', '.join(patterns)}", hint=f"The log's tables: {existing or 'none'}."
    )


def _oid(version: RelationVersion | None) -> int | None:
    return None if version is None else version.relation.oid


def _other_relation(
    table: str, at_end: Scope, old: int, new: int | None, after: int, until: int, is_one: bool
) -> LogError:
    """Return the error for a stream of a table whose name another relation, or none, has now.

    ``is_one``: the stream has only this table.
    """
    holder = "no relation has" if new is None else f"relation {new} has"
    name = at_end.relations[old][1].qualified_name
    renamed = "" if name == table else f"; relation {old} is {name} now"
    replace = (
        "Set onRelationChange=replace to continue with the one that has the name: latest and "
        "merge_into then replace the rows."
    )
    hint = replace
    if is_one:
        hint = (
            f"Set relationOid={old} in place of table to continue with the old relation. {replace}"
        )
        if new is not None:
            hint += f" Set relationOid={new} and a new checkpoint to read only the new one."
    return LogError(
        f"relation {old} had the name {table} at {format_lsn(after)}, but {holder} it at "
        f"{format_lsn(until)}{renamed}",
        hint=hint,
    )


def _pruned(table: str, log: Log, new: int, after: int, until: int) -> LogError:
    """Return the error for a relation that gets the name, but whose history was pruned."""
    return LogError(
        f"relation {new} got the name {table} between {format_lsn(after)} and {format_lsn(until)}, "
        f"but earlier changes of it were pruned from {log.uri}, up to {format_lsn(log.begin.lsn)}",
        hint="Take a new snapshot into a new log. If you have the table as of "
        f"{format_lsn(until)}, start a query from there, with startingLsn and a new checkpoint.",
    )
