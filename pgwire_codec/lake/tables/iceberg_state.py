"""IcebergState: a version of an Iceberg table's metadata, its files, and the position it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import bounded_columns
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.iceberg_catalog import java_errors
from pgwire_codec.lake.tables.iceberg_files import ScannedFile, scanned_files
from pgwire_codec.lake.tables.iceberg_schema import Columns, from_json, plain_schema, to_json
from pgwire_codec.lake.tables.target import Basis
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

_VECTORS: Final = 3  # first format version that has deletion vectors

#: Property of a table that decides how a merge deletes rows.
_WRITE_MODE: Final = "write.merge.mode"

_KEEPS_ROWS: Final = "replace"  # operations of snapshots that leave the rows as they are


@dataclass(frozen=True, slots=True)
class Recorded:
    """Position in a stream, and facts, as a table has them."""

    position: Position = field(default_factory=Position)
    record: str | None = None
    others: tuple[str, ...] = ()  # later snapshots by which other programs changed rows


class PositionProperties:
    """Properties of snapshots and tables that have the position in a stream.

    The summary of each snapshot of this package has it. That alone does not last: Iceberg's
    maintenance writes new snapshots and lets older ones expire. So the table's properties have it,
    too.
    """

    def __init__(self, app_id: str) -> None:
        self._lsn = f"{app_id}.commit_lsn"
        self._relation = f"{app_id}.relation_oid"
        self._sequence = f"{app_id}.sequence_number"
        self._identity = f"{app_id}.commit_id"
        self._rows = f"{app_id}.rows"
        self._record = f"{app_id}.mirror"

    def of_snapshot(
        self, recorded: Recorded, identity: str, counts: Mapping[str, int]
    ) -> dict[str, str]:
        """Return those of a snapshot, with an identity to be recognized by and numbers of rows."""
        rows = {f"{self._rows}.{name}": str(count) for name, count in counts.items()}
        return rows | self._of(recorded) | {self._identity: identity}

    def of_table(self, recorded: Recorded, sequence: int) -> dict[str, str]:
        """Return the properties of a table whose last position has the sequence number."""
        return self._of(recorded) | {self._sequence: str(sequence)}

    def read(self, name: str, metadata: Any) -> Recorded:
        """Return the position of a table, and the facts that belong to it.

        The newest snapshot with one decides, so that a table that was rolled back gets the later
        changes again. If that snapshot is expired, the table's properties decide.

        Raises ``TableError`` if the table was rolled back and its position is expired.
        """
        snapshot, properties = metadata.currentSnapshot(), metadata.properties()
        if snapshot is None or properties.get(self._lsn) is None:
            return Recorded()
        sequence = snapshot.sequenceNumber()
        others: list[str] = []
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get(self._lsn) is not None:
                return self._recorded(summary, others)
            if snapshot.operation() != _KEEPS_ROWS:
                others.insert(0, f"{snapshot.operation()} in snapshot {snapshot.snapshotId()}")
            parent = snapshot.parentId()
            if parent is None:
                return Recorded(others=tuple(others))
            snapshot = metadata.snapshot(parent)
        if sequence < int(properties.get(self._sequence)):
            raise TableError(
                f"{name} was rolled back to a snapshot without a commit LSN, of which the earlier "
                "snapshots are expired: it is unknown which changes it has",
                hint="Roll it forward again. Or remove it, and have it written again.",
            )
        return self._recorded(properties, others)

    def is_in(self, metadata: Any, identity: str, before: int | None) -> bool:
        """Return whether a snapshot with an identity was added after another snapshot."""
        snapshot = metadata.currentSnapshot()
        while snapshot is not None and snapshot.snapshotId() != before:
            if snapshot.summary().get(self._identity) == identity:
                return True
            parent = snapshot.parentId()
            snapshot = None if parent is None else metadata.snapshot(parent)
        return False

    def _of(self, recorded: Recorded) -> dict[str, str]:
        position = recorded.position
        properties = {} if recorded.record is None else {self._record: recorded.record}
        if position.commit_lsn is not None:
            properties[self._lsn] = format_lsn(position.commit_lsn)
        if position.relation is not None:
            properties[self._relation] = str(position.relation)
        return properties

    def _recorded(self, properties: Any, others: Sequence[str]) -> Recorded:
        relation = properties.get(self._relation)
        position = Position(
            parse_lsn(properties[self._lsn]), None if relation is None else int(relation)
        )
        return Recorded(position, properties.get(self._record), tuple(others))


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
        self.recorded = properties.read(name, self.metadata)
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

    @property
    def basis(self) -> Basis:
        """State for commits that were decided on it."""
        files = {path: scanned.file for path, scanned in self.files.items()}
        recorded = self.recorded
        return Basis(to_json(self.columns.schema), recorded.position, files, recorded.others)

    def file(self, path: str) -> ScannedFile:
        """Return a data file; raise ``TableError`` if the table does not have it."""
        if path not in self.files:
            raise TableError(f"{self._name} has no file {path}")
        return self.files[path]

    def task(self, scanned: ScannedFile) -> Any:
        """Return the scan task of a file."""
        return self.tasks[scanned.task]
