"""State of a Delta table: its log, replayed from the last checkpoint, and files that are old."""

from __future__ import annotations

import json
import logging
import math
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec.errors import TableError
from pgwire_codec.lake.damage import RESTORE, DamagedFileError, reading
from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.tables.delta_vectors import vector_path

_LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

#: Action of a commit: a JSON object with one member, whose name is the action's.
Action: TypeAlias = dict[str, Any]

_ACTIONS: Final = frozenset({
    "add", "cdc", "checkpointMetadata", "commitInfo", "domainMetadata", "metaData", "protocol",
    "remove", "sidecar", "txn",
})  # fmt: skip

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
#: Tags of the last checkpoint with its CRC-32 and that of the text that names it, with zeros for
#: itself; and bytes that are read at once.
_CRC_TAG: Final = "pgwire_codec.crc32"
_OWN_CRC_TAG: Final = "pgwire_codec.own_crc32"
_OWN_CRC: Final = re.compile(rb'"pgwire_codec\.own_crc32":"([0-9a-f]{8})"')
_CHUNK_BYTES: Final = 16 << 20

_CHECKPOINT_COLUMNS: Final = ("protocol", "metaData", "txn", "add")

#: Property with the time for which files are kept that were removed, and times that are understood.
FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"
_INTERVAL: Final = re.compile(r"interval \d+ (second|minute|hour|day|week)s?")

#: Age of a file that no commit has. A turn, which writes files before its commit, takes minutes;
#: other programs have a week, as of their own VACUUM.
_UNUSED_SECONDS: Final = 86_400.0
_FOREIGN_SECONDS: Final = 604_800.0

#: Names of files of a table without partitions, and of those that mirrors write.
_OF_TABLE: Final = re.compile(r"[^_.].*\.parquet|deletion_vector_.*\.bin")
_OF_MIRRORS: Final = re.compile(r"(deletion_vector_)?[0-9a-f-]{36}\.(parquet|bin)")

#: Beginning of a commit of this package, with the CRC-32 of the text in which that is zeros.
_CRC: Final = re.compile(rb'\{"commitInfo":\{"crc32":"([0-9a-f]{8})"')
_NO_CRC: Final = "00000000"


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

    version: int = -1  # number of the last commit; -1 if the table does not exist
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
    #: Paths of checkpoints that cannot be read, and of what names them.
    damaged: list[str] = field(default_factory=list)

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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a table, which is one file or in parts."""

    version: int
    parts: int | None = None
    crc32: str | None = None  # of a checkpoint of one file, if the table records it

    @property
    def paths(self) -> list[str]:
        """Paths of its files in the table's folder."""
        if self.parts is None:
            return [f"{LOG}/{self.version:020}.checkpoint.parquet"]
        names = (f"checkpoint.{part:010}.{self.parts:010}" for part in range(1, self.parts + 1))
        return [f"{LOG}/{self.version:020}.{name}.parquet" for name in names]

    def read(self, folder: Folder) -> DeltaState:
        """Return its state. Raises ``DamagedFileError``."""
        state = DeltaState(self.version)
        for path in self.paths:
            with reading(folder, path, "checkpoint"):
                if self.crc32 is not None and crc32_of(folder, path) != self.crc32:
                    raise ValueError("it does not match its checksum")
                state.apply(_checkpoint_actions(folder, path))
        return state


