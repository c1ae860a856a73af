"""``format("pgoutput")``: a log as a data source of Spark, batch and streaming."""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pgwire_codec.changes.identity import PossibleLeaves
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.log import Log
from pgwire_codec.log.relations import select_relation
from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.formats.row_format import RowFormat, row_format
from pgwire_codec.spark.options import SourceOptions, parse_options
from pgwire_codec.spark.partitions import PgoutputReader
from pgwire_codec.spark.stream_reader import PgoutputStreamReader


class PgoutputDataSource(DataSource):
    """The committed changes of a log, decoded by Spark's Python workers from the log's files.

    Spark finds it as ``format("pgoutput")``, because the package ``pyspark_pgwire`` is installed
    with this one.

    Options
    -------
    path
        Location of the log: a directory, or a URI that ``pyarrow.fs`` understands, readable from
        every executor.
    table
        ``schema.table``: the relation that has this name at the end of the range, with all its
        changes under earlier names. Other relations that had the name are other tables. Rows have
        the columns of its newest version, then the metadata columns of :func:`decode_changes`.
        Without this option, a row is a change of any table: ``relation``, ``op``, ``new`` and
        ``old`` (maps of column to text, without columns that were not sent) and the metadata
        columns.
    relationOid
        OID of a relation, in place of ``table``. It is read under all its names.
    withRelationOid
        ``true`` adds the metadata column ``_relation_oid``; ``false`` by default.
    columns
        Columns of the table to decode, separated by commas; by default all.
    startingLsn, endingLsn
        Only transactions that commit after the first and not after the second: an LSN
        (``0/16B3748``) or its value. ``startingLsn`` is exclusive, as PostgreSQL's own. A stream
        uses ``startingLsn`` when it has no checkpoint yet, and has no end.
    startingTimestamp, endingTimestamp
        Only transactions with a commit time from the first to the second, both included, as for
        Delta's change data feed: times with an offset, such as ``2026-01-31T12:00:00Z``. They are a
        filter of the range of LSNs, because clocks can be set back. A stream does not have them.
    onRelationChange
        Action of a stream of ``table`` when another relation, or no relation, has the table's
        name at the end of a micro-batch. ``fail`` (default): the stream stops with an
        error. ``replace``: the micro-batch has all changes of the new relation since the log's
        beginning, and none of the old one. Rows have ``_relation_oid``, by which :func:`latest` and
        :func:`merge_into` replace the table. Without a relation of that name, it has no rows.
    style
        ``native`` (default); ``debezium``: ``before``, ``after``, ``op``, ``source`` and ``ts_ms``.
    types, numeric, before, unrepresentable, onError
        As for :class:`pgwire_codec.Decoder`. :func:`read_dead_letters` returns the messages that
        ``onError=skip`` leaves out.
    checkIdentity
        ``true``: the query fails if an update or delete was sent with another replica identity than
        the table has at the end of the range. ``false`` by default.
    pushFilters
        ``true``: a batch reads only the transactions that conditions on ``_commit_lsn`` and
        ``_commit_time`` accept, or on ``source.commit_lsn`` with ``style=debezium``, as with
        ``startingLsn``, ``endingLsn``, ``startingTimestamp`` and ``endingTimestamp``. It needs
        Spark 4.1 and the session's ``spark.sql.python.filterPushdown.enabled=true``, without which
        the query fails. ``false`` by default: Spark filters all rows.
    maxPartitionBytes
        Bytes of messages that a task reads; by default 32m.
    maxBytesPerTrigger
        Approximate bytes of messages in a micro-batch, from Spark 4.2 on. By default, a micro-batch
        has all available changes.
    """

    @classmethod
    def name(cls) -> str:
        return "pgoutput"

    def schema(self) -> StructType:
        rows, _ = _row_format(self._options())
        return spark_schema(rows.schema)

    def reader(self, schema: StructType) -> PgoutputReader:
        options = self._options()
        return reader_class(options)(options, *_checked_format(options, schema))

    def streamReader(self, schema: StructType) -> PgoutputStreamReader:  # noqa: N802  (Spark's)
        options = self._options()
        reader = stream_reader_class(options)
        return reader(options, *_checked_format(options, schema))

    def _options(self) -> SourceOptions:
        return parse_options(dict(self.options))


def reader_class(options: SourceOptions) -> type[PgoutputReader]:
    """Return the class of a batch reader, by what the options ask for."""
    if not options.push_filters:  # Spark refuses a reader with a method that is not enabled
        return PgoutputReader
    try:
        from pgwire_codec.spark.filters import FilteringReader
    except ImportError:  # Spark 4.0
        raise OptionError(f"pushFilters needs Spark 4.1, not {pyspark.__version__}") from None
    return FilteringReader


def stream_reader_class(options: SourceOptions) -> type[PgoutputStreamReader]:
    """Return the class of a stream's reader, by what this release of Spark supports."""
    try:
        from pgwire_codec.spark.admission import AdmittingStreamReader
    except ModuleNotFoundError:  # Spark 4.0 and 4.1
        if options.max_bytes_per_trigger is not None:
            raise OptionError(
                f"maxBytesPerTrigger needs Spark 4.2, not {pyspark.__version__}",
                hint="Without it, a micro-batch has all available changes.",
            ) from None
        return PgoutputStreamReader
    return AdmittingStreamReader


def _row_format(options: SourceOptions) -> tuple[RowFormat, int | None]:
    """Return the format of the rows, and the OID of their table if they are of one."""
    log = Log(options.path)
    versions = log.versions
    newest = None
    scope = log.relations_at(options.ending_lsn)
    if options.is_of_a_table:
        newest = select_relation(
            scope, lambda: versions, table=options.table, relation_oid=options.relation_oid
        )
    leaves = PossibleLeaves(version for _, version in scope.relations.values())
    rows = row_format(options, newest, versions, log, leaves)
    return rows, None if newest is None else newest.relation.oid


def _checked_format(options: SourceOptions, schema: StructType) -> tuple[RowFormat, int | None]:
    """Return the format, if it has the schema that Spark asks for: a user can ask for another."""
    rows, relation_oid = _row_format(options)
    ours, theirs = spark_schema(rows.schema).simpleString(), schema.simpleString()
    if ours != theirs:
        raise TableError(
            f'format("pgoutput") has the schema {ours}, not {theirs}',
            hint="Leave out .schema(...), and choose columns with the option columns. If the table "
            "has changed meanwhile, load it again.",
        )
    return rows, relation_oid
