"""PgoutputStreamReader: a log as a stream of micro-batches of whole transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.log import Log, LogPosition
from pgwire_codec.log.positions import position_of
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.log_counts import LogCounts
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.spark.partitions import plan_packed, plan_partitions, read_partition
from pgwire_codec.transactions.carry import RelationVersion, Scope


class PgoutputStreamReader(DataSourceStreamReader):
    """Reads a log while it grows.

    An offset is a position in the log. A micro-batch has the transactions whose commit LSN is in
    its range, wherever their changes are in the log. So it is the same each time that it is read,
    and consecutive micro-batches have every change once.

    A table is the relation that has its name at the end of a micro-batch. If another relation has
    it at the beginning, the query fails, or the micro-batch has all changes of the new relation:
    see the option ``onRelationChange``.

    A query of some tables gets no micro-batch as long as only other tables change, up to the end of
    the segment: its offset must not stay where the log will be pruned.

    This class is that of Spark 4.0 and 4.1, which ask for the latest offset without a limit.
    """

    def __init__(
        self, options: SourceOptions, rows: RowFormat | None, relation_oid: int | None
    ) -> None:
        if options.ending_lsn is not None:
            raise OptionError("a stream has no endingLsn", hint="Use spark.read for a range.")
        if options.starting_time is not None or options.ending_time is not None:
            raise OptionError(
                "a stream has no startingTimestamp and endingTimestamp",
                hint="Set startingLsn, or filter the rows by _commit_time.",
            )
        if options.push_filters:
            raise OptionError("a stream has no pushFilters", hint="Set startingLsn.")
        self._options = options
        self._rows = rows
        self._relation_oid = relation_oid  # if the options table and tables are not set
        self._names: TableNames | None = None
        if options.tables is not None:
            self._names = TableNames.parse(options.tables)
        elif options.table is not None:
            self._names = TableNames((options.table,))
        self._log: Log | None = None
        self._place: dict[str, Any] | None = None  # end of the last micro-batch
        self._searched: LogCounts | None = None  # where its tables have no later changes
        self._counts: tuple[dict[str, Any], LogCounts | None] | None = None  # at an offset

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only read partitions, which contain the log's location.
        return self.__dict__ | {"_log": None, "_searched": None, "_counts": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (the names are Spark's)
        log = self._refreshed()
        after = self._options.starting_lsn
        return to_offset(log.begin if after is None else position_of(log, after))

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        log = self._refreshed()
        if self._place is None:  # that of the checkpoint, which Spark does not pass
            return self._counted(log, log.end)
        return self._next_offset(log, self._place, log.end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        log = self._refreshed()
        after, until = from_offset(start), from_offset(end)
        if until.lsn > log.end.lsn:
            raise LogError(
                f"the checkpoint is at {format_lsn(until.lsn)}, but the log {self._options.path} "
                f"ends at {format_lsn(log.end.lsn)}",
                hint="It is another log, or a part of it was lost. Use the log that the query "
                "began with, or a new checkpoint.",
            )
        planned = self._plan(log, after.lsn, until.lsn)
        self._place = end
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._rows)

    def _next_offset(self, log: Log, start: dict[str, Any], end: LogPosition) -> dict[str, Any]:
        """Return the end of the micro-batch after an offset, or that offset for none."""
        begin = from_offset(start)
        if end.lsn <= begin.lsn:  # messages without a commit make no micro-batch
            return start
        if self._counts is not None and self._counts[0] == start:
            self._searched = self._counts[1] or self._searched
        tables = self._tables(log, begin.lsn, end.lsn)
        if tables is not None and log.number_of(begin.ordinal) >= len(log) - 2:
            changed = None if self._searched is None else self._searched.changed(log)
            if changed is not None and changed.isdisjoint(tables):
                self._searched = LogCounts.of(log) or self._searched
                return start
        return self._counted(log, end)

    def _counted(self, log: Log, end: LogPosition) -> dict[str, Any]:
        """Return the offset of a position; keep the counts there, if it is the log's end."""
        found = to_offset(end)
        if end == log.end:
            self._counts = found, LogCounts.of(log)
        return found

    def _tables(self, log: Log, after: int, until: int) -> set[str] | None:
        """Return the names of the query's tables in a range; None for all tables.

        Raises ``LogError`` when a name changes hands, unless the query continues with the new one.
        """
        scopes = (log.relations_at(after), log.relations_at(until))
        if self._names is not None:
            selected = _relations_in_range(log, self._names, self._options, after, until)
            versions = (version for named in selected.values() for version in named.values())
            oids = {version.relation.oid for version in versions}
        elif self._relation_oid is not None:
            oids = {self._relation_oid}
        else:
            return None
        known = [scope.relations[oid][1] for scope in scopes for oid in oids & set(scope.relations)]
        return {version.qualified_name for version in known}

    def _plan(self, log: Log, after: int, until: int) -> list[InputPartition]:
        """Plan a micro-batch. It depends on the range alone: the same when the log has grown."""
        options = self._options
        if self._names is None:
            assert self._rows is not None
            return plan_partitions(log, options, self._rows, after, until, self._relation_oid)
        planned = []
        selected = _relations_in_range(log, self._names, options, after, until)
        for begin, versions in selected.items():
            if self._rows is None:
                planned += plan_packed(log, options, versions, None, begin, until)[1]
                continue
            for version in versions.values():  # of the one table
                oid = version.relation.oid
                planned += plan_partitions(log, options, self._rows, begin, until, oid)
        return planned

    def _refreshed(self) -> Log:
        if self._log is None:
            self._log = Log(self._options.path)
        else:
            self._log.refresh()
        return self._log


