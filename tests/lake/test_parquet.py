"""Parquet folders: each row once whatever fails, and read by other programs at any time."""

from __future__ import annotations

import errno
import json
import os
import pickle
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pgwire_codec.errors import TableError
from pgwire_codec.lake import data_files
from pgwire_codec.lake.data_files import FileLayout, NewFile, write_data_files
from pgwire_codec.lake.folder import Folder, LocalFolder
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.column_steps import AddColumn, RenameColumn, WidenColumn
from pgwire_codec.lake.tables.parquet import ParquetTarget
from pgwire_codec.lake.tables.target import Commit, CommitConflict
from pgwire_codec.lake.vectors import bitmap
from tests.support.object_store import s3_options

pl: Any = pytest.importorskip("polars")

UTC = timezone.utc
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("_commit_time", TIME)])
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


def rows(ids: Iterable[int], days: Iterable[int] = (0,)) -> pa.RecordBatch:
    """Rows of each of some days after the first one."""
    both = [(number, NOON + timedelta(days=day)) for day in days for number in ids]
    columns = [
        [number for number, _ in both],
        [f"row {number}" for number, _ in both],
        [time for _, time in both],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, SCHEMA)


def write(target: ParquetTarget, *batches: pa.RecordBatch) -> list[NewFile]:
    layout = pickle.loads(pickle.dumps(target.layout))
    return list(write_data_files(target.folder, batches[0].schema, batches, layout))


def append(target: ParquetTarget, lsn: int, *batches: pa.RecordBatch) -> None:
    target.commit(Commit(Position(lsn, 16384), write(target, *batches), schema=SCHEMA))


def test_files_of_killed_commits(tmp_path: Path) -> None:
    """Those that were begun an hour ago are removed."""
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, rows([1]))
    names = [f".{number:012}.json.{uuid.uuid4()}.tmp" for number in (1, 2)]
    for name in names:
        (tmp_path / "_pgwire_codec" / name).touch()
    old = time.time() - 4000
    os.utime(tmp_path / "_pgwire_codec" / names[0], (old, old))
    append(target, 200, rows([2]))
    left = [path.name for path in (tmp_path / "_pgwire_codec").glob(".*")]
    assert left == names[1:]


def read_by(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """ID and date of each row, by each reader, sorted."""
    columns = ["id", "commit_date"]
    hive = ds.partitioning(pa.schema([("commit_date", pa.date32())]), flavor="hive")
    dataset = ds.dataset(path, format="parquet", partitioning=hive)
    pattern = str(path / "**" / "*.parquet")
    found = {
        "pyarrow": [tuple(row.values()) for row in dataset.to_table(columns).to_pylist()],
        "polars": pl.read_parquet(pattern, hive_partitioning=True).select(columns).rows(),
    }
    try:
        import duckdb
    except ImportError:
        pass
    else:
        scan = f"FROM read_parquet('{pattern}', hive_partitioning = true)"
        found["duckdb"] = duckdb.execute(f"SELECT id, commit_date {scan}").fetchall()
    return {name: sorted(many) for name, many in found.items()}


def check(path: Path, expected: Iterable[tuple[int, int]]) -> None:
    """Expect IDs with their days in what each reader finds."""
    dated = sorted((number, NOON.date() + timedelta(days=day)) for number, day in expected)
    for reader, found in read_by(path).items():
        assert found == dated, reader


def test_rows_are_appended_by_date(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    assert (target.schema, target.version, target.position) == (None, None, Position())
    append(target, 100, rows([1, 2], [0]), rows([3], [0, 1]))
    append(target, 200, rows([4], [1]))
    check(tmp_path, [(1, 0), (2, 0), (3, 0), (3, 1), (4, 1)])
    for opened in target, ParquetTarget(str(tmp_path), "mirror"):
        assert (opened.schema, opened.version) == (SCHEMA, 1)
        assert opened.position == Position(200, 16384)
        assert len(opened.files.files) == 3
        assert not opened.files.is_empty
    paths = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")}
    assert {file.path for file in target.files.files} == paths
    assert {path.split("/")[0] for path in paths} == {
        "commit_date=2024-02-29", "commit_date=2024-03-01",
    }  # fmt: skip


def test_files_are_not_seen_before_their_commit(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, rows([1]))
    files = write(target, rows([2, 3], [0, 1]))
    check(tmp_path, [(1, 0)])
    target.commit(Commit(Position(200), files))
    check(tmp_path, [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1)])


def test_only_the_last_commit_is_kept(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    for number in range(3):
        append(target, 100 + number, rows([number]))
    target.commit(Commit(Position(300, 16390)))
    folder = tmp_path / "_pgwire_codec"
    assert sorted(path.name for path in folder.iterdir()) == ["000000000003.json", "staged"]
    assert not list((folder / "staged").iterdir())


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), "2024-02-29"),
        (datetime(2024, 3, 1, tzinfo=UTC), "2024-03-01"),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "1969-12-31"),
    ],
)
def test_dates_are_those_of_utc(tmp_path: Path, time: datetime, expected: str) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, pa.record_batch([[1], ["a"], pa.array([time], TIME)], SCHEMA))
    (file,) = target.files.files
    assert file.path.startswith(f"commit_date={expected}/")
    ((_, found),) = read_by(tmp_path)["pyarrow"]
    assert found == date.fromisoformat(expected)


