"""ParquetTarget: a folder of Parquet files, which any program reads.

Programs see a file as soon as it has its place in the folder. So new files are first staged where
programs do not look. A commit lists them, in a JSON file that must not exist yet. Then they are
moved to their places. If that is interrupted, whoever opens the table next does the rest.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.damage import REMOVED, reading
from pgwire_codec.lake.data_files import Bounds, FileLayout
from pgwire_codec.lake.folder import Folder, open_folder
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.table_files import DataFile, TableFiles
from pgwire_codec.lake.tables.column_steps import AddColumn, ColumnStep
from pgwire_codec.lake.tables.delta_schema import from_json, to_json
from pgwire_codec.lake.tables.target import Commit, CommitConflict, create_commit

#: Column of the partitions: date of the commit in UTC. PyArrow does not read one with ``_`` first.
DATE: Final = "commit_date"

#: Directory of the commits. Programs that read Parquet skip it.
COMMITS: Final = "_pgwire_codec"

#: Directory of staged files. Their names have no ending by which patterns find Parquet files.
_STAGED: Final = f"{COMMITS}/staged"

_ROWS: Final = "rows.parquet"  # file with all rows of a table that is replaced as a whole

_COMMIT: Final = re.compile(r"(\d{12})\.json")
_STAGED_FILE: Final = re.compile(r"(\d{12})-(?:(\d{4}-\d\d-\d\d)-)?([0-9a-f-]{36})")
_DATED_FILE: Final = re.compile(rf"{DATE}=[^/]+/[^/_.][^/]*\.parquet")
_PLAIN_FILE: Final = re.compile(r"[^/_.][^/]*\.parquet")


class ParquetTarget:
    """Parquet files, for one stream of changes; see :class:`Target`.

    The rows of a history are appended, in partitions by the date of the commit. A small table
    without partitions can also be replaced as a whole, by one file that has the same path each
    time: readers see all rows of before or all of those after.
    """

    deletes = marks = False
    others = ()  # files that other programs add are rows of theirs, which no change concerns

    def __init__(
        self,
        uri: str,
        app_id: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        by_date: bool = True,
    ) -> None:
        self.folder: Folder = open_folder(uri, storage_options)
        self.name = uri
        self._app_id = app_id
        self._options = dict(storage_options or {})
        self._by_date = by_date
        self._last: Mapping[str, Any] | None = None
        self._versions: list[int] = []  # of the commits that are there
        self._is_finished = False
        self.refresh()

    @property
    def schema(self) -> pa.Schema | None:
        return None if self._last is None else from_json(json.dumps(self._last["schema"]))

    @property
    def position(self) -> Position:
        if self._last is None:
            return Position()
        return Position(self._last["commit_lsn"], self._last["relation_oid"])

    @property
    def record(self) -> str | None:
        return None if self._last is None else self._last["record"]

    @property
    def version(self) -> int | None:
        return None if self._last is None else int(self._last["version"])

    @property
    def files(self) -> TableFiles:
        form = _DATED_FILE if self._by_date else _PLAIN_FILE
        files = [
            DataFile(path, size, None, Bounds())
            for path, size in sorted(self.folder.sizes().items())
            if form.fullmatch(path)
        ]
        return TableFiles(self.name, self.folder.uri, tuple(files), self._options)

    @property
    def layout(self) -> FileLayout:
        """Paths of staged files. Once another commit has their version, they are removed."""
        return FileLayout(f"{_STAGED}/{self._next:012}-", "", self._by_date)

    def takes(self, steps: Sequence[ColumnStep]) -> bool:
        return True  # or a commit raises an error

    def file_schema(self, schema: pa.Schema, steps: Sequence[ColumnStep] = ()) -> pa.Schema:
        if self._by_date and DATE in (name.lower() for name in schema.names):
            raise TableError(
                f"the table has a column {DATE}, as the partitions of {self.name} do",
                hint="Rename the column, or leave it out with the mask drop. Or use another "
                "format than Parquet.",
            )
        return schema

    def refresh(self) -> None:
        """Read the last commit, and finish it if its writer did not."""
        self._read()
        self._finish()

    def commit(self, commit: Commit) -> None:
        commit.check_base(self.name, self.position)
        schema = self._new_schema(commit)
        if not self._is_finished:
            self._finish()  # no later commit has its files
        places = self._places(commit)
        removed = [file.path for file in self.files.files] if commit.replaces else []
        record = {
            "version": self._next,
            "id": str(uuid.uuid4()),
            "app_id": self._app_id,
            "commit_lsn": commit.position.commit_lsn,
            "relation_oid": commit.position.relation,
            "record": self.record if commit.record is None else commit.record,
            "schema": json.loads(to_json(schema)),
            "files": places,
            "removed": sorted({*removed} - {*places.values()}),
        }
        path, is_written = commit_path(self._next), partial(self._has, record["id"])
        is_first = create_commit(self.folder, path, json.dumps(record), is_written)
        self._finish()
        if not is_first:
            raise CommitConflict(f"another mirror wrote changes into {self.name}")

    @property
    def _next(self) -> int:
        return 0 if self.version is None else self.version + 1

    def _new_schema(self, commit: Commit) -> pa.Schema:
        """Return the columns after a commit. Raises ``TableError`` if it cannot be written."""
        if commit.deleted or commit.removed or (commit.replaces and self._by_date):
            raise TableError(
                f"{self.name} has Parquet files, which can only be appended to",
                hint="Use `history=True`, or a Delta or Iceberg table.",
            )
        for step in commit.steps:
            if not isinstance(step, AddColumn):
                raise TableError(
                    f"Parquet files cannot {step}",
                    hint="Move them to another place, and resume the table: it is then written "
                    "again from the log's beginning.",
                )
        schema = self.schema if commit.schema is None else commit.schema
        if schema is None:
            raise TableError(f"{self.name} does not exist", hint=REMOVED)
        return self.file_schema(schema)

    def _places(self, commit: Commit) -> dict[str, str]:
        """Return the paths of new files in the folder, by their names among the staged ones."""
        assert not commit.replaces or len(commit.added) <= 1, "a small table has one file"
        places = {}
        for file in commit.added:
            name = file.path.removeprefix(f"{_STAGED}/")
            staged = _STAGED_FILE.fullmatch(name)
            if staged is None or int(staged[1]) != self._next:
                raise TableError(
                    f"{file.path} is not staged for version {self._next} of {self.name}",
                    is_transient=True,
                )
            directory = f"{DATE}={staged[2]}/" if staged[2] else ""
            places[name] = _ROWS if commit.replaces else f"{directory}{staged[3]}.parquet"
        return places

    def _has(self, identity: str) -> bool:
        """Read the last commit; return whether it has an identity."""
        # Others may have removed a commit of the same number, after newer ones.
        self._read()
        return self._last is not None and self._last["id"] == identity

    def _read(self) -> None:
        """Read the last commit."""
        self._is_finished = False
        while versions := self._list():
            path = commit_path(versions[-1])
            try:
                data = self.folder.read(path)
            except FileNotFoundError:
                continue  # a newer one has replaced it
            with reading(self.folder, path, "commit"):
                commit = parse_commit_record(data)
            if commit["app_id"] != self._app_id:
                raise TableError(
                    f"{self.name} has the changes of another stream, {commit['app_id']}",
                    hint="Write into another folder.",
                )
            self._last, self._versions = commit, versions
            return
        self._last, self._versions = None, []

    def _list(self) -> list[int]:
        """Return the versions whose commits are there, ascending."""
        commits = map(_COMMIT.fullmatch, self.folder.names(COMMITS))
        return sorted(int(commit[1]) for commit in commits if commit)

    def _finish(self) -> None:
        """Move the files of the last commit to their places; remove those that are not needed."""
        if self._last is None:
            return
        version, places = self._last["version"], self._last["files"]
        for name in self.folder.names(_STAGED):
            staged = _STAGED_FILE.fullmatch(name)
            if name in places:
                # Another program that opens the table may move it, too.
                with suppress(FileNotFoundError):
                    self.folder.move(f"{_STAGED}/{name}", places[name])
            elif staged is not None and int(staged[1]) <= version:
                self.folder.remove(f"{_STAGED}/{name}")  # of an attempt that failed
        for path in self._last["removed"]:
            self.folder.remove(path)
        for older in self._versions[:-1]:
            self.folder.remove(commit_path(older))
        for path in self.folder.abandoned(COMMITS):
            self.folder.remove(path)
        self._is_finished = True


def parse_commit_record(data: bytes) -> Mapping[str, Any]:
    """Return the record of a commit. Raises ``ValueError`` or ``LookupError`` for another file."""
    commit = json.loads(data)
    if not isinstance(commit, dict):
        raise ValueError("it has no JSON object")
    for name in ("version", "id", "app_id", "commit_lsn", "relation_oid", "schema"):
        commit[name]
    for path in (*commit["files"].values(), *commit["removed"]):
        if not (_DATED_FILE.fullmatch(path) or _PLAIN_FILE.fullmatch(path)):
            raise ValueError(f"{path!r} is not the path of a data file")
    return commit


def commit_path(version: int) -> str:
    """Return the path of a commit in the table's folder."""
    return f"{COMMITS}/{version:012}.json"
