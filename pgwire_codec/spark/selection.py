"""Selection of relations by the names that they have at the end of a range of a log."""

from __future__ import annotations

from dataclasses import dataclass

from pgwire_codec.errors import LogError
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.log import Log
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion, Scope


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
