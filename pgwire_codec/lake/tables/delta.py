"""DeltaTarget: a Delta table whose commits are written here.

A commit adds data files, marks rows of others in deletion vectors, and records the position, all
at once. Libraries have no call for that. So actions are written as Delta's protocol describes
them, in a file that must not exist yet. See "Transaction Log Protocol" in Delta's PROTOCOL.md.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec import __version__
from pgwire_codec.errors import TableError
from pgwire_codec.lake.damage import REMOVED, reading
from pgwire_codec.lake.data_files import Bounds, FileChecksum, FileLayout, bounded_columns
from pgwire_codec.lake.folder import Folder, is_inside, open_folder
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.table_files import DataFile, TableFiles
from pgwire_codec.lake.tables.column_steps import AddColumn, ColumnStep
from pgwire_codec.lake.tables.delta_features import ENABLE_VECTORS, check_features, needed_protocol
from pgwire_codec.lake.tables.delta_log import (
    FILE_RETENTION,
    LAST_CHECKPOINT,
    Action,
    Checkpoint,
    commit_path,
    commit_text,
    read_state,
    record_checkpoint,
    refresh_once,
    to_text,
    unused_files,
    vector_id,
)
from pgwire_codec.lake.tables.delta_others import follow, provenance_of, version_id
from pgwire_codec.lake.tables.delta_schema import from_json, to_json
from pgwire_codec.lake.tables.delta_vectors import stored_vector, write_vectors
from pgwire_codec.lake.tables.target import (
    Basis,
    Commit,
    CommitConflict,
    WriteMode,
    attempts,
    create_commit,
)
from pgwire_codec.protocol.quoting import quote_spark_identifier

if TYPE_CHECKING:
    import deltalake
    from pyroaring import BitMap64

    from pgwire_codec.lake.data_files import NewFile

_LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

_CHECKSUM: Final = "pgwire_codec.crc32"  # tag of a file with its checksums

#: Columns of which writers and most readers of a table use bounds.
_BOUNDED: Final = "delta.dataSkippingStatsColumns"

#: Property with the time for which a table keeps commits.
_LOG_RETENTION: Final = "delta.logRetentionDuration"

#: Commits since the last checkpoint, and their bytes, after which the next one is written.
_CHECKPOINT_COMMITS: Final = 20
_CHECKPOINT_BYTES: Final = 1 << 20

#: Seconds between two searches for files that only old versions have.
_EXPIRY_SECONDS: Final = 600.0


class DeltaTarget:
    """Delta table, for one stream of changes; see :class:`Target`.

    A commit records the last commit LSN under ``app_id``, the relation under ``{app_id}/relation``,
    and its own number under ``{app_id}/version``. The ``write_mode`` is that of a new table: an
    existing one has deletion vectors by its own properties. So is ``kept_seconds``, the time for
    which old versions can be read; None for that of Delta.
    """

    deletes = True

    def __init__(
        self,
        uri: str,
        app_id: str,
        storage_options: Mapping[str, str] | None = None,
        write_mode: WriteMode = "merge-on-read",
        kept_seconds: float | None = None,
    ) -> None:
        self.folder: Folder = open_folder(uri, storage_options)
        self.name = uri
        self._app_id = app_id
        self._options = dict(storage_options or {})
        self._write_mode = write_mode
        self._kept_seconds = kept_seconds
        self._read()
        self._files: dict[str, tuple[dict[str, Any], DataFile]] = {}
        self._expires = 0.0

    @property
    def marks(self) -> bool:
        if not self._exists:
            return self._write_mode == "merge-on-read"
        properties = self._state.metadata["configuration"]
        return bool(properties.get(ENABLE_VECTORS) == "true")

    @property
    def schema(self) -> pa.Schema | None:
        return from_json(self._state.metadata["schemaString"]) if self._exists else None

    @property
    def position(self) -> Position:
        versions = self._provenance.restored
        versions = self._state.transactions if versions is None else versions
        return Position(versions.get(self._app_id), versions.get(f"{self._app_id}/relation"))

    @property
    def record(self) -> str | None:
        text: str | None = None
        if self._exists:
            text = self._state.metadata["configuration"].get(self._record_name)
        return text

    @property
    def others(self) -> Sequence[str]:
        return self._provenance.others

    @property
    def version(self) -> int | None:
        return self._state.version if self._exists else None

    @property
    def files(self) -> TableFiles:
        known, self._files = self._files, {}
        for path, action in self._state.files.items():
            entry = known.get(path)
            if entry is None or entry[0] is not action:
                with reading(self.folder, path, "entry in the log of the file"):
                    entry = action, delta_data_file(self.name, path, action)
            self._files[path] = entry
        files = tuple(file for _, file in self._files.values())
        return TableFiles(self.name, self.folder.uri, files, self._options)

    @property
    def layout(self) -> FileLayout:
        return FileLayout()

    def takes(self, steps: Sequence[ColumnStep]) -> bool:
        return all(isinstance(step, AddColumn) for step in steps)

    def file_schema(self, schema: pa.Schema, steps: Sequence[ColumnStep] = ()) -> pa.Schema:
        return schema

    def refresh(self) -> None:
        """Read the commits that were added since; or all, if the table was removed meanwhile."""
        self._refresh()
        if self._exists and not self.folder.exists(commit_path(self._state.version)):
            self._read()

    def commit(self, commit: Commit) -> None:
        commit.check_base(self.name, self.position)
        state = self._state
        if self._exists:
            check_features(self.name, state.protocol, state.metadata, appends=commit.appends)
        elif commit.schema is None:
            raise TableError(f"{self.name} does not exist", hint=REMOVED)
        if commit.deleted and not self.marks:
            raise CommitConflict(f"{self.name} has no deletion vectors any more")
        basis = self._basis()
        marked = list(self._mark(commit.deleted))
        identity = str(uuid.uuid4())
        for _ in attempts(self.name):
            version = state.version + 1
            text = commit_text([*self._actions(commit, identity), *marked], version)
            path = commit_path(version)
            if create_commit(self.folder, path, text, partial(self._has, identity)):
                self._checkpoint()
                return
            basis.check(self.name, commit, self._basis())

    @property
    def _exists(self) -> bool:
        return self._state.version >= 0

    def _basis(self) -> Basis:
        state = self._state
        files = {path: vector_id(file) for path, file in state.files.items()}
        return Basis((state.metadata, state.protocol), self.position, files, self.others)

    def _file(self, path: str) -> dict[str, Any]:
        if path not in self._state.files:
            raise TableError(f"{self.name} has no file {path}", hint=REMOVED)
        return self._state.files[path]

    @property
    def _kept_name(self) -> str:
        """Name of the property with the seconds for which files are kept that were replaced."""
        return f"{self._app_id}.kept_seconds"

    @property
    def _record_name(self) -> str:
        """Name of the property with the facts that the stream records."""
        return f"{self._app_id}.mirror"

    def _read(self) -> None:
        """Read the newest state from the beginning of the log, or from a checkpoint."""
        state = self._state = read_state(self.folder)
        self._provenance = provenance_of(
            self.folder, self._app_id, state.transactions, state.version
        )

    def _refresh(self) -> list[Action]:
        """Read the next commits; return their actions."""
        state, found = self._state, []
        while (actions := refresh_once(self.folder, state)) is not None:
            found += actions
            self._provenance = follow(
                self._provenance, self.folder, self._app_id, state.version, actions
            )
        return found

    def _has(self, identity: str) -> bool:
        """Read the newest state; return whether a commit with an identity is new in it."""
        return any(
            action.get("commitInfo", {}).get("txnId") == identity for action in self._refresh()
        )

    def _actions(self, commit: Commit, identity: str) -> Iterator[Action]:
        """Yield the actions of a commit on the present state, but those of marked files."""
        now, schema = _milliseconds(), commit.schema
        yield {"commitInfo": self._commit_info(commit, identity, now)}
        if schema is not None:
            protocol = needed_protocol(self.name, self._state.protocol, schema, marks=self.marks)
            if protocol != self._state.protocol:
                yield {"protocol": protocol}
        if schema is not None or commit.record not in (None, self.record):
            yield {"metaData": self._metadata(schema, commit.record, now)}
        changes = not commit.keeps_rows
        for path in list(self._state.files) if commit.replaces else commit.removed:
            yield {"remove": _removal(self._file(path), now, changes)}
        for new in commit.added:
            yield {"add": _addition(new, now, changes)}
        yield from self._transactions(commit.position, now)

    def _mark(self, deleted: Mapping[str, BitMap64]) -> Iterator[Action]:
        """Write vectors; yield the actions that mark rows, or remove files without other rows."""
        now, files = _milliseconds(), self.files
        known = {file.path: file for file in files.files}
        marked: list[tuple[dict[str, Any], BitMap64]] = []
        for path, positions in deleted.items():
            file = self._file(path)
            before = files.vector(known[path])
            vector = before | positions
            if len(vector) == len(before):
                continue  # the same file with the same vector cannot be removed and added
            yield {"remove": _removal(file, now, changes=True)}
            rows = self._rows(files, known[path])
            if len(vector) < rows:
                statistics = _statistics(file) | {"numRecords": rows, "tightBounds": False}
                new = {**file, "dataChange": True, "stats": to_text(statistics)}
                marked.append((new, vector))
        descriptors = write_vectors(self.folder, [vector for _, vector in marked])
        for (file, _), descriptor in zip(marked, descriptors, strict=True):
            yield {"add": file | {"deletionVector": descriptor}}

    @staticmethod
    def _rows(files: TableFiles, file: DataFile) -> int:
        """Return the number of a file's rows, deleted ones included."""
        if file.rows is not None:
            return file.rows
        with files.open(file) as opened:
            return int(opened.parquet.metadata.num_rows)

    def _transactions(self, position: Position, now: int) -> Iterator[Action]:
        for name, value in (
            (self._app_id, position.commit_lsn),
            (f"{self._app_id}/relation", position.relation),
            (version_id(self._app_id), self._state.version + 1),
        ):
            if value is not None and value != self._state.transactions.get(name):
                yield {"txn": {"appId": name, "version": value, "lastUpdated": now}}

    def _commit_info(self, commit: Commit, identity: str, now: int) -> dict[str, Any]:
        if not self._exists:
            operation = "CREATE TABLE"
        elif commit.keeps_rows:
            operation = "OPTIMIZE"
        elif commit.appends or commit.replaces:
            operation = "WRITE"
        else:
            operation = "MERGE"
        return {
            "timestamp": now,
            "operation": operation,
            "operationParameters": {},
            "operationMetrics": {name: str(count) for name, count in commit.counts.items()},
            "isBlindAppend": commit.appends,
            "engineInfo": f"pgwire_codec/{__version__}",
            "txnId": identity,
        }

    def _metadata(self, schema: pa.Schema | None, record: str | None, now: int) -> dict[str, Any]:
        recorded = {} if record is None else {self._record_name: record}
        if self._exists:
            former = self._state.metadata
            columns = {} if schema is None else {"schemaString": to_json(schema)}
            return {**former, **columns, "configuration": former["configuration"] | recorded}
        assert schema is not None, "a new table has columns"
        names = ",".join(map(quote_spark_identifier, bounded_columns(schema)))
        properties = {**recorded, _BOUNDED: names}
        if self.marks:
            properties[ENABLE_VECTORS] = "true"
        if self._kept_seconds is not None:
            kept = max(1, int(self._kept_seconds))
            # Checkpoints have the removed files for longer than these are kept.
            properties |= {
                self._kept_name: str(kept),
                FILE_RETENTION: f"interval {2 * kept} seconds",
                _LOG_RETENTION: f"interval {kept} seconds",
            }
        return {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": to_json(schema),
            "partitionColumns": [],
            "configuration": properties,
            "createdTime": now,
        }

    def _checkpoint(self) -> None:
        """Write a checkpoint by delta-rs if the log has grown since the last one.

        The table has its commit by then: an error is a warning, and the next commit tries it again.
        """
        state = self._state
        is_long = state.commits >= _CHECKPOINT_COMMITS or state.commit_bytes >= _CHECKPOINT_BYTES
        if not (is_long or state.damaged):
            return
        import deltalake

        try:
            if state.damaged:  # delta-rs and other programs do not skip them
                for path in (LAST_CHECKPOINT, *state.damaged):
                    self.folder.remove(path)
            table = deltalake.DeltaTable(self.folder.uri, storage_options=self._options)
            table.create_checkpoint()
            # Before commits are removed in whose place it is.
            record_checkpoint(self.folder, Checkpoint(table.version()))
        except Exception as error:  # noqa: BLE001  (the table has its commit)
            _LOGGER.warning("%s has no new checkpoint: %s", self.name, error)
            return
        state.damaged.clear()
        state.commits = state.commit_bytes = 0
        if time.monotonic() > self._expires:
            self._expires = time.monotonic() + _EXPIRY_SECONDS
            self._expire(table)

    def _expire(self, table: deltalake.DeltaTable) -> None:
        """Remove files that only old versions have or none, and old commits."""
        try:
            checkpoint = Checkpoint(table.version())
            kept = float(self._state.metadata["configuration"].get(self._kept_name, math.inf))
            for path in unused_files(self.folder, self._state, checkpoint, kept):
                self.folder.remove(path)
            table.cleanup_metadata()
        except Exception as error:  # noqa: BLE001  (the table has its commit)
            _LOGGER.warning("old files of %s are not removed: %s", self.name, error)


