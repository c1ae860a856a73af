"""ServerState: the tables of a server in one snapshot, and their rows, which tasks read by COPY.

A value is converted as if it had come through the log: COPY's output becomes Insert messages, and
the codec decodes them. For snapshots, see PostgreSQL's documentation, "Snapshot Synchronization
Functions" and "Asynchronous Commit".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from pgwire_codec import Begin, Decoder, encode_message
from pgwire_codec.capture.catalog.published_tables import (
    PublishedTable,
    check_readable,
    files_of,
    named_tables,
    partitions_of,
    published_tables,
)
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.connection.session_settings import disable_timeouts
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.capture.snapshot.table_copies import TableCopies
from pgwire_codec.capture.snapshot.table_ranges import TableRange, table_ranges
from pgwire_codec.changes.table_schema import TableSchema, table_schema, to_record_batch
from pgwire_codec.errors import CaptureError
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import default_registry, registry_with

_POLL_SECONDS: Final = 0.05

_BEGIN: Final = encode_message(Begin(final_lsn=1, commit_time=0, xid=1))


@dataclass(frozen=True, slots=True)
class _Description:
    """A table, and its files: another file means that it was truncated or rewritten."""

    table: PublishedTable
    files: frozenset[tuple[int, int]]


class ServerState:
    """Tables of a server in one exported snapshot, which ends with the context.

    Entering reads the descriptions of the tables, and :meth:`take` takes the snapshot.

    ``columns`` has the tables of the log, by name: OID of the relation, and names of its columns,
    which are read whether they are published or not. If there are ``publications``, their tables,
    rows and columns are meant; otherwise, the log's tables, and all of their rows.
    """

    snapshot: str  # name of the snapshot
    lsn: int  # everything that the snapshot sees was committed before this LSN
    #: True if no transaction was writing. Otherwise, one whose commit is in the WAL already may be
    #: invisible.
    is_quiet: bool
    tables: dict[str, PublishedTable]
    partitions: set[int]  # OIDs of partitions that are published as one of these tables

    def __init__(
        self,
        dsn: str,
        publications: Sequence[str],
        columns: Mapping[str, tuple[int, Collection[str]]],
    ) -> None:
        self._dsn = dsn
        self._publications = list(publications)
        self._names = list(columns)
        self._columns = dict(columns.values())
        self._stack = ExitStack()

    def __enter__(self) -> ServerState:
        with ExitStack() as stack:
            current, holder = (stack.enter_context(closing(connect(self._dsn))) for _ in range(2))
            self._current, self._holder = current.cursor(), holder.cursor()
            with _server_errors():
                self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def take(self) -> None:
        """Take the snapshot."""
        with _server_errors():
            disable_timeouts(self._holder)
            self._holder.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._holder.execute("SELECT pg_export_snapshot(), txid_current_snapshot()::text")
            self.snapshot, visible = self._holder.fetchone()
            self.is_quiet = not visible.rpartition(":")[2]
            self.lsn = _end_of_commits(self._current)

    def ranges(self, name: str) -> list[TableRange]:
        """Return the ranges of a table, which connections read side by side."""
        with _server_errors():
            return table_ranges(self._current, [self.tables[name]])

    def changed(self) -> set[str]:
        """Return the tables that were altered, truncated or dropped since.

        The snapshot does not protect from that: a truncated table is empty in it, too.
        """
        with _server_errors():
            now = self._describe()
        return {name for name, before in self._described.items() if now.get(name) != before}

    def _open(self) -> None:
        self._check_publications()
        self._described = self._describe()
        self.tables = {name: before.table for name, before in self._described.items()}
        oids = [table.relation.oid for table in self.tables.values()]
        self.partitions = partitions_of(self._current, oids) if self._publications else set()
        check_readable(self._current, oids)

    def _check_publications(self) -> None:
        self._current.execute("SELECT pubname::text FROM pg_publication")
        existing = {name for (name,) in self._current.fetchall()}
        unknown = [name for name in self._publications if name not in existing]
        if unknown:
            raise CaptureError(
                f"publication {', '.join(unknown)} does not exist",
                hint=f"The database's publications: {', '.join(sorted(existing)) or 'none'}.",
            )

    def _describe(self) -> dict[str, _Description]:
        if self._publications:
            tables = published_tables(self._current, self._publications, self._columns)
        else:
            tables = named_tables(self._current, self._names, self._columns)
        return {
            RelationVersion(table.relation).qualified_name: _Description(
                table, frozenset(files_of(self._current, [table]))
            )
            for table in tables
        }


@dataclass(frozen=True, slots=True)
class ServerRows:
    """Rows of some ranges of a table in one snapshot. Picklable."""

    sign: ClassVar[int] = 1  # sign of the number of these rows in differences

    dsn: str = field(repr=False)  # it may contain a password
    snapshot: str
    ranges: tuple[TableRange, ...]  # of one table, at least one
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
        with closing(session), _server_errors():
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


@contextmanager
def _server_errors() -> Iterator[None]:
    """Convert the server's errors."""
    try:
        yield
    except load_psycopg2().Error as error:
        raise capture_error(error, "") from error


def _end_of_commits(cursor: Any) -> int:
    """Return an LSN after every commit that is visible now, up to which the WAL is flushed.

    Only an asynchronous commit is visible before it is flushed. That takes at most three times
    ``wal_writer_delay``. The position of the next insertion is no such LSN: it can be beyond the
    header of a page that does not exist yet.
    """
    cursor.execute(
        "SELECT pg_current_wal_insert_lsn(), 3 * setting::int FROM pg_settings"
        " WHERE name = 'wal_writer_delay'"
    )
    inserted, milliseconds = cursor.fetchone()
    deadline = time.monotonic() + milliseconds / 1000
    while True:
        is_over = time.monotonic() > deadline
        cursor.execute("SELECT pg_current_wal_flush_lsn()")
        flushed = parse_lsn(cursor.fetchone()[0])
        if is_over or flushed >= parse_lsn(inserted):
            return flushed
        time.sleep(_POLL_SECONDS)
