"""PgoutputStreamReader: a log as a stream of micro-batches of whole transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log import Log, LogPosition
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.spark.partitions import plan_packed, plan_partitions, read_partition
from pgwire_codec.spark.selection import SelectedRelations, TableNames, select_in_range


class PgoutputStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a log while it grows.

    An offset is a position in the log. A micro-batch has the transactions whose commit LSN is in
    its range, wherever their changes are in the log. So it is the same each time that it is read,
    and consecutive micro-batches have every change once.

    A table is the relation that has its name at the end of a micro-batch. If another relation has
    it at the beginning, the query fails, or the micro-batch has all changes of the new relation:
    see the option ``onRelationChange``.
    """

    def __init__(
        self, options: SourceOptions, rows: RowFormat | None, relation_oid: int | None
    ) -> None:
        if options.ending_lsn is not None:
            raise OptionError("a stream has no endingLsn", hint="Use spark.read for a range.")
        self._options = options
        self._rows = rows
        self._relation_oid = relation_oid  # if the options table and tables are not set
        self._names: TableNames | None = None
        if options.tables is not None:
            self._names = TableNames.parse(options.tables)
        elif options.table is not None:
            self._names = TableNames((options.table,))
        self._log: Log | None = None
        self._target: LogPosition | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only read partitions, which contain the log's location.
        return self.__dict__ | {"_log": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (the names are Spark's)
        log = self._refreshed()
        after = self._options.starting_lsn
        return to_offset(log.begin if after is None else _position_of(log, after))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._refreshed().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        log = self._refreshed()
        begin = from_offset(start)
        end = log.end if self._target is None else self._target
        if isinstance(limit, ReadMaxBytes):
            end = _position_within(log, begin, end, limit.max_bytes)
        # Messages without a commit make no micro-batch.
        return to_offset(end) if end.lsn > begin.lsn else start

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_offset(self._refreshed().end)

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
        return self._plan(log, after.lsn, until.lsn)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._rows)

    def _plan(self, log: Log, after: int, until: int) -> list[InputPartition]:
        """Plan a micro-batch. It depends on the range alone: the same when the log has grown."""
        options = self._options
        if self._names is None:
            assert self._rows is not None
            return plan_partitions(log, options, self._rows, after, until, self._relation_oid)
        selected = select_in_range(log, self._names, options, after, until)
        if self._rows is None:
            return self._plan_packed(log, selected, after, until)
        for version in selected.versions.values():  # of the one table
            oid = version.relation.oid
            begin = log.begin.lsn if oid in selected.replacing else after
            return plan_partitions(log, options, self._rows, begin, until, oid)
        return []

    def _plan_packed(
        self, log: Log, selected: SelectedRelations, after: int, until: int
    ) -> list[InputPartition]:
        replacing = {
            name: version
            for name, version in selected.versions.items()
            if version.relation.oid in selected.replacing
        }
        others = {name: each for name, each in selected.versions.items() if name not in replacing}
        planned = []
        for begin, versions in ((after, others), (log.begin.lsn, replacing)):
            if versions:
                planned += plan_packed(log, self._options, versions, None, begin, until)[1]
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


def _position_of(log: Log, lsn: int) -> LogPosition:
    """Return the position after the last transaction that commits up to an LSN."""
    ordinal = log.begin.ordinal
    for segment in log.segments:
        for part in segment.parts:
            if part.delivered_lsn > lsn:
                return LogPosition(ordinal, lsn)
            ordinal = part.end_ordinal
    return LogPosition(ordinal, lsn)


def _position_within(log: Log, begin: LogPosition, end: LogPosition, most: int) -> LogPosition:
    """Return the end of the last part before which there are at most ``most`` message bytes.

    The result is after at least one part, and after the end of at least one transaction.
    """
    taken = 0
    found = begin
    for segment in log.segments:
        if segment.end_ordinal <= begin.ordinal:
            continue
        for part in segment.parts:
            if part.end_ordinal <= begin.ordinal or part.first_ordinal >= end.ordinal:
                continue
            taken += part.message_bytes
            if taken > most and found.lsn > begin.lsn:
                return found
            found = LogPosition(part.end_ordinal, part.delivered_lsn)
            if part.end_ordinal >= end.ordinal:
                return end
    return found
