"""Rows of a server's table as a DataFrame, which Spark's tasks read by COPY.

A value is converted as if it had come through the log: COPY's output becomes Insert messages, and
the codec decodes them into the types that the changes of the table have on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec import Begin, Decoder, encode_message
from pgwire_codec.capture.catalog.published_tables import PublishedTable
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.capture.snapshot.table_copies import TableCopies
from pgwire_codec.capture.snapshot.table_ranges import TableRange
from pgwire_codec.lake.table_schema import TableSchema, table_schema, to_record_batch
from pgwire_codec.options import DecoderOptions
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema, spark_schema
from pgwire_codec.spark.comparing.server_state import server_errors
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import default_registry, registry_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_BEGIN: Final = encode_message(Begin(final_lsn=1, commit_time=0, xid=1))


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads ranges of a table in one snapshot. Spark's tasks have a copy each.

    Attributes
    ----------
    dsn, snapshot : str
        Of the server's state.
    ranges : tuple of TableRange
    options : DecoderOptions
    table : TableSchema
    arrow : pyarrow.Schema
        Its columns, as Spark takes them.
    """

    dsn: str = field(repr=False)  # it may contain a password
    snapshot: str
    ranges: tuple[TableRange, ...]
    options: DecoderOptions
    table: TableSchema
    arrow: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the ranges whose numbers the batches have."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.ranges[number])

    def _read(self, part: TableRange) -> Iterator[pa.RecordBatch]:
        registry = registry_with(part.table.user_types, default_registry)
        decoder = Decoder(options=replace(self.options, atomic=False, registry=registry))
        decoder.decode([_BEGIN, *part.table.description()])
        interrupt = Interrupt()
        session = CopySession(self.dsn, self.snapshot, [part.table], interrupt)
        with closing(session), server_errors():
            session.open()
            copies = TableCopies([session], binary=False, interrupt=interrupt)
            with closing(copies.rows([part], {})) as copied:
                for rows in copied:
                    buffers = [None, pa.py_buffer(rows.offsets), pa.py_buffer(rows.messages)]
                    messages = pa.Array.from_buffers(pa.binary(), rows.rows, buffers)
                    for changes in decoder.decode(messages).batches:
                        yield cast_batch(to_record_batch(changes, self.table).columns, self.arrow)


def schema_of(
    table: PublishedTable, options: DecoderOptions, held: Mapping[str, DataType]
) -> TableSchema:
    """Return the schema of a table's rows: its own columns only.

    Columns that are strings in ``held`` are text.
    """
    from pyspark.sql.types import StringType

    version = RelationVersion(table.relation, table.types)
    registry = registry_with(table.user_types, default_registry)
    schema = table_schema(
        version, [version], options.type_options, registry, before="none", invalid=False
    )
    as_text = {
        name
        for name in schema.columns
        if isinstance(held.get(name), StringType)
        and not pa.types.is_string(schema.arrow.field(name).type)
    }
    fields = [
        pa.field(name, pa.string() if name in as_text else schema.arrow.field(name).type)
        for name in schema.columns
    ]
    return replace(schema, arrow=pa.schema(fields), as_text=schema.as_text | as_text, metadata={})


def server_rows(
    spark: SparkSession,
    dsn: str,
    snapshot: str,
    ranges: Sequence[TableRange],
    schema: TableSchema,
    options: DecoderOptions,
    jobs: int,
) -> DataFrame:
    """Return the rows of a table's ranges in a snapshot, read over so many connections."""
    reader: Any = TableReader(
        dsn, snapshot, tuple(ranges), options, schema, spark_arrow_schema(schema.arrow)
    ).__call__
    numbers = spark.range(0, len(ranges), 1, min(jobs, len(ranges)))
    return numbers.mapInArrow(reader, spark_schema(schema.arrow))