class Counted:
    """A folder that counts open files, and the most of them."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self.open, self.most = folder, 0, 0

    @contextmanager
    def writer(self, path: str) -> Iterator[Any]:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            with self._folder.writer(path) as file:
                yield file
        finally:
            self.open -= 1


DATED = FileLayout("staged/", "", by_date=True)


def test_dates_of_any_order(tmp_path: Path) -> None:
    """Few files are open at a time, and each has the rows of one date, in their order."""
    folder = Counted(LocalFolder(tmp_path))
    batches = [rows(range(10 * number, 10 * number + 10), [number % 7, 7]) for number in range(14)]
    batches.append(rows([], []))
    batches.append(rows([500, 501], [9, 8]))
    files = list(write_data_files(folder, SCHEMA, batches, DATED))  # type: ignore[arg-type]
    assert folder.open == 0
    assert folder.most <= 4
    found = []
    for file in files:
        table = pq.read_table(tmp_path / file.path)
        ids = table.column("id").to_pylist()
        assert ids == sorted(ids)
        days = {time.date() for time in table.column("_commit_time").to_pylist()}
        assert file.path.startswith(f"staged/{days.pop()}-")
        assert not days
        assert (file.rows, file.size) == (len(table), (tmp_path / file.path).stat().st_size)
        assert (file.bounds.lower["id"], file.bounds.upper["id"]) == (ids[0], ids[-1])
        found += table.select(["id", "_commit_time"]).to_pylist()
    expected = pa.Table.from_batches(batches).select(["id", "_commit_time"]).to_pylist()
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert sum("2024-03-07" in file.path for file in files) == 1  # it was never the oldest


def test_rows_of_a_date_are_in_one_file(tmp_path: Path) -> None:
    batches = [rows(range(3), [day, day + 1]) for day in range(20)]
    files = list(write_data_files(LocalFolder(tmp_path), SCHEMA, batches, DATED))
    assert [file.rows for file in files] == [3, *[6] * 19, 3]


def test_row_groups_of_many_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_GROUP_ROWS", 10)
    batches = [rows(range(4), [day % 2]) for day in range(12)]
    files = list(write_data_files(LocalFolder(tmp_path), SCHEMA, batches, DATED))
    for file in files:
        assert pq.read_metadata(tmp_path / file.path).num_row_groups == 2
    assert [file.rows for file in files] == [24, 24]


def test_files_of_a_task_that_fails_are_removed(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows([1], [0, 1, 2])
        raise ValueError("bad change")

    with pytest.raises(ValueError, match="bad change"):
        list(write_data_files(LocalFolder(tmp_path), SCHEMA, batches(), DATED))
    assert not list(tmp_path.rglob("*-*"))


def test_rows_without_dates_are_one_file(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    (file,) = write_data_files(folder, SCHEMA, [rows([1], [0, 1]), rows([2])], FileLayout())
    assert file.path.endswith(".parquet")
    assert pq.read_table(tmp_path / file.path).num_rows == 3
    assert not list(write_data_files(folder, SCHEMA, [], FileLayout()))


class Failing:
    """A folder that fails at its nth operation, before or after that has been done."""

    def __init__(self, folder: Folder, number: int, is_done: bool) -> None:
        self._folder, self._left, self._is_done = folder, number, is_done
        self.uri = folder.uri

    @property
    def has_failed(self) -> bool:
        return self._left < 0

    def _count(self) -> bool:
        """Return whether the operation is the one that fails; all fail after it."""
        self._left -= 1
        if self._left < -1 or (self._left == -1 and not self._is_done):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._left == -1

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._folder, name)

        def call(*arguments: Any) -> Any:
            fails = self._count()
            result = method(*arguments)
            if fails:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return result

        return call

    @contextmanager
    def writer(self, path: str) -> Iterator[Any]:
        fails = self._count()
        with self._folder.writer(path) as file:
            yield file
        if fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_each_row_is_there_once_after_a_crash(
    tmp_path: Path, is_done: bool, is_first: bool
) -> None:
    """The process ends at any operation; another one has the same changes to apply."""
    changes = rows([2, 3], [0, 1])
    before = [] if is_first else [(1, 0)]
    after = [*before, (2, 0), (3, 0), (2, 1), (3, 1)]
    number, has_failed = 0, True
    while has_failed:
        path = tmp_path / str(number)
        target = ParquetTarget(str(path), "mirror")
        if not is_first:
            append(target, 100, rows([1]))
        target.folder = failing = Failing(target.folder, number, is_done)
        try:
            append(target, 200, changes)
        except OSError:
            assert failing.has_failed
        has_failed = failing.has_failed

        opened = ParquetTarget(str(path), "mirror")
        if opened.position.commit_lsn == 200:
            check(path, after)
        else:
            if not is_first:
                check(path, before)
            append(opened, 200, changes)
        check(path, after)
        append(opened, 300, rows([4]))
        check(path, [*after, (4, 0)])
        assert not list((path / "_pgwire_codec" / "staged").iterdir())
        assert len(list((path / "_pgwire_codec").glob("*.json"))) == 1
        number += 1
    assert number > 8


@pytest.mark.parametrize("is_done", [False, True])
def test_a_process_that_goes_on_after_an_error(tmp_path: Path, is_done: bool) -> None:
    number, has_failed = 0, True
    while has_failed:
        path = tmp_path / str(number)
        target = ParquetTarget(str(path), "mirror")
        append(target, 100, rows([1]))
        usual = target.folder
        target.folder = failing = Failing(usual, number, is_done)
        try:
            append(target, 200, rows([2], [0, 1]))
        except OSError:
            assert failing.has_failed
        has_failed, target.folder = failing.has_failed, usual
        target.refresh()
        if target.position.commit_lsn != 200:
            append(target, 200, rows([2], [0, 1]))
        check(path, [(1, 0), (2, 0), (2, 1)])
        number += 1


def test_a_commit_is_not_written_twice(tmp_path: Path) -> None:
    """The caller repeats it, as its end is not known."""
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, rows([1]))
    commit = Commit(Position(200), write(target, rows([2])))
    target.commit(commit)
    with pytest.raises(TableError, match="is not staged for version 2") as raised:
        target.commit(commit)
    assert raised.value.is_transient
    check(tmp_path, [(1, 0), (2, 0)])


def test_a_task_of_a_process_that_is_gone_writes_later(tmp_path: Path) -> None:
    gone = ParquetTarget(str(tmp_path), "mirror")
    append(gone, 100, rows([1]))
    target = ParquetTarget(str(tmp_path), "mirror")
    write(gone, rows([2]))
    append(target, 200, rows([2]))
    write(gone, rows([2]))
    check(tmp_path, [(1, 0), (2, 0)])
    ParquetTarget(str(tmp_path), "mirror")
    check(tmp_path, [(1, 0), (2, 0)])
    assert not list((tmp_path / "_pgwire_codec" / "staged").iterdir())


def test_a_second_attempt_of_a_task(tmp_path: Path) -> None:
    """The first one wrote a file, and its result got lost."""
    target = ParquetTarget(str(tmp_path), "mirror")
    write(target, rows([1]))
    append(target, 100, rows([1]))
    check(tmp_path, [(1, 0)])


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_another_mirror_comes_first(tmp_path: Path, commits: int) -> None:
    """Its later commits replace the one whose number this mirror has for its own."""
    late, other = (ParquetTarget(str(tmp_path), "mirror") for _ in range(2))
    files = write(late, rows([1]))
    for number in range(commits):
        append(other, 100 + number, rows([10 + number]))
    with pytest.raises(CommitConflict, match="another mirror"):
        late.commit(Commit(Position(100), files, schema=SCHEMA))
    assert late.position == other.position == Position(99 + commits, 16384)
    append(late, 300, rows([2]))
    check(tmp_path, [*((10 + number, 0) for number in range(commits)), (2, 0)])
    assert ParquetTarget(str(tmp_path), "mirror").position.commit_lsn == 300


def test_a_commit_that_is_replaced_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = (ParquetTarget(str(tmp_path), "mirror") for _ in range(2))
    append(other, 100, rows([1]))
    usual = LocalFolder.names

    def names(self: LocalFolder, directory: str, after: str = "") -> list[str]:
        listed = usual(self, directory, after)
        if self is late.folder and other.position.commit_lsn == 100:
            append(other, 200, rows([2]))
        return listed

    monkeypatch.setattr(LocalFolder, "names", names)
    late.refresh()
    assert late.position.commit_lsn == 200


def test_many_mirrors_at_a_time(tmp_path: Path) -> None:
    """Each transaction is applied by one of them."""

    def run(_: int) -> None:
        target = ParquetTarget(str(tmp_path), "mirror")
        while (lsn := (target.position.commit_lsn or 0) + 1) <= 20:
            try:
                append(target, lsn, rows([lsn], [0, 1]))
            except CommitConflict:
                continue

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(4)))
    check(tmp_path, [(number, day) for number in range(1, 21) for day in (0, 1)])


def test_a_new_column(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, rows([1]))
    step = AddColumn("more", pa.decimal128(10, 2))
    schema = SCHEMA.append(pa.field(step.name, step.kind))
    target.commit(Commit(Position(100, 16384), schema=schema, steps=[step]))
    more = rows([2], [1]).append_column(schema.field("more"), pa.array([Decimal(5)], step.kind))
    target.commit(Commit(Position(200, 16384), write(target, more)))
    opened = ParquetTarget(str(tmp_path), "mirror")
    assert opened.schema == schema
    files = opened.files
    assert files.files == target.files.files
    read = pa.Table.from_batches(
        [batch for file in files.files for batch in files.batches(file, schema)]
    )
    pattern = f"{tmp_path}/**/*.parquet"
    found = [
        read,
        ds.dataset(tmp_path, schema, format="parquet", partitioning="hive").to_table(),
        pl.read_parquet(pattern, schema=pl.Schema(schema), missing_columns="insert").to_arrow(),
    ]
    for table in found:
        values = sorted(
            zip(*(table.column(name).to_pylist() for name in ("id", "more")), strict=True)
        )
        assert values == [(1, None), (2, Decimal(5))]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (WidenColumn("id", pa.decimal128(20, 0)), r"widen column id to decimal\(20,0\)"),
        (RenameColumn("note", "name"), "rename column note to name"),
    ],
)
def test_other_steps_are_errors(tmp_path: Path, step: Any, text: str) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, rows([1]))
    with pytest.raises(TableError, match=f"Parquet files cannot {text}") as raised:
        target.commit(Commit(Position(200), schema=SCHEMA, steps=[step]))
    assert raised.value.hint is not None
    assert target.position == Position(100, 16384)


def test_what_cannot_be_done_is_an_error(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    with pytest.raises(TableError, match="does not exist"):
        target.commit(Commit(Position(100)))
    append(target, 100, rows([1]))
    (file,) = target.files.files
    for commit in (
        Commit(Position(200), deleted={file.path: bitmap([0])}),
        Commit(Position(200), removed=[file.path]),
        Commit(Position(200), write(target, rows([2])), replaces=True),
    ):
        with pytest.raises(TableError, match="can only be appended to"):
            target.commit(commit)
    check(tmp_path, [(1, 0)])


def test_a_column_with_the_name_of_the_partitions(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    schema = SCHEMA.append(pa.field("Commit_Date", pa.date32()))
    with pytest.raises(TableError, match="the table has a column commit_date"):
        target.file_schema(schema)
    with pytest.raises(TableError, match="the table has a column commit_date"):
        target.commit(Commit(Position(100), schema=schema))
    assert target.version is None


def test_a_folder_of_another_stream(tmp_path: Path) -> None:
    append(ParquetTarget(str(tmp_path), "mirror"), 100, rows([1]))
    with pytest.raises(TableError, match="has the changes of another stream, mirror"):
        ParquetTarget(str(tmp_path), "other")


def test_a_damaged_commit(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path), "mirror")
    append(target, 100, rows([1]))
    (path,) = (tmp_path / "_pgwire_codec").glob("*.json")
    path.write_text('{"version": ')
    with pytest.raises(TableError, match="is damaged"):
        target.refresh()


def test_commits_are_json(tmp_path: Path) -> None:
    append(ParquetTarget(str(tmp_path), "mirror"), 100, rows([1]))
    (path,) = (tmp_path / "_pgwire_codec").glob("*.json")
    commit = json.loads(path.read_text())
    assert path.name == "000000000000.json"
    assert (commit["version"], commit["commit_lsn"], commit["relation_oid"]) == (0, 100, 16384)
    assert [field["type"] for field in commit["schema"]["fields"]] == [
        "long", "string", "timestamp",
    ]  # fmt: skip


@pytest.fixture
def options() -> Iterator[dict[str, str]]:
    """Options of a store whose bucket is ``lake``."""
    with s3_options("lake") as chosen:
        yield chosen


@pytest.mark.slow
def test_an_object_store(options: dict[str, str]) -> None:
    def stored(target: ParquetTarget) -> list[int]:
        files = target.files
        batches = [batch for file in files.files for batch in files.batches(file, SCHEMA)]
        ids: list[int] = pa.Table.from_batches(batches, SCHEMA).column("id").to_pylist()
        return sorted(ids)

    target, late = (ParquetTarget("s3://lake/t", "mirror", options) for _ in range(2))
    append(target, 100, rows([1, 2], [0, 1]))
    with pytest.raises(CommitConflict):
        append(late, 100, rows([1, 2], [0, 1]))
    assert stored(late) == [1, 1, 2, 2]
    number, has_failed, present = 0, True, [1, 1, 2, 2]
    while has_failed:
        target = ParquetTarget("s3://lake/t", "mirror", options)
        usual = target.folder
        target.folder = failing = Failing(usual, number, is_done=True)
        try:
            append(target, 200 + number, rows([10 + number]))
        except OSError:
            assert failing.has_failed
        has_failed = failing.has_failed
        opened = ParquetTarget("s3://lake/t", "mirror", options)
        if opened.position.commit_lsn != 200 + number:
            append(opened, 200 + number, rows([10 + number]))
        present.append(10 + number)
        assert stored(opened) == present
        assert len(opened.folder.sizes()) == len(opened.files.files) + 1
        number += 1


class TestSmallTables:
    """Tables without partitions, whose rows can be replaced."""

    SCHEMA = pa.schema([("table", pa.string()), ("state", pa.string())])

    def open(self, path: Path) -> ParquetTarget:
        return ParquetTarget(str(path), "mirror", by_date=False)

    def write(self, target: ParquetTarget, *states: str, replaces: bool = True) -> None:
        names = [f"t{number}" for number in range(len(states))]
        batch = pa.record_batch([names, pa.array(states, pa.string())], self.SCHEMA)
        files = write(target, batch)
        target.commit(Commit(Position(), files, replaces=replaces, schema=self.SCHEMA))

    def states(self, path: Path) -> list[str]:
        """Values of the column as each of the readers finds them."""
        found: list[str] = sorted(pq.read_table(path).column("state").to_pylist())
        polars = pl.read_parquet(path / "*.parquet")["state"].to_list()
        assert sorted(polars) == found
        target = self.open(path)
        files = target.files
        batches = [batch for file in files.files for batch in files.batches(file, self.SCHEMA)]
        states = pa.Table.from_batches(batches, self.SCHEMA).column("state")
        assert sorted(states.to_pylist()) == found
        return found

    def test_rows_are_replaced(self, tmp_path: Path) -> None:
        target = self.open(tmp_path)
        for states in ["ok"], ["failed", "ok"], ["failed"]:
            self.write(target, *states)
            assert self.states(tmp_path) == states
            assert [file.path for file in target.files.files] == ["rows.parquet"]
        target.commit(Commit(Position(), replaces=True))
        assert not list(tmp_path.glob("*.parquet"))
        assert self.open(tmp_path).version == 3

    def test_rows_are_appended_between(self, tmp_path: Path) -> None:
        target = self.open(tmp_path)
        self.write(target, "a", replaces=False)
        self.write(target, "b", replaces=False)
        assert self.states(tmp_path) == ["a", "b"]
        self.write(target, "b", "c")
        assert self.states(tmp_path) == ["b", "c"]
        self.write(target, "d", replaces=False)
        assert self.states(tmp_path) == ["b", "c", "d"]

    @pytest.mark.parametrize("is_done", [False, True])
    def test_a_crash_at_any_operation(self, tmp_path: Path, is_done: bool) -> None:
        number, has_failed = 0, True
        while has_failed:
            path = tmp_path / str(number)
            target = self.open(path)
            self.write(target, "a")
            target.folder = failing = Failing(target.folder, number, is_done)
            try:
                self.write(target, "b", "c")
            except OSError:
                assert failing.has_failed
            has_failed = failing.has_failed
            found = pq.read_table(path).column("state").to_pylist()
            assert found in (["a"], ["b", "c"])
            opened = self.open(path)
            assert self.states(path) == (["b", "c"] if opened.version == 1 else ["a"])
            self.write(opened, "d")
            assert self.states(path) == ["d"]
            number += 1

    def test_a_reader_at_each_moment(self, tmp_path: Path) -> None:
        target = self.open(tmp_path)
        self.write(target, *["0"] * 3)

        def write_all() -> None:
            for number in range(1, 60):
                self.write(target, *[str(number)] * 3)

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write_all)
            while not writing.done():
                with (tmp_path / "rows.parquet").open("rb") as file:  # a path is opened twice
                    states = pq.read_table(file).column("state").to_pylist()
                assert len(states) == 3
                assert len({*states}) == 1
            writing.result()

    def test_rows_of_a_file_only_are_replaced_together(self, tmp_path: Path) -> None:
        target = self.open(tmp_path)
        nulls = pa.table([pa.nulls(1, each.type) for each in self.SCHEMA], schema=self.SCHEMA)
        (file,) = write_data_files(target.folder, self.SCHEMA, nulls.to_batches())
        with pytest.raises(TableError, match="is not staged for version 0"):
            target.commit(Commit(Position(), [file], replaces=True, schema=self.SCHEMA))