def to_offset(position: LogPosition) -> dict[str, Any]:
    """Return a position as Spark stores it in a checkpoint, and shows it in its progress."""
    return {"ordinal": position.ordinal, "lsn": format_lsn(position.lsn)}


def from_offset(offset: dict[str, Any]) -> LogPosition:
    """Return the position of an offset, as :func:`to_offset` returned it."""
    return LogPosition(offset["ordinal"], parse_lsn(offset["lsn"]))


def _relations_in_range(
    log: Log, names: TableNames, options: SourceOptions, after: int, until: int
) -> dict[int, dict[str, RelationVersion]]:
    """Return the newest versions of the relations that have the names at the end of a range.

    They are by name, and by the commit LSN after which a micro-batch has their changes: of those
    that replace another relation, since the log's beginning. The result depends on the range alone:
    it is the same when the log has grown.

    Raises ``LogError`` when another relation, or no relation, has a name that one had at the
    range's beginning, unless the option ``onRelationChange`` is ``replace``. It raises one, too,
    when earlier changes of a relation that got a name were pruned.
    """
    before, at_end = log.relations_at(after), log.relations_at(until)
    old, new = names.held_in(before), names.held_in(at_end)
    changed = [name for name, version in old.items() if _oid(new.get(name)) != _oid(version)]
    if changed and options.on_relation_change == "fail":
        name = changed[0]
        relations = old[name].relation.oid, _oid(new.get(name))
        raise _other_relation(options, name, relations, at_end, after, until)
    selected: dict[int, dict[str, RelationVersion]] = {}
    for name, version in new.items():
        oid, begin = version.relation.oid, after
        if oid != _oid(old.get(name)) and oid in before.relations:  # under other names
            begin = log.begin.lsn
            if oid in log.relations_at(begin).relations:
                raise _pruned(name, log, oid, after, until)
        selected.setdefault(begin, {})[name] = version
    return selected


def _oid(version: RelationVersion | None) -> int | None:
    return None if version is None else version.relation.oid


def _other_relation(
    options: SourceOptions,
    table: str,
    relations: tuple[int, int | None],
    at_end: Scope,
    after: int,
    until: int,
) -> LogError:
    """Return the error for a stream of a table whose name another relation, or none, has now."""
    old, new = relations
    holder = "no relation has" if new is None else f"relation {new} has"
    name = at_end.relations[old][1].qualified_name
    renamed = "" if name == table else f"; relation {old} is {name} now"
    replace = (
        "Set onRelationChange=replace to continue with the one that has the name: latest and "
        "merge_into then replace the rows."
    )
    hint = replace
    if options.table is not None:  # the only one of the stream
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
