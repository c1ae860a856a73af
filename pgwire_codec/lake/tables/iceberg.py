"""IcebergTarget: an Iceberg table, whose commits Iceberg's Java API writes.

A commit adds data files, marks rows of others in deletion vectors or replaces their files, and
records the position, all in one transaction. Java runs in the driver of the Spark session. Facts of
files pass as JSON, and rows do not pass at all.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import FileLayout, NewFile
from pgwire_codec.lake.folder import Folder, open_folder
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.tables.column_steps import ColumnStep
from pgwire_codec.lake.tables.iceberg_catalog import (
    CatalogTable,
    java_class,
    java_errors,
    table_error,
)
from pgwire_codec.lake.tables.iceberg_files import data_file_json, local_path, write_vectors
from pgwire_codec.lake.tables.iceberg_schema import (
    Columns,
    changed_columns,
    check_fields,
    needs_files,
    new_columns,
    plain_schema,
    to_json,
)
from pgwire_codec.lake.tables.iceberg_state import IcebergState, PositionProperties, Recorded
from pgwire_codec.lake.tables.iceberg_transaction import (
    APPEND,
    DELTA,
    REPLACE,
    REWRITE,
    FileChanges,
    IcebergTransaction,
    Operation,
)
from pgwire_codec.lake.tables.target import Commit, CommitConflict, WriteMode, attempts

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession

_LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

#: Property with the name of the table whose changes a table has.
SOURCE: Final = "pgwire_codec.table"

#: Format versions of new tables; 3 is the first that has deletion vectors.
_VERSIONS: Final[Mapping[WriteMode, int]] = {"merge-on-read": 3, "copy-on-write": 2}

#: Properties by which engines delete rows, too.
_WRITE_MODES: Final = ("write.delete.mode", "write.merge.mode", "write.update.mode")

#: Property of a table that keeps the metadata files of its last versions only, by default of 100.
_FORGETS: Final = "write.metadata.delete-after-commit.enabled"

#: Property of a table with the milliseconds for which it keeps snapshots.
_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"

#: Commits after which snapshots are removed that are older than the table keeps them.
_EXPIRY_COMMITS: Final = 100

_READERS: Final = 8  # footers of new data files that are read at the same time

#: Errors after which the table's newest state decides whether the commit is written again.
_RACES: Final = frozenset({"CommitFailedException", "CommitStateUnknownException"})


@dataclass(frozen=True, slots=True)
class _Marks:
    """Vectors that a commit adds, as Iceberg parses them, and files without other rows."""

    vectors: Mapping[str, str] = field(default_factory=dict)
    empty: Sequence[str] = ()


class IcebergTarget:
    """Iceberg table of a catalog of the session, for one stream of changes; see :class:`Target`.

    Its ``name`` is as in SQL, ``CATALOG.NAMESPACE.TABLE``. The names of its properties begin with
    the ``app_id``. It has the changes of the table ``source``. The ``write_mode`` is that of a new
    table: an existing one has deletion vectors by its format version and its property
    ``write.merge.mode``.
    """

    deletes = True

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        app_id: str,
        source: str | None = None,
        write_mode: WriteMode = "merge-on-read",
        kept_seconds: float | None = None,
    ) -> None:
        self._spark = cast(Any, spark)  # its Java objects have no types
        self._catalog_table = CatalogTable.parse(spark, name)
        self._iceberg = self._spark._jvm.org.apache.iceberg
        self.name = name
        self._properties = PositionProperties(app_id)
        self._source = {} if source is None else {SOURCE: source}
        self._write_mode = write_mode
        self._kept_seconds = kept_seconds
        self._table: Any = None
        self._state: IcebergState | None = None
        self.refresh()

    @property
    def marks(self) -> bool:
        if self._state is None:
            return self._write_mode == "merge-on-read"
        return self._state.marks

    @property
    def schema(self) -> pa.Schema | None:
        return None if self._state is None else plain_schema(self._state.columns.schema)

    @property
    def position(self) -> Position:
        return self._recorded.position

    @property
    def record(self) -> str | None:
        return self._recorded.record

    @property
    def others(self) -> Sequence[str]:
        return self._recorded.others

    @property
    def version(self) -> int | None:
        return None if self._state is None else self._state.snapshot

    @property
    def files(self) -> TableFiles:
        uri = local_path(self._location)
        if self._state is None:
            return TableFiles(self.name, uri)
        files = tuple(scanned.file for scanned in self._state.files.values())
        return TableFiles(self.name, uri, files, field_ids=self._state.columns.field_ids)

    @property
    def folder(self) -> Folder:
        """The table's folder. Data files of a new table are written before the table exists."""
        return open_folder(local_path(self._location))

    @property
    def layout(self) -> FileLayout:
        return FileLayout("data/")

    def takes(self, steps: Sequence[ColumnStep]) -> bool:
        if self._state is None:
            return True
        _, changes = changed_columns(self._state.columns, None, steps)
        return not any(map(needs_files, changes))

    def file_schema(self, schema: pa.Schema, steps: Sequence[ColumnStep] = ()) -> pa.Schema:
        if self._state is None:
            return new_columns(schema).schema
        columns, _ = changed_columns(self._state.columns, schema, steps)
        return pa.schema([columns.schema.field(name) for name in schema.names])

    def refresh(self) -> None:
        """Read what other commits have changed.

        Raises ``TableError`` for the table of another source.
        """
        with java_errors(self.name):
            self._refresh()
            if self._state is None or not self._source:
                return
            source, recorded = self._source[SOURCE], self._state.metadata.properties().get(SOURCE)
        if recorded not in (None, source):
            raise TableError(
                f"{self.name} is the table of {recorded}, not of {source}",
                hint="The catalog has the same name for both, as some do if they differ in case "
                "only. Mirror one of them into another catalog or namespace.",
            )

    def commit(self, commit: Commit) -> None:
        commit.check_base(self.name, self.position)
        identity = str(uuid.uuid4())
        if self._state is None:
            self._create(commit, identity)
            return
        before = state = self._state
        self._check(before, commit)
        marks = self._mark(before, commit.deleted)
        for _ in attempts(self.name):
            failure: Exception | None = None
            try:
                self._put(state, commit, marks, identity)
            except Exception as error:
                if java_class(error) is None:
                    raise
                failure = error
            self.refresh()
            if self._has(identity, before.snapshot):
                self._expire()
                return
            if failure is not None and java_class(failure) not in _RACES:
                raise table_error(self.name, failure) from failure
            state = self._after_race(commit, before)

    def _expire(self) -> None:
        """Remove old snapshots from time to time, and the files that only they have."""
        assert self._state is not None
        if self._state.metadata.lastSequenceNumber() % _EXPIRY_COMMITS:
            return
        try:
            self._table.expireSnapshots().commit()
        except Exception as error:
            if java_class(error) is None:
                raise
            _LOGGER.warning("old snapshots remain: %s", table_error(self.name, error))
        self.refresh()

    @property
    def _recorded(self) -> Recorded:
        return Recorded() if self._state is None else self._state.recorded

    @property
    def _location(self) -> str:
        return self._new_location if self._state is None else self._state.location

    @cached_property
    def _new_location(self) -> str:
        """Location that the catalog gives the table if it is created."""
        columns = new_columns(pa.schema([("column", pa.int64())]))
        with java_errors(self.name):
            transaction = self._builder(columns, {}).createTransaction()
            return str(transaction.table().location())

    def _builder(self, columns: Columns, properties: Mapping[str, str]) -> Any:
        schema = self._iceberg.SchemaParser.fromJson(to_json(columns.schema))
        return self._catalog_table.builder(self._spark, schema, properties)

    def _refresh(self) -> None:
        if self._table is not None:
            try:
                self._table.refresh()
            except Exception as error:
                if java_class(error) is None:
                    raise
                self._table = None  # removed, or created again
        if self._table is None:
            self._table = self._catalog_table.load(self._spark)
        if self._table is None:
            self._state = None
            return
        metadata = self._table.operations().current()
        if self._state is None or self._state.metadata_file != metadata.metadataFileLocation():
            self._state = IcebergState(self.name, self._iceberg, self._table, self._properties)

    def _has(self, identity: str, before: int | None) -> bool:
        """Return whether the table has a commit since another snapshot."""
        with java_errors(self.name):
            return self._state is not None and self._properties.is_in(
                self._state.metadata, identity, before
            )

    def _create(self, commit: Commit, identity: str) -> None:
        if commit.schema is None:
            raise TableError(f"{self.name} does not exist")
        columns, location = new_columns(commit.schema), self._new_location
        modes = dict.fromkeys(_WRITE_MODES, self._write_mode)
        version = {"format-version": str(_VERSIONS[self._write_mode])}
        properties = {**version, **modes, _FORGETS: "true", **self._source}
        if self._kept_seconds is not None:
            properties[_SNAPSHOT_AGE] = str(max(1, int(self._kept_seconds * 1000)))
        failure: Exception | None = None
        try:
            builder = self._builder(columns, properties).withLocation(location)
            started = builder.createTransaction()
            transaction = IcebergTransaction(self.name, self._iceberg, started)
            transaction.check_columns(columns)
            added = self._added(commit, columns, location, 0)
            self._finish(transaction, FileChanges(APPEND, added), commit, Recorded(), identity)
        except Exception as error:
            if java_class(error) is None:
                raise
            failure = error
        self.refresh()
        if self._has(identity, None):
            return
        if self._state is not None:
            raise CommitConflict(f"{self.name} was created by another writer")
        assert failure is not None, "a table was created and does not exist"
        raise table_error(self.name, failure) from failure

    def _check(self, state: IcebergState, commit: Commit) -> None:
        """Raise ``TableError`` for a commit that the table cannot have."""
        if state.metadata.spec().isPartitioned():
            raise TableError(
                f"{self.name} is partitioned",
                hint="Remove the table, and let the mirror create it. Or drop the partition "
                "fields, and rewrite the data files.",
            )
        if commit.deleted and not state.marks:
            raise CommitConflict(f"{self.name} has no deletion vectors any more")
        if commit.replaces or state.files.keys() <= {*commit.removed}:
            return
        _, changes = changed_columns(state.columns, commit.schema, commit.steps)
        for change in changes:
            if needs_files(change):
                raise TableError(
                    f"Iceberg cannot {change} of {self.name} without writing its files again"
                )

    def _mark(self, state: IcebergState, deleted: Mapping[str, BitMap64]) -> _Marks:
        """Write the vectors of files with more rows to delete."""
        if not deleted:
            return _Marks()
        files, vectors, marked, empty = self.files, {}, {}, []
        for path, positions in deleted.items():
            scanned = state.file(path)
            before = files.vector(scanned.file)
            vector = before | positions
            if len(vector) == scanned.file.rows:
                empty.append(path)
            elif len(vector) > len(before):
                vectors[scanned.location], marked[scanned.location] = vector, path
        written = write_vectors(self.folder, state.location, state.spec, vectors)
        return _Marks({marked[location]: text for location, text in written.items()}, empty)

    def _put(self, state: IcebergState, commit: Commit, marks: _Marks, identity: str) -> None:
        """Write a commit on a state of the table, unless the table has another one by now."""
        started = self._table.newTransaction()
        if started.startMetadata().metadataFileLocation() != state.metadata_file:
            return
        columns, changes = changed_columns(
            state.columns, commit.schema, commit.steps, deletes=commit.replaces
        )
        transaction = IcebergTransaction(self.name, self._iceberg, started)
        transaction.change_columns(changes)
        transaction.check_columns(columns)
        removed = [state.file(path) for path in (*commit.removed, *marks.empty)]
        unmarked = [*removed, *(state.file(path) for path in marks.vectors)]
        files = FileChanges(
            _operation(commit, marks),
            self._added(commit, columns, state.location, state.spec),
            [*marks.vectors.values()],
            [state.task(file) for file in removed],
            [state.task(file) for file in unmarked if file.file.vector is not None],
            state.snapshot,
        )
        self._finish(transaction, files, commit, state.recorded, identity)

    def _added(self, commit: Commit, columns: Columns, location: str, spec: int) -> list[str]:
        """Return the new data files of a commit as Iceberg parses them."""
        folder = self.folder

        def read(new: NewFile) -> pq.FileMetaData:
            with folder.open(new.path) as file:
                return pq.read_metadata(file)

        with ThreadPoolExecutor(_READERS) as threads:
            footers = [*threads.map(read, commit.added)]
        for footer in footers:
            check_fields(self.name, footer.schema.to_arrow_schema(), columns)
        files = zip(commit.added, footers, strict=True)
        return [data_file_json(new, footer, location, spec) for new, footer in files]

    def _finish(
        self,
        transaction: IcebergTransaction,
        files: FileChanges,
        commit: Commit,
        before: Recorded,
        identity: str,
    ) -> None:
        """Write the snapshot, record the position, and commit."""
        lsn, relation = commit.position.commit_lsn, commit.position.relation
        position = Position(
            before.position.commit_lsn if lsn is None else lsn,
            before.position.relation if relation is None else relation,
        )
        recorded = Recorded(position, before.record if commit.record is None else commit.record)
        summary = self._properties.of_snapshot(recorded, identity, commit.counts)
        transaction.change_files(files, summary)
        sequence = transaction.table.currentSnapshot().sequenceNumber()
        transaction.commit(self._source | self._properties.of_table(recorded, sequence))

    def _after_race(self, commit: Commit, before: IcebergState) -> IcebergState:
        """Return the newest state; raise ``CommitConflict`` if a commit does not fit it."""
        state = self._state
        if state is None:
            raise CommitConflict(f"{self.name} was removed")
        before.basis.check(self.name, commit, state.basis)
        self._check(state, commit)
        return state


def _operation(commit: Commit, marks: _Marks) -> Operation:
    if commit.replaces:
        return REPLACE
    if commit.keeps_rows and commit.removed and not commit.deleted:
        return REWRITE
    return DELTA if commit.removed or marks.vectors or marks.empty else APPEND
