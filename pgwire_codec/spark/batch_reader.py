"""Readers of a range of a log: of rows, and of many tables' packed rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgwire_codec.lake.table_names import TableNames, no_table
from pgwire_codec.log import Log
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.spark.partitions import (
    PackedPartition,
    plan_packed,
    plan_partitions,
    read_partition,
)


class PgoutputReader(DataSourceReader):
    """Reads the transactions of a range, once."""

    def __init__(self, options: SourceOptions, rows: RowFormat, relation_oid: int | None) -> None:
        self._options = options
        self._rows = rows
        self._relation_oid = relation_oid

    def partitions(self) -> list[InputPartition]:
        options = self._options
        return plan_partitions(
            Log(options.path),
            options,
            self._rows,
            options.starting_lsn,
            options.ending_lsn,
            self._relation_oid,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._rows)


class PackedReader(DataSourceReader):
    """Reads many tables' transactions of a range, once."""

    def __init__(self, options: SourceOptions, tables: tuple[str, ...]) -> None:
        self._options = options
        self._tables = tables

    def partitions(self) -> list[InputPartition]:
        options = self._options
        log = Log(options.path)
        newest = TableNames.parse(self._tables).select(log, options.ending_lsn)
        if not newest:
            raise no_table(self._tables, log)
        tables, planned = plan_packed(
            log, options, newest, log.versions, options.starting_lsn, options.ending_lsn
        )
        return [PackedPartition(None, tables), *planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, None)
