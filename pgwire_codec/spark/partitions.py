"""Partitions of a log as Spark's tasks read them: planning, and decoding of one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError
from pgwire_codec.log import Log, LogPartition
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.options import SourceOptions


class PgoutputPartition(InputPartition):
    """Work of one task: decode the changes of a relation, or of all relations."""

    def __init__(self, partition: LogPartition, relation_oid: int | None) -> None:
        super().__init__(None)
        self.partition = partition
        self.relation_oid = relation_oid


def plan_partitions(
    log: Log,
    options: SourceOptions,
    rows: RowFormat,
    after: int | None,
    until: int | None,
    relation_oid: int | None,
) -> list[InputPartition]:
    """Plan the reading of the transactions with ``after < commit_lsn <= until``.

    ``relation_oid`` selects the changes of one relation; None those of all. Raises ``TableError``
    when the table has changed in a way that the row format does not fit.
    """
    plan = log.plan(
        after,
        until,
        relation_oid=relation_oid,
        max_partition_bytes=options.max_partition_bytes,
        on_error=options.on_error,
    )
    rows.check([each for each in plan.versions if each.relation.oid == relation_oid])
    return [PgoutputPartition(each, relation_oid) for each in plan.partitions]


def read_partition(
    partition: InputPartition, options: SourceOptions, rows: RowFormat
) -> Iterator[pa.RecordBatch]:
    """Decode a partition. For a plan without partitions, Spark creates an empty one itself.

    Raises ``DecodeError``, with the place in its context.
    """
    if isinstance(partition, PgoutputPartition):
        for batch in partition.partition.decode(options.decoder):
            if partition.relation_oid not in (None, batch.relation.oid):
                continue
            try:
                found = rows.record_batch(batch)
            except DecodeError as error:
                raise _placed(error, batch, partition.partition) from None
            yield found


def _placed(error: DecodeError, batch: ChangeBatch, partition: LogPartition) -> DecodeError:
    """Return the error with the place in the log of the value that does not decode."""
    index = error.message_index or 0
    (row,) = [row for row in range(len(batch)) if batch.message_index(row) == index][:1]
    last = partition.first_ordinal + partition.messages - 1
    return error.at(
        index,
        f"{error.context}; {batch.version.qualified_name}, commit LSN "
        f"{format_lsn(int(batch.commit_lsn[row]))}, segment {partition.segment}, ordinals "
        f"{partition.first_ordinal} to {last}",
    )