def crc32_of(folder: Folder, path: str) -> str:
    """Return the CRC-32 of a file."""
    with folder.open(path) as file:
        crc = 0
        while chunk := file.read_buffer(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def record_checkpoint(folder: Folder, checkpoint: Checkpoint) -> None:
    """Make a checkpoint durable that delta-rs wrote, and record it as the last one."""
    (path,) = checkpoint.paths
    folder.sync(path)
    content = json.loads(folder.read(LAST_CHECKPOINT))
    if content["version"] == checkpoint.version:  # otherwise, another program wrote one since
        content["tags"] = {_CRC_TAG: crc32_of(folder, path), _OWN_CRC_TAG: _NO_CRC}
        text = to_text(content)
        before, _, after = text.rpartition(_NO_CRC)
        own = f"{_crc32(text.encode(), checkpoint.version):08x}"
        temporary = f"{LOG}/.last_checkpoint.{uuid.uuid4()}.tmp"
        folder.create(temporary, f"{before}{own}{after}".encode())
        folder.move(temporary, LAST_CHECKPOINT)


def read_state(folder: Folder) -> DeltaState:
    """Return the newest state of a table. Raises ``TableError`` for a log with a gap.

    A checkpoint that cannot be read is skipped, if an older one and commits have the same.
    """
    state, names, damages = _begin(folder)
    for number in commit_numbers(names):
        if number > state.version + 1:
            raise _gap(folder, state.version + 1, damages)
        if number > state.version:
            refresh_once(folder, state)
    if damages and state.version < max(0, *damages):
        raise _gap(folder, state.version + 1, damages)
    for damage in damages.values():
        _LOGGER.warning("%s: it is not needed, and is skipped", damage.primary)
        state.damaged.append(damage.path)
    return state


def _begin(folder: Folder) -> tuple[DeltaState, list[str], dict[int, DamagedFileError]]:
    """Return the state of the newest checkpoint, the names of later files, and damages.

    A damage is known by the version that the table has at least.
    """
    damages: dict[int, DamagedFileError] = {}
    try:
        named = last_checkpoint(folder)
        if named is not None:
            return named.read(folder), folder.names(LOG, f"{named.version:020}.json"), damages
    except DamagedFileError as damage:
        damages[_version(damage.path)] = damage
    names = folder.names(LOG)
    for checkpoint in checkpoints(names):
        if checkpoint.version not in damages:
            try:
                return checkpoint.read(folder), names, damages
            except DamagedFileError as damage:
                damages[checkpoint.version] = damage
    return DeltaState(), names, damages


def _version(path: str) -> int:
    """Return the version of a checkpoint's file; -1 for the file that names the last one."""
    match = _CHECKPOINT.fullmatch(path.rpartition("/")[2])
    return -1 if match is None else int(match[1])


def _gap(folder: Folder, missing: int, damages: Mapping[int, DamagedFileError]) -> TableError:
    """Return the error for a missing commit, in whose place a checkpoint may have been."""
    for damage in damages.values():
        return TableError(f"{damage.primary}, and commit {missing} is missing", hint=RESTORE)
    return TableError(f"{folder.uri} has no commit {missing}, and has later ones", hint=RESTORE)


def last_checkpoint(folder: Folder) -> Checkpoint | None:
    """Return the checkpoint that the table names as its last. Raises ``DamagedFileError``."""
    try:
        data = folder.read(LAST_CHECKPOINT)
    except FileNotFoundError:
        return None
    with reading(folder, LAST_CHECKPOINT, "file"):
        content = json.loads(data)
        if not isinstance(content, dict):
            raise TypeError("it has no JSON object")
        version, parts = int(content["version"]), content.get("parts")
        crc32 = (content.get("tags") or {}).get(_CRC_TAG)
        if match := _OWN_CRC.search(data):
            _check_crc32(data, match, version)
        elif crc32 is not None:
            raise ValueError("it has no checksum")
        return Checkpoint(version, None if parts is None else int(parts), crc32)


def checkpoints(names: Iterable[str]) -> list[Checkpoint]:
    """Return the checkpoints of a table's log with all of their files, the newest first."""
    counts: dict[Checkpoint, int] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        checkpoint = Checkpoint(int(match[1]), int(match[2]) if match[2] else None)
        counts[checkpoint] = counts.get(checkpoint, 0) + 1
    complete = (each for each, count in counts.items() if count == (each.parts or 1))
    return sorted(complete, key=lambda each: each.version, reverse=True)


def unused_files(
    folder: Folder, state: DeltaState, checkpoint: Checkpoint, kept_seconds: float
) -> list[str]:
    """Return paths of files that no version of the last time has.

    A vector of such a version counts as a file. The newest checkpoint has the files that were
    removed in the time for which the table keeps them: of these, the mirror's own remain for
    ``kept_seconds`` only. A file that neither it nor the state has is old, or of a commit that did
    not come. If that time is in other units than up to weeks, only temporary files are returned.
    """
    abandoned = [*folder.abandoned(""), *folder.abandoned(LOG)]
    retention = state.metadata["configuration"].get(FILE_RETENTION)
    if retention is not None and not _INTERVAL.fullmatch(retention):
        return abandoned
    used, removed = set(_paths(state.files.values())), dict[str, float]()
    for path in checkpoint.paths:
        with reading(folder, path, "checkpoint"):
            for action in _checkpoint_actions(folder, path, ("add", "remove")):
                for kind, content in action.items():
                    if kind == "add":
                        used |= set(_paths([content]))
                        continue
                    time_ = content.get("deletionTimestamp", 0) / 1000
                    removed |= dict.fromkeys(_paths([content]), time_)
    now = time.time()
    unused = [
        name
        for name, written in folder.modified("").items()
        if name not in used
        and (
            now - removed[name] > (kept_seconds if _OF_MIRRORS.fullmatch(name) else math.inf)
            if name in removed
            else now - written > _kept_seconds(name)
        )
    ]
    return [*abandoned, *unused]


def _kept_seconds(name: str) -> float:
    """Return the age from which on a file that no version has is removed."""
    if _OF_MIRRORS.fullmatch(name):
        return _UNUSED_SECONDS
    return _FOREIGN_SECONDS if _OF_TABLE.fullmatch(name) else math.inf


def _paths(files: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the paths of data files and of their vectors."""
    for file in files:
        yield unquote(file["path"])
        vector = file.get("deletionVector")
        if vector and vector["storageType"] == "u":
            yield vector_path(vector)


def commit_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the commits among the files of a log, ascending."""
    return sorted(int(match[1]) for match in map(_COMMIT.fullmatch, names) if match is not None)


def refresh_once(folder: Folder, state: DeltaState) -> list[Action] | None:
    """Apply the next commit to a state; return its actions, or None at the log's end."""
    data = _commit_data(folder, state.version + 1)
    if data is None:
        return None
    actions = _actions(folder, state.version + 1, data)
    with reading(folder, commit_path(state.version + 1), "commit"):
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
    with reading(folder, commit_path(version), "commit"):
        return parse_commit(data, version)


def oldest_state(folder: Folder) -> DeltaState | None:
    """Return the oldest version that the log still has, before its next commits; None for none."""
    names = folder.names(LOG)
    if 0 in commit_numbers(names):
        return DeltaState()
    for checkpoint in reversed(checkpoints(names)):
        with suppress(DamagedFileError):
            return checkpoint.read(folder)
    return None


def commit_text(actions: Sequence[Action], version: int) -> str:
    """Return the text of a commit, whose first action ``commitInfo`` gets its checksum."""
    (kind, content), *_ = actions[0].items()
    text = "\n".join(map(to_text, [{kind: {"crc32": _NO_CRC, **content}}, *actions[1:]]))
    return text.replace(_NO_CRC, f"{_crc32(text.encode(), version):08x}", 1)


def _crc32(data: bytes, version: int) -> int:
    """Return the checksum of the text of a commit or of the last checkpoint."""
    return zlib.crc32(data, version)


def _check_crc32(data: bytes, match: re.Match[bytes], version: int) -> None:
    """Raise ``ValueError`` for another text than that whose checksum a match has."""
    start, end = match.span(1)
    if _crc32(data[:start] + _NO_CRC.encode() + data[end:], version) != int(match[1], 16):
        raise ValueError("it does not match its checksum")


def parse_commit(data: bytes, version: int) -> list[Action]:
    """Return the actions of a commit. Raises ``ValueError`` for one without any."""
    actions: list[Action] = [json.loads(line) for line in data.splitlines() if line.strip()]
    if not actions:
        raise ValueError("it is empty")
    for action in actions:
        if not isinstance(action, dict) or not action or not _ACTIONS.issuperset(action):
            raise ValueError(f"{str(action)[:40]} is not an action")
    match = _CRC.match(data)
    if match is not None:
        _check_crc32(data, match, version)
    elif str(actions[0].get("commitInfo", {}).get("engineInfo")).startswith("pgwire_codec/"):
        raise ValueError("it has no checksum")
    return actions


def _checkpoint_actions(
    folder: Folder, path: str, names: Sequence[str] = _CHECKPOINT_COLUMNS
) -> Iterator[Action]:
    with (
        folder.open(path) as file,
        pq.ParquetFile(file, page_checksum_verification=True) as checkpoint,
    ):
        present = set(checkpoint.schema_arrow.names)
        columns = [name for name in names if name in present]
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
