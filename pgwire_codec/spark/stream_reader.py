"""PgoutputStreamReader: a log as a stream of micro-batches of whole transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log import Log, LogPosition
from pgwire_codec.log.positions import position_of
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.log_counts import LogCounts
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.spark.partitions import plan_partitions, read_partition
from pgwire_codec.transactions.carry import RelationVersion, Scope


class PgoutputStreamReader(DataSourceStreamReader):
    """Reads a log while it grows.

    An offset is a position in the log. A micro-batch has the transactions whose commit LSN is in
    its range, wherever their changes are in the log. So it is the same each time that it is read,
    and consecutive micro-batches have every change once.

    A table is the relation that has its name at the end of a micro-batch. If another relation has
    it at the beginning, the query fails, or the micro-batch has all changes of the new relation:
    see the option ``onRelationChange``.

    A query of a table gets no micro-batch as long as only other tables change, up to the end of
    the segment: its offset must not stay where the log will be pruned.

    This class is that of Spark 4.0 and 4.1, which ask for the latest offset without a limit.
    """

    def __init__(self, options: SourceOptions, rows: RowFormat, relation_oid: int | None) -> None:
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
        self._relation_oid = relation_oid  # if the option table is not set
        self._log: Log | None = None
        self._place: dict[str, Any] | None = None  # end of the last micro-batch
        self._searched: LogCounts | None = None  # where its table has no later changes
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
        """Return the names of the query's table in a range; None for all tables.

        Raises ``LogError`` when its name changes hands, unless the query continues with the new
        one.
        """
        scopes = (log.relations_at(after), log.relations_at(until))
        oid = self._relation_oid
        if self._options.table is not None:
            selected = _relation_in_range(log, self._options.table, self._options, after, until)
            if selected is None:
                return set()
            oid = selected[0]
        if oid is None:
            return None
        known = [scope.relations[oid][1] for scope in scopes if oid in scope.relations]
        return {version.qualified_name for version in known}

    def _plan(self, log: Log, after: int, until: int) -> list[InputPartition]:
        """Plan a micro-batch. It depends on the range alone: the same when the log has grown."""
        options, oid = self._options, self._relation_oid
        if options.table is not None:
            selected = _relation_in_range(log, options.table, options, after, until)
            if selected is None:
                return []
            oid, after = selected
        return plan_partitions(log, options, self._rows, after, until, oid)

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


def _relation_in_range(
    log: Log, table: str, options: SourceOptions, after: int, until: int
) -> tuple[int, int] | None:
    """Return the OID of the relation that has a name at the end of a range; None if none has.

    The commit LSN after which a micro-batch has its changes is returned, too: the log's beginning
    if the relation replaces another one. The result depends on the range alone: it is the same when
    the log has grown.

    Raises ``LogError`` when another relation, or no relation, has the name that one had at the
    range's beginning, unless the option ``onRelationChange`` is ``replace``. It raises one, too,
    when earlier changes of a relation that got the name were pruned.
    """
    before, at_end = log.relations_at(after), log.relations_at(until)
    old, new = _oid(before.named(table)), _oid(at_end.named(table))
    if old is not None and new != old and options.on_relation_change == "fail":
        raise _other_relation(table, (old, new), at_end, after, until)
    if new is None:
        return None
    if new != old and new in before.relations:  # under other names
        begin = log.begin.lsn
        if new in log.relations_at(begin).relations:
            raise _pruned(table, log, new, after, until)
        return new, begin
    return new, after


def _oid(version: RelationVersion | None) -> int | None:
    return None if version is None else version.relation.oid


def _other_relation(
    table: str, relations: tuple[int, int | None], at_end: Scope, after: int, until: int
) -> LogError:
    """Return the error for a stream of a table whose name another relation, or none, has now."""
    old, new = relations
    holder = "no relation has" if new is None else f"relation {new} has"
    name = at_end.relations[old][1].qualified_name
    renamed = "" if name == table else f"; relation {old} is {name} now"
    hint = (
        f"Set relationOid={old} in place of table to continue with the old relation. "
        "Set onRelationChange=replace to continue with the one that has the name: latest and "
        "merge_into then replace the rows."
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
