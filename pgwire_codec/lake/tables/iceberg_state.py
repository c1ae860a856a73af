"""IcebergState: a version of an Iceberg table's metadata, and its files."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import bounded_columns
from pgwire_codec.lake.tables.iceberg_catalog import java_errors
from pgwire_codec.lake.tables.iceberg_files import ScannedFile, scanned_files
from pgwire_codec.lake.tables.iceberg_position import PositionProperties
from pgwire_codec.lake.tables.iceberg_schema import Columns, from_json, plain_schema

#: First format version that has deletion vectors.
_VECTORS: Final = 3

#: Property of a table that decides how a merge deletes rows.
_WRITE_MODE: Final = "write.merge.mode"


class IcebergState:
    """A version of a table's metadata. It does not change, unlike Iceberg's table."""

    def __init__(self, name: str, iceberg: Any, table: Any, properties: PositionProperties) -> None:
        self._name = name
        self._iceberg = iceberg
        self._table = table
        self.metadata = table.operations().current()
        #: Location of the file that has the metadata, which is another one after each commit.
        self.metadata_file: str = self.metadata.metadataFileLocation()
        self.location: str = self.metadata.location()
        #: ID of the partition spec.
        self.spec: int = self.metadata.defaultSpecId()
        snapshot = self.metadata.currentSnapshot()
        #: ID of the current snapshot.
        self.snapshot: int | None = None if snapshot is None else snapshot.snapshotId()
        self.position = properties.read(name, self.metadata)
        mode = self.metadata.properties().get(_WRITE_MODE)
        is_copied = mode == "copy-on-write"
        #: True if rows are deleted in vectors.
        self.marks: bool = self.metadata.formatVersion() >= _VECTORS and not is_copied

    @cached_property
    def columns(self) -> Columns:
        """Its columns."""
        text = self._iceberg.SchemaParser.toJson(self.metadata.schema())
        return Columns(from_json(text), self.metadata.lastColumnId())

    @cached_property
    def tasks(self) -> Any:
        """Java's list of the scan tasks of all files; None without a file."""
        if self.snapshot is None:
            return None
        # Bounds of other columns are not used, and would have to pass. The columns have the names
        # that they had when the snapshot was written.
        schema = self.metadata.schemasById().get(self.metadata.currentSnapshot().schemaId())
        columns = from_json(self._iceberg.SchemaParser.toJson(schema))
        names = bounded_columns(plain_schema(columns))
        scan = self._table.newScan().useSnapshot(self.snapshot)
        if names:
            scan = scan.includeColumnStats(names)
        lists = self._iceberg.relocated.com.google.common.collect.Lists
        files = scan.planFiles()
        try:
            tasks = lists.newArrayList(files)
        finally:
            files.close()
        return tasks if len(tasks) else None

    @cached_property
    def files(self) -> dict[str, ScannedFile]:
        """Its data files, by path. Raises ``TableError`` for those that are not supported."""
        with java_errors(self._name):
            if self.tasks is None:
                return {}
            responses = self._iceberg.rest.responses
            builder = responses.FetchScanTasksResponse.builder(self.metadata.specsById())
            response = builder.withFileScanTasks(self.tasks).build()
            text = responses.FetchScanTasksResponseParser.toJson(response)
        return scanned_files(self._name, self.location, self.columns, text)

    def file(self, path: str) -> ScannedFile:
        """Return a data file; raise ``TableError`` if the table does not have it."""
        if path not in self.files:
            raise TableError(f"{self._name} has no file {path}")
        return self.files[path]

    def task(self, scanned: ScannedFile) -> Any:
        """Return the scan task of a file."""
        return self.tasks[scanned.task]
