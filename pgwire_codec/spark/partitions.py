"""Partitions of a log as Spark's tasks read them: planning, and decoding of one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.identity import PossibleLeaves
from pgwire_codec.errors import DecodeError, Rejected, TableError
from pgwire_codec.log import Log, LogPartition
from pgwire_codec.spark.formats.packed import PackedTable, Packer
from pgwire_codec.spark.formats.row_format import RowFormat, row_format
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.spark.tasks import begin_task
from pgwire_codec.transactions.carry import RelationVersion


class PgoutputPartition(InputPartition):
    """Work of one task: decode the changes of a relation, or of all relations."""

    def __init__(self, partition: LogPartition, relation_oid: int | None) -> None:
        super().__init__(None)
        self.partition = partition
        self.relation_oid = relation_oid


class PackedPartition(InputPartition):
    """Work of one task: decode the changes of some relations into packed rows.

    ``tables`` are those that the partition may have changes of: the partition is as small as what
    is in it. Without a ``partition``, it has an empty row of each table.
    """

    def __init__(self, partition: LogPartition | None, tables: Mapping[int, PackedTable]) -> None:
        super().__init__(None)
        self.partition = partition
        self.tables = tables


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
        starting_time=options.starting_time,
        ending_time=options.ending_time,
        max_partition_bytes=options.max_partition_bytes,
        on_error=options.on_error,
    )
    rows.check([each for each in plan.versions if each.relation.oid == relation_oid])
    return [PgoutputPartition(each, relation_oid) for each in plan.partitions]


def plan_packed(
    log: Log,
    options: SourceOptions,
    newest: Mapping[str, RelationVersion],
    versions: Sequence[RelationVersion] | None,
    after: int | None,
    until: int | None,
) -> tuple[dict[int, PackedTable], list[InputPartition]]:
    """Plan the reading of some tables into packed rows; return their formats, by OID, too.

    ``newest`` has the newest versions by name. ``versions`` are those of all relations that the
    tables' schemas must fit, by default those that are valid in the range.
    """
    plan = log.plan(
        after,
        until,
        relation_oid=[version.relation.oid for version in newest.values()],
        starting_time=options.starting_time,
        ending_time=options.ending_time,
        max_partition_bytes=options.max_partition_bytes,
        on_error=options.on_error,
    )
    of_relation: dict[int, list[RelationVersion]] = {}
    for version in plan.versions if versions is None else versions:
        of_relation.setdefault(version.relation.oid, []).append(version)
    scope = log.relations_at(until)
    leaves = PossibleLeaves(version for _, version in scope.relations.values())
    tables = {}
    for name, version in newest.items():
        oid = version.relation.oid
        known = [*of_relation.get(oid, []), version]
        rows = row_format(options, version, known, log.source.database, leaves, log.registry)
        tables[oid] = PackedTable(name, rows)
    planned: list[InputPartition] = []
    for partition, changed in zip(plan.partitions, plan.changed, strict=True):
        oids = tables.keys() if changed is None else tables.keys() & changed
        needed = {oid: tables[oid] for oid in sorted(oids)}
        planned.append(PackedPartition(partition, needed))
    return tables, planned


def read_partition(
    partition: InputPartition, options: SourceOptions, rows: RowFormat | None
) -> Iterator[pa.RecordBatch]:
    """Decode a partition. For a plan without partitions, Spark creates an empty one itself.

    ``rows`` is the format of rows that are not packed. Raises ``DecodeError``, with the place in
    its context.
    """
    begin_task()
    if isinstance(partition, PackedPartition):
        yield from _packed(partition, options)
    elif isinstance(partition, PgoutputPartition):
        assert rows is not None
        oid = partition.relation_oid
        if oid is None:
            for batch in partition.partition.decode(options.decoder):
                yield _records(rows, batch, partition.partition)
            return
        letters: list[Rejected] = []
        for batch in _batches(partition.partition, options, {oid}, letters):
            yield _records(rows, batch, partition.partition)
        if options.on_error == "raise":
            # A damaged message of another relation concerns the readers of that one.
            for letter in letters:
                if letter.relation_oid in (None, oid):
                    raise partition.partition.error(letter)


def _packed(partition: PackedPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    packer = Packer(partition.tables)
    if partition.partition is None:
        yield from packer.empty()
        return
    letters: list[Rejected] = []
    for batch in _batches(partition.partition, options, partition.tables.keys(), letters):
        oid = batch.relation.oid
        try:
            records = _records(partition.tables[oid].rows, batch, partition.partition)
        except DecodeError as error:
            if not options.errors_by_table:
                raise
            packer.reject(oid, error)
        except TableError as error:
            packer.reject(oid, error)
        else:
            yield from packer.add(oid, records)
    for letter in letters:
        changed = letter.relation_oid
        if options.collects_letters:
            packer.set_apart(letter)
        elif options.errors_by_table and changed is not None and changed in partition.tables:
            packer.reject(changed, partition.partition.error(letter))
        elif options.on_error == "raise":
            raise partition.partition.error(letter)
    yield from packer.finish()


def _batches(
    partition: LogPartition,
    options: SourceOptions,
    oids: Collection[int],
    letters: list[Rejected],
) -> Iterator[ChangeBatch]:
    """Yield the changes of some relations; add the messages that do not decode to ``letters``."""
    for batch in partition.decode(options.decoder, letters):
        if batch.relation.oid in oids:
            yield batch


def _records(rows: RowFormat, batch: ChangeBatch, partition: LogPartition) -> pa.RecordBatch:
    try:
        return rows.record_batch(batch)
    except DecodeError as error:
        raise partition.placed(error, batch) from None
