"""Rows of a server's table, which tasks read by COPY.

A value is converted as if it had come through the log: COPY's output becomes Insert messages, and
the codec decodes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import pyarrow as pa

from pgwire_codec import Begin, Decoder, encode_message
from pgwire_codec.capture.catalog.published_tables import PublishedTable
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.capture.snapshot.table_copies import TableCopies
from pgwire_codec.capture.snapshot.table_ranges import TableRange
from pgwire_codec.changes.table_schema import TableSchema, table_schema, to_record_batch
from pgwire_codec.comparing.server_state import server_errors
from pgwire_codec.options import DecoderOptions
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import default_registry, registry_with

_BEGIN: Final = encode_message(Begin(final_lsn=1, commit_time=0, xid=1))


@dataclass(frozen=True, slots=True)
class ServerRows:
    """Rows of some ranges of a table in one snapshot. Picklable."""

    #: Sign of the number of these rows in differences.
    sign: ClassVar[int] = 1

    dsn: str = field(repr=False)  # it may contain a password
    snapshot: str
    #: Of one table, at least one.
    ranges: tuple[TableRange, ...]
    options: DecoderOptions
    schema: TableSchema

    @property
    def size(self) -> int:
        """Bytes, estimated."""
        return sum(part.planned.bytes for part in self.ranges)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        table = self.ranges[0].table
        registry = registry_with(table.user_types, default_registry)
        decoder = Decoder(options=replace(self.options, atomic=False, registry=registry))
        decoder.decode([_BEGIN, *table.description()])
        interrupt = Interrupt()
        session = CopySession(self.dsn, self.snapshot, [table], interrupt)
        with closing(session), server_errors():
            session.open()
            copies = TableCopies([session], binary=False, interrupt=interrupt)
            with closing(copies.rows(self.ranges, {})) as copied:
                for rows in copied:
                    buffers = [None, pa.py_buffer(rows.offsets), pa.py_buffer(rows.messages)]
                    messages = pa.Array.from_buffers(pa.binary(), rows.rows, buffers)
                    for changes in decoder.decode(messages).batches:
                        yield to_record_batch(changes, self.schema)


def schema_of(table: PublishedTable, options: DecoderOptions) -> TableSchema:
    """Return the schema of a table's rows: its own columns only."""
    version = RelationVersion(table.relation, table.types)
    registry = registry_with(table.user_types, default_registry)
    schema = table_schema(
        version, [version], options.type_options, registry, before="none", invalid=False
    )
    fields = [schema.arrow.field(name) for name in schema.columns]
    return replace(schema, arrow=pa.schema(fields), metadata={})