def _statistics(file: Mapping[str, Any]) -> dict[str, Any]:
    statistics: dict[str, Any] = json.loads(file.get("stats") or "{}")
    return statistics


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def delta_data_file(name: str, path: str, file: Mapping[str, Any]) -> DataFile:
    """Return the data file of an action ``add`` of a table."""
    if not is_inside(file["path"]) or not is_inside(path):
        raise TableError(
            f"{name} has the file {file['path']} outside of its folder, as a shallow clone does",
            hint="Use a table with files of its own.",
        )
    statistics = _statistics(file)
    bounds = Bounds(
        statistics.get("minValues", {}),
        statistics.get("maxValues", {}),
        statistics.get("nullCount", {}),
    )
    rows, vector = statistics.get("numRecords"), file.get("deletionVector")
    text = (file.get("tags") or {}).get(_CHECKSUM)
    checksum = None if text is None else FileChecksum.parse(text)
    if not vector:
        return DataFile(path, file["size"], rows, bounds, checksum=checksum)
    stored = stored_vector(name, vector)
    return DataFile(path, file["size"], rows, bounds, vector["cardinality"], stored, checksum)


def _addition(new: NewFile, now: int, changes: bool) -> dict[str, Any]:
    statistics = {
        "numRecords": new.rows,
        "minValues": new.bounds.lower,
        "maxValues": new.bounds.upper,
        "nullCount": new.bounds.nulls,
        "tightBounds": True,
    }
    addition = {
        "path": new.path,
        "partitionValues": {},
        "size": new.size,
        "modificationTime": now,
        "dataChange": changes,
        "stats": to_text(statistics),
    }
    if new.checksum is not None:
        addition["tags"] = {_CHECKSUM: new.checksum.to_text()}
    return addition


def _removal(file: Mapping[str, Any], now: int, changes: bool) -> dict[str, Any]:
    removal = {
        "path": file["path"],
        "deletionTimestamp": now,
        "dataChange": changes,
        "extendedFileMetadata": True,
        "partitionValues": file["partitionValues"],
        "size": file["size"],
    }
    if file.get("deletionVector"):
        removal["deletionVector"] = file["deletionVector"]
    return removal
