"""State of a Delta table: its log, replayed from the last checkpoint, and files that are old."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec.errors import TableError
from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.tables.delta_vectors import vector_path

#: Action of a commit: a JSON object with one member, whose name is the action's.
Action: TypeAlias = dict[str, Any]

LOG: Final = "_delta_log"
_LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_CHECKPOINT_COLUMNS: Final = ("protocol", "metaData", "txn", "add")

#: Property with the time for which files of former versions are kept, and its default.
_RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK: Final = "interval 1 week"
_INTERVAL: Final = re.compile(r"interval (\d+) (hour|day|week)s?")
_SECONDS: Final = {"hour": 3600, "day": 86_400, "week": 604_800}

#: Names of files of a table without partitions.
_OF_TABLE: Final = re.compile(r"[^_.].*\.parquet|deletion_vector_.*\.bin")


def commit_path(version: int) -> str:
    """Return the path of a commit in the table's folder."""
    return f"{LOG}/{version:020}.json"


def to_text(value: Mapping[str, Any]) -> str:
    """Return an object as JSON without escaped characters.

    delta-rs, polars and DuckDB read the two escapes of a character from U+20000 on as another one:
    names and bounds would be wrong.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@dataclass(slots=True)
class DeltaState:
    """State of a table at a version."""

    #: Number of the last commit; -1 if the table does not exist.
    version: int = -1
    #: The newest actions ``protocol`` and ``metaData``.
    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    #: The action ``add`` of each file of the table, by its path in the table's folder.
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Newest version of each application, as the actions ``txn`` record it.
    transactions: dict[str, int] = field(default_factory=dict)
    #: Commits that were read since the last checkpoint, and their bytes.
    commits: int = 0
    commit_bytes: int = 0

    def apply(self, actions: Iterable[Action]) -> None:
        """Apply the actions of the next commit, or of a checkpoint."""
        for action in actions:
            for kind, content in action.items():
                if kind == "add":
                    self.files[unquote(content["path"])] = content
                elif kind == "remove":
                    path = unquote(content["path"])
                    removed = self.files.get(path)
                    # A commit may remove and add a path in any order, with another vector.
                    if removed is not None and vector_id(removed) == vector_id(content):
                        del self.files[path]
                elif kind == "txn":
                    self.transactions[content["appId"]] = content["version"]
                elif kind == "metaData":
                    self.metadata = content
                elif kind == "protocol":
                    self.protocol = content


def vector_id(file: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return what identifies the vector of an action ``add`` or ``remove``; None if it has none."""
    vector = file.get("deletionVector")
    if not vector:
        return None
    return vector["storageType"], vector["pathOrInlineDv"], vector.get("offset")


def read_state(folder: Folder) -> DeltaState:
    """Return the newest state of a table. Raises ``TableError`` for a log with a gap."""
    try:
        last = json.loads(folder.read(_LAST_CHECKPOINT))
    except FileNotFoundError:
        state, after = DeltaState(), ""
    else:
        state = _checkpoint(folder, last["version"], last.get("parts"))
        after = f"{state.version:020}.json"
    for number in _numbers(_COMMIT, folder.names(LOG, after)):
        if number > state.version + 1:
            raise TableError(
                f"{folder.uri} has no commit {state.version + 1}, and has commit {number}",
                hint="Restore the file, or remove the table, and resume it.",
            )
        if number > state.version:
            refresh_once(folder, state)
    return state


def expired_files(folder: Folder, state: DeltaState, now: float) -> list[str]:
    """Return the names of the files that no version of the last time has, by default a week.

    A vector of such a version counts as a file. Without the log from before that time, there are
    none; nor with a time in other units than hours, days and weeks.
    """
    kept = _INTERVAL.fullmatch(state.metadata["configuration"].get(_RETENTION, _WEEK))
    if kept is None:
        return []
    begin = now - int(kept[1]) * _SECONDS[kept[2]]
    former = _state_before(folder, begin)
    if former is None:
        return []
    # Files that were added since have been written since.
    used = _paths(former.files) | _paths(state.files)
    return [
        name
        for name, written in folder.modified("").items()
        if written < begin and name not in used and _OF_TABLE.fullmatch(name)
    ]


