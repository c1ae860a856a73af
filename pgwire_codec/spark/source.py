"""``format("pgoutput")``: a log as a data source, batch and streaming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError
from pgwire_codec.log import Log
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.formats.native import Shape, shape_of, spark_schema
from pgwire_codec.spark.options import SourceOptions, parse_options
from pgwire_codec.spark.relations import select_relation

if TYPE_CHECKING:
    from pgwire_codec.log.partition import LogPartition
    from pgwire_codec.spark.stream_reader import PgoutputStreamReader


class PgoutputDataSource(DataSource):
    """The committed changes of a log, decoded by Spark's Python workers from the log's files.

    Spark finds it by itself as ``format("pgoutput")``, since the package ``pyspark_pgwire`` is
    installed with this one.

    Options
    -------
    path
        Where the log is: a directory, or a URI that ``pyarrow.fs`` understands, readable from every
        executor.
    table
        ``schema.table``: the relation that has this name at the end of the range, with all that it
        did under earlier names. Others that had the name before are other tables. Rows have the
        columns of its newest version, then the metadata columns of :func:`decode_changes`. Without
        it, a row is a change of any table: ``relation``, ``op``, ``new`` and ``old`` (maps of
        column to text; a column that was not sent is not in it) and the metadata columns.
    relationOid
        OID of a relation, in place of ``table``: read whatever its name is or was.
    withRelationOid
        ``true``: with the metadata column ``_relation_oid``; ``false`` by default.
    columns
        Only these of the table's columns, with commas between them; others are not decoded.
    startingLsn, endingLsn
        Only transactions that commit after the first, and up to the second: an LSN (``0/16B3748``)
        or its value. ``startingLsn`` is where one stopped: it is exclusive, as PostgreSQL's own.
        A stream takes ``startingLsn`` when it is new, and has no end.
    onRelationChange
        What a stream of a ``table`` does when another relation has its name at the end of a
        micro-batch, or none. ``fail`` (default): it stops with an error. ``replace``: the
        micro-batch has everything that the new relation did since the log's beginning, and nothing
        of the old one; rows have ``_relation_oid``, by which :func:`latest` and :func:`merge_into`
        replace the table. It is empty as long as no relation has the name.
    style
        ``native`` (default); ``debezium``: ``before``, ``after``, ``op``, ``source`` and ``ts_ms``;
        ``delta``: ``_change_type``, ``_commit_version`` and ``_commit_timestamp``, an update as its
        preimage (where the server sent the old tuple) and its postimage.
    types, numeric, before, unrepresentable, onError
        As for :class:`pgwire_codec.Decoder`.
    maxPartitionBytes
        Bytes of the log that a task reads, 32m by default.
    maxBytesPerTrigger
        Bytes of messages in a micro-batch, about; by default all there are.
    """

    @classmethod
    def name(cls) -> str:
        return "pgoutput"

    def schema(self) -> StructType:
        options = self._options()
        shape, _ = _shape(options, Log(options.path))
        return spark_schema(shape.schema)

    def reader(self, schema: StructType) -> PgoutputReader:
        options = self._options()
        shape, relation_oid = _shape(options, Log(options.path))
        return PgoutputReader(options, _checked(shape, schema), relation_oid)

    def streamReader(self, schema: StructType) -> PgoutputStreamReader:  # noqa: N802  (Spark's)
        from pgwire_codec.spark.stream_reader import PgoutputStreamReader

        options = self._options()
        shape, relation_oid = _shape(options, Log(options.path))
        return PgoutputStreamReader(options, _checked(shape, schema), relation_oid)

    def _options(self) -> SourceOptions:
        return parse_options(dict(self.options))


class Partition(InputPartition):
    """What one task decodes: the changes of a relation, or of all."""

    def __init__(self, partition: LogPartition, relation_oid: int | None) -> None:
        super().__init__(None)
        self.partition = partition
        self.relation_oid = relation_oid


class PgoutputReader(DataSourceReader):
    """Reads the transactions of a range, once."""

    def __init__(self, options: SourceOptions, shape: Shape, relation_oid: int | None) -> None:
        self._options = options
        self._shape = shape
        self._relation_oid = relation_oid

    def partitions(self) -> list[InputPartition]:
        options = self._options
        return plan_range(
            Log(options.path),
            options,
            self._shape,
            options.starting_lsn,
            options.ending_lsn,
            self._relation_oid,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._shape)


def plan_range(
    log: Log,
    options: SourceOptions,
    shape: Shape,
    after: int | None,
    until: int | None,
    relation_oid: int | None,
) -> list[InputPartition]:
    """Plan the reading of the transactions with ``after < commit_lsn <= until``.

    ``relation_oid``: only changes of this relation; None: of all. Raises ``ValueError`` when the
    table has become something that the shape does not fit.
    """
    plan = log.plan(
        after,
        until,
        max_partition_bytes=options.max_partition_bytes,
        on_error=options.on_error,
    )
    shape.check([each for each in plan.versions if each.relation.oid == relation_oid])
    return [Partition(each, relation_oid) for each in plan.partitions]


def read_partition(
    partition: InputPartition, options: SourceOptions, shape: Shape
) -> Iterator[pa.RecordBatch]:
    """Decode a partition. Where the plan has none, Spark makes an empty one up.

    Raises ``DecodeError``, with the place in its context.
    """
    if isinstance(partition, Partition):
        for batch in partition.partition.decode(options.decoder):
            if partition.relation_oid not in (None, batch.relation.oid):
                continue
            try:
                rows = shape.record_batch(batch)
            except DecodeError as error:
                raise _placed(error, batch, partition.partition) from None
            yield rows


def _placed(error: DecodeError, batch: ChangeBatch, partition: LogPartition) -> DecodeError:
    """Say where a value stands that does not decode."""
    index = error.message_index or 0
    (row,) = [row for row in range(len(batch)) if batch.message_index(row) == index][:1]
    last = partition.first_ordinal + partition.messages - 1
    return error.at(
        index,
        f"{error.context}; {batch.version.qualified_name}, commit LSN "
        f"{format_lsn(int(batch.commit_lsn[row]))}, segment {partition.segment}, ordinals "
        f"{partition.first_ordinal} to {last}",
    )


def _shape(options: SourceOptions, log: Log) -> tuple[Shape, int | None]:
    """Return the shape of the rows, and the OID of the table that they are of, or None for all."""
    versions = log.versions
    newest = None
    if options.is_of_a_table:
        scope = log.relations_at(options.ending_lsn)
        newest = select_relation(scope, versions, options.table, options.relation_oid)
    shape = shape_of(options, newest, versions, log.source.database)
    return shape, None if newest is None else newest.relation.oid


def _checked(shape: Shape, schema: StructType) -> Shape:
    """Make sure that Spark wants what the shape gives: a user can ask for another schema."""
    ours: Any = spark_schema(shape.schema)
    if ours.simpleString() != schema.simpleString():
        raise ValueError(
            f'format("pgoutput") has a schema of its own, {ours.simpleString()}, and not '
            f"{schema.simpleString()}: leave out .schema(...); the option columns chooses among "
            "the table's columns. If a table has changed meanwhile, read anew"
        )
    return shape
