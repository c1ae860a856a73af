"""Partitions of a log as Spark's tasks read them, and the reader of a batch of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.log import Log, LogPartition, LogPlan
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.spark.tasks import begin_task


class PgoutputPartition(InputPartition):
    """Work of one task: decode the changes of a relation, or of all relations."""

    def __init__(self, partition: LogPartition, relation_oid: int | None) -> None:
        super().__init__(None)
        self.partition = partition
        self.relation_oid = relation_oid


class PgoutputReader(DataSourceReader):
    """Reads the transactions of a range, once."""

    def __init__(self, options: SourceOptions, rows: RowFormat, relation_oid: int | None) -> None:
        self._options = options
        self._rows = rows
        self._relation_oid = relation_oid

    def partitions(self) -> list[InputPartition]:
        options, log = self._options, Log(self._options.path)
        after, until = options.starting_lsn, options.ending_lsn
        return plan_partitions(log, options, self._rows, after, until, self._relation_oid)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._rows)


def plan_log(
    log: Log,
    options: SourceOptions,
    after: int | None,
    until: int | None,
    relation_oid: int | Collection[int] | None,
) -> LogPlan:
    """Plan the reading of the transactions with ``after < commit_lsn <= until``."""
    return log.plan(
        after,
        until,
        relation_oid=relation_oid,
        starting_time=options.starting_time,
        ending_time=options.ending_time,
        max_partition_bytes=options.max_partition_bytes,
        on_error=options.on_error,
    )


def plan_partitions(
    log: Log,
    options: SourceOptions,
    rows: RowFormat,
    after: int | None,
    until: int | None,
    relation_oid: int | None,
) -> list[InputPartition]:
    """Plan the reading of the changes of one relation, or of all, in a range.

    Raises ``TableError`` when the table has changed in a way that the row format does not fit.
    """
    plan = plan_log(log, options, after, until, relation_oid)
    rows.check([each for each in plan.versions if each.relation.oid == relation_oid])
    return [PgoutputPartition(each, relation_oid) for each in plan.partitions]


def read_partition(
    partition: InputPartition, options: SourceOptions, rows: RowFormat
) -> Iterator[pa.RecordBatch]:
    """Decode a partition. For a plan without partitions, Spark creates an empty one itself.

    For a plan without partitions, Spark creates an empty one itself. Raises ``DecodeError``, with
    the place in its context.
    """
    begin_task()
    if not isinstance(partition, PgoutputPartition):
        return
    oid = partition.relation_oid
    letters: list[Rejected] | None = None if oid is None else []
    for batch in partition.partition.decode(options.decoder, letters):
        if oid in (None, batch.relation.oid):
            yield _records(rows, batch, partition.partition)
    for letter in letters or ():
        # A damaged message of another relation concerns the readers of that one.
        if options.on_error == "raise" and letter.relation_oid in (None, oid):
            raise partition.partition.error(letter)


def _records(rows: RowFormat, batch: ChangeBatch, partition: LogPartition) -> pa.RecordBatch:
    try:
        return rows.record_batch(batch)
    except DecodeError as error:
        raise partition.placed(error, batch) from None