def _paths(files: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the paths of data files and of their vectors."""
    vectors = (file.get("deletionVector") for file in files.values())
    in_files = (vector for vector in vectors if vector and vector["storageType"] == "u")
    return {*files, *map(vector_path, in_files)}


def _state_before(folder: Folder, moment: float) -> DeltaState | None:
    """Return the state of the last version before a time in seconds, if the log has it."""
    written = folder.modified(LOG)
    commits = _numbers(_COMMIT, [name for name, time in written.items() if time < moment])
    if not commits:
        return None
    checkpoints = [number for number in _numbers(_CHECKPOINT, written) if number <= max(commits)]
    state = _checkpoint(folder, max(checkpoints)) if checkpoints else DeltaState()
    while state.version < max(commits):
        if refresh_once(folder, state) is None:
            return None
    return state


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    matches = map(pattern.fullmatch, names)
    return [int(match[1]) for match in matches if match is not None]


def refresh_once(folder: Folder, state: DeltaState) -> list[Action] | None:
    """Apply the next commit to a state; return its actions, or None at the log's end."""
    data = _commit_data(folder, state.version + 1)
    if data is None:
        return None
    actions = _actions(folder, state.version + 1, data)
    state.apply(actions)
    state.version += 1
    state.commits += 1
    state.commit_bytes += len(data)
    return actions


def read_commit(folder: Folder, version: int) -> list[Action] | None:
    """Return the actions of a commit; None if it was removed."""
    data = _commit_data(folder, version)
    return None if data is None else _actions(folder, version, data)


def _commit_data(folder: Folder, version: int) -> bytes | None:
    try:
        return folder.read(commit_path(version))
    except FileNotFoundError:
        return None


def _actions(folder: Folder, version: int, data: bytes) -> list[Action]:
    """Return the actions of a commit. Raises ``TableError`` if it is damaged."""
    try:
        return [json.loads(line) for line in data.splitlines() if line]
    except ValueError as error:
        raise TableError(
            f"commit {folder.uri}/{commit_path(version)} is damaged: {error}",
            hint="Restore the file, or remove the table, and resume it.",
        ) from error


def oldest_state(folder: Folder) -> DeltaState | None:
    """Return the oldest version that the log still has, before its next commits; None for none."""
    names = folder.names(LOG)
    commits, checkpoints = _numbers(_COMMIT, names), _numbers(_CHECKPOINT, names)
    if commits[:1] == [0]:
        return DeltaState()
    return _checkpoint(folder, checkpoints[0]) if checkpoints else None


def _checkpoint(folder: Folder, version: int, parts: int | None = None) -> DeltaState:
    """Return the state of a checkpoint, which is one file or in parts."""
    names = ["checkpoint"]
    if parts is not None:
        names = [f"checkpoint.{number:010}.{parts:010}" for number in range(1, parts + 1)]
    state = DeltaState(version)
    for name in names:
        state.apply(_checkpoint_actions(folder, f"{LOG}/{version:020}.{name}.parquet"))
    return state


def _checkpoint_actions(folder: Folder, path: str) -> Iterator[Action]:
    with folder.open(path) as file, pq.ParquetFile(file) as checkpoint:
        present = set(checkpoint.schema_arrow.names)
        columns = [name for name in _CHECKPOINT_COLUMNS if name in present]
        for batch in checkpoint.iter_batches(columns=columns):
            for name in columns:
                column = batch.column(name)
                rows = column.filter(column.is_valid())
                yield from ({name: _without_nulls(row, rows.type)} for row in rows.to_pylist())


def _without_nulls(value: dict[str, Any], kind: pa.StructType) -> dict[str, Any]:
    """Return an action as JSON has it: maps are objects, and members that are null are left out."""
    result: dict[str, Any] = {}
    for name, member in value.items():
        member_type = kind.field(name).type
        if member is None or name.endswith("_parsed"):
            continue
        if pa.types.is_map(member_type):
            result[name] = dict(member)
        elif pa.types.is_struct(member_type):
            result[name] = _without_nulls(member, member_type)
        else:
            result[name] = member
    return result
