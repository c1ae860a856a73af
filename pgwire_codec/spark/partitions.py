"""Partitions of a log as Spark's tasks read them, and the reader of a batch of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError, Rejected, TableError
from pgwire_codec.lake.table_names import TableNames, no_table
from pgwire_codec.log import Log, LogPartition, LogPlan
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


class PgoutputReader(DataSourceReader):
    """Reads the transactions of a range, once; into packed rows if ``rows`` is None."""

    def __init__(
        self, options: SourceOptions, rows: RowFormat | None, relation_oid: int | None
    ) -> None:
        self._options = options
        self._rows = rows
        self._relation_oid = relation_oid

    def partitions(self) -> list[InputPartition]:
        options, log = self._options, Log(self._options.path)
        after, until = options.starting_lsn, options.ending_lsn
        if self._rows is not None:
            return plan_partitions(log, options, self._rows, after, until, self._relation_oid)
        names = options.tables or ()
        newest = TableNames.parse(names).select(log, until)
        if not newest:
            raise no_table(names, log)
        tables, planned = plan_packed(log, options, newest, log.versions, after, until)
        return [PackedPartition(None, tables), *planned]

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
    oids = [version.relation.oid for version in newest.values()]
    plan = plan_log(log, options, after, until, oids)
    of_relation: dict[int, list[RelationVersion]] = {}
    for version in plan.versions if versions is None else versions:
        of_relation.setdefault(version.relation.oid, []).append(version)
    leaves = log.leaves_at(plan.until)
    tables = {}
    for name, version in newest.items():
        oid = version.relation.oid
        known = [*of_relation.get(oid, []), version]
        rows = row_format(options, version, known, log, leaves)
        tables[oid] = PackedTable(name, rows)
    planned: list[InputPartition] = []
    for partition, changed in zip(plan.partitions, plan.changed, strict=True):
        needed = tables.keys() if changed is None else tables.keys() & changed
        planned.append(PackedPartition(partition, {oid: tables[oid] for oid in sorted(needed)}))
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
        letters: list[Rejected] | None = None if oid is None else []
        for batch in partition.partition.decode(options.decoder, letters):
            if oid in (None, batch.relation.oid):
                yield _records(rows, batch, partition.partition)
        for letter in letters or ():
            # A damaged message of another relation concerns the readers of that one.
            if options.on_error == "raise" and letter.relation_oid in (None, oid):
                raise partition.partition.error(letter)


def _packed(packed: PackedPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    packer, tables, partition = Packer(packed.tables), packed.tables, packed.partition
    if partition is None:
        yield from packer.empty()
        return
    letters: list[Rejected] = []
    for batch in partition.decode(options.decoder, letters):
        oid = batch.relation.oid
        if oid not in tables:
            continue
        try:
            records = _records(tables[oid].rows, batch, partition)
        except (DecodeError, TableError) as error:
            if isinstance(error, DecodeError) and not options.errors_by_table:
                raise
            packer.reject(oid, error)
        else:
            yield from packer.add(oid, records)
    for letter in letters:
        changed = letter.relation_oid
        if options.collects_letters:
            packer.set_apart(letter)
        elif options.errors_by_table and changed is not None and changed in tables:
            packer.reject(changed, partition.error(letter))
        elif options.on_error == "raise":
            raise partition.error(letter)
    yield from packer.finish()


def _records(rows: RowFormat, batch: ChangeBatch, partition: LogPartition) -> pa.RecordBatch:
    try:
        return rows.record_batch(batch)
    except DecodeError as error:
        raise partition.placed(error, batch) from None
