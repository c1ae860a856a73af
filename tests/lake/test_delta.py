"""Delta tables: commits of this package, read and continued by other libraries."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import NewFile, write_data_files
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables import delta
from pgwire_codec.lake.tables.column_steps import RenameColumn, changed_schema
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.delta_log import commit_path
from pgwire_codec.lake.tables.target import Commit, CommitConflict
from pgwire_codec.lake.vectors import bitmap, positions_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

deltalake: Any = pytest.importorskip("deltalake")
pl: Any = pytest.importorskip("polars")

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


def rows(ids: Iterable[int], tag: str = "row") -> pa.RecordBatch:
    ids = list(ids)
    return pa.record_batch([ids, [f"{tag} {number}" for number in ids]], SCHEMA)


def new_file(target: DeltaTarget, *batches: pa.RecordBatch) -> NewFile:
    (file,) = write_data_files(target.folder, batches[0].schema, batches)
    return file


def create(path: Path, count: int = 10, **options: Any) -> DeltaTarget:
    """A table with rows numbered from 0."""
    target = DeltaTarget(str(path), "mirror", **options)
    file = new_file(target, rows(range(count)))
    target.commit(Commit(Position(100, 16384), [file], schema=SCHEMA))
    return target


def read_by(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of a table by each reader, sorted."""
    table = deltalake.DeltaTable(str(path))
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
    found = {
        "delta-rs": pa.table(query.read_all()).to_pylist(),
        "polars": pl.read_delta(str(path)).to_dicts(),
    }
    return {name: sorted(tuple(row.values()) for row in many) for name, many in found.items()}


def check(path: Path, expected: Iterable[tuple[Any, ...]]) -> None:
    rows = sorted(expected)
    for reader, found in read_by(path).items():
        assert found == rows, reader


def test_rows_are_marked_and_added(tmp_path: Path) -> None:
    target = create(tmp_path)
    (file,) = target.files.files
    assert (file.rows, file.deleted, file.bounds.lower) == (10, 0, {"id": 0, "note": "row 0"})
    for number in (3, 5):
        update = new_file(target, rows([number], "new"))
        target.commit(
            Commit(Position(200 + number, 16384), [update], {file.path: bitmap([number])})
        )
    expected = [(n, f"new {n}" if n in (3, 5) else f"row {n}") for n in range(10)]
    check(tmp_path, expected)
    opened = DeltaTarget(str(tmp_path), "mirror")
    assert opened.position == target.position == Position(205, 16384)
    assert opened.version == target.version == 2
    assert opened.schema == SCHEMA
    assert positions_of(_vector(opened, file.path)).tolist() == [3, 5]
    assert sorted(opened.files.files, key=str) == sorted(target.files.files, key=str)
    assert deltalake.DeltaTable(str(tmp_path)).transaction_version("mirror") == 205


def test_a_large_vector_is_a_file(tmp_path: Path) -> None:
    target = create(tmp_path, 20_000)
    (file,) = target.files.files
    odd = bitmap(range(1, 20_000, 2))
    target.commit(Commit(Position(200), (), {file.path: odd}))
    assert len(list(tmp_path.glob("deletion_vector_*.bin"))) == 1
    check(tmp_path, [(n, f"row {n}") for n in range(0, 20_000, 2)])
    assert _vector(DeltaTarget(str(tmp_path), "mirror"), file.path) == odd


def test_rows_that_are_deleted_already(tmp_path: Path) -> None:
    target = create(tmp_path)
    (file,) = target.files.files
    for _ in range(2):
        target.commit(Commit(Position(200), (), {file.path: bitmap([4])}))
    target.commit(Commit(Position(300), (), {file.path: bitmap([])}))
    check(tmp_path, [(n, f"row {n}") for n in range(10) if n != 4])


def test_a_file_without_rows_is_removed(tmp_path: Path) -> None:
    target = create(tmp_path)
    (file,) = target.files.files
    target.commit(Commit(Position(200), (), {file.path: bitmap(range(4))}))
    target.commit(Commit(Position(300), (), {file.path: bitmap(range(4, 10))}))
    assert target.files.files == ()
    check(tmp_path, [])


def test_a_table_is_replaced(tmp_path: Path) -> None:
    target = create(tmp_path)
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us")))
    batch = rows([7]).append_column("at", pa.array([None], pa.timestamp("us")))
    (file,) = write_data_files(target.folder, schema, [batch])
    target.commit(Commit(Position(200, 16400), [file], replaces=True, schema=schema))
    check(tmp_path, [(7, "row 7", None)])
    assert target.schema == schema
    assert "timestampNtz" in deltalake.DeltaTable(str(tmp_path)).protocol().reader_features


def test_a_checkpoint_is_written_and_read(tmp_path: Path) -> None:
    target = create(tmp_path, 100)
    (file,) = target.files.files
    for number in range(45):
        target.commit(
            Commit(
                Position(200 + number),
                [new_file(target, rows([number], "new"))],
                {file.path: bitmap([number])},
            )
        )
    assert len(list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    for path in sorted((tmp_path / "_delta_log").glob("*.json"))[:40]:
        path.unlink()
    opened = DeltaTarget(str(tmp_path), "mirror")
    assert sorted(opened.files.files, key=str) == sorted(target.files.files, key=str)
    assert opened.position == target.position
    opened.commit(Commit(Position(300), (), {file.path: bitmap([99])}))
    check(tmp_path, [(n, f"new {n}" if n < 45 else f"row {n}") for n in range(99)])


def optimize(path: Path) -> None:
    deltalake.DeltaTable(str(path)).optimize.compact()


def merge(path: Path) -> None:
    source = pa.table(rows([2], "theirs"))
    merged = deltalake.DeltaTable(str(path)).merge(source, "t.id = s.id", "s", "t")
    merged.when_matched_update_all().execute()


def delete(path: Path) -> None:
    deltalake.DeltaTable(str(path)).delete("id = 2")


@pytest.mark.parametrize(("retention", "days", "is_expired"), [
    ("interval 1 week", 8, True),
    ("interval 1 week", 6, False),
    ("interval 30 days", 8, False),
    ("interval 30 days", 31, True),
    ("interval 1 months", 99, None),
])  # fmt: skip
def test_files_of_old_versions(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    retention: str,
    days: int,
    is_expired: bool | None,
) -> None:
    """Those that no version of the retention has are removed, and those that none ever had."""
    now = time.time()
    old = now - days * 86_400
    monkeypatch.setattr(delta, "_milliseconds", lambda: int(old * 1000))
    target = create(tmp_path, 20_000)
    (file,) = target.files.files
    if retention != "interval 1 week":
        name = "delta.deletedFileRetentionDuration"
        deltalake.DeltaTable(str(tmp_path)).alter.set_table_properties({name: retention})
        target.refresh()
    for step in (2, 3):  # each has a vector in a file of its own
        target.commit(Commit(Position(200 + step), (), {file.path: bitmap(range(1, 20_000, step))}))
    for number in range(20):
        target.commit(Commit(Position(250 + number)))
    new_file(target, rows([1]))  # of a commit that did not come
    (tmp_path / "notes.txt").write_text("not of the table")
    (tmp_path / "part-1.parquet").write_text("of another program")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "part-0.parquet").write_text("of another one")
    killed = f".name.{uuid.uuid4()}.tmp"
    for folder in (tmp_path, tmp_path / "_delta_log"):
        (folder / killed).touch()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for path in before:
        os.utime(path, (old, old))
    recent = new_file(target, rows([2]))  # of a commit that may come
    os.utime(tmp_path / recent.path, (now - 80_000, now - 80_000))
    (tmp_path / f".new.{uuid.uuid4()}.tmp").touch()
    monkeypatch.undo()
    target = DeltaTarget(str(tmp_path), "mirror")
    for number in range(25):
        deleted = {file.path: bitmap(range(5, 20_000, 7))} if number == 3 else {}
        target.commit(Commit(Position(300 + number), (), deleted))
    check(tmp_path, [(n, f"row {n}") for n in range(20_000) if _is_left(n)])
    removed = {path.relative_to(tmp_path) for path in before if not path.exists()}
    assert len([path for path in removed if path.name == killed]) == 2
    vectors = sum(path.name.startswith("deletion_vector") for path in removed)
    files = sum(path.suffix == ".parquet" and path.parts[0] != "_delta_log" for path in removed)
    expected = 0 if is_expired is None else 1 + (days > 7)
    assert (files, vectors) == (expected, is_expired or 0)
    assert (tmp_path / recent.path).exists()
    assert len(list(tmp_path.glob(".new.*"))) == 1
    assert (tmp_path / commit_path(0)).exists() == (days < 30)  # delta.logRetentionDuration


def test_old_files_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The table has its commits all the same."""

    def refuse(*_: Any) -> Any:
        raise PermissionError("deletes are not allowed")

    monkeypatch.setattr("pgwire_codec.lake.tables.delta.unused_files", refuse)
    target = create(tmp_path)
    for number in range(25):
        target.commit(Commit(Position(200 + number)))
    assert DeltaTarget(str(tmp_path), "mirror").position.commit_lsn == 224
    assert "are not removed: deletes are not allowed" in caplog.text


def _is_left(n: int) -> bool:
    return not n or bool((n - 1) % 2 and (n - 1) % 3 and (n < 5 or (n - 5) % 7))


@pytest.mark.parametrize("other", [optimize, merge, delete])
def test_another_writer_comes_first(tmp_path: Path, other: Callable[[Path], None]) -> None:
    """If it has changed a touched file, nothing is committed; what follows is decided again."""
    target = create(tmp_path)
    target.commit(Commit(Position(150), [new_file(target, rows([10, 11]))]))
    first = next(file for file in target.files.files if file.rows == 10)
    late = Commit(Position(200), [new_file(target, rows([1], "new"))], {first.path: bitmap([1])})
    other(tmp_path)
    with pytest.raises(CommitConflict, match="another commit changed the file"):
        target.commit(late)
    assert target.position == Position(150, 16384)
    (second,) = (file for file in target.files.files if file.bounds.lower["id"] == 0)
    place = sorted(
        (row["id"], number)
        for number, row in enumerate(pa.parquet.read_table(tmp_path / second.path).to_pylist())
    )[1][1]
    target.commit(Commit(late.position, late.added, {second.path: bitmap([place])}))
    expected = {n: f"row {n}" for n in range(12)} | {1: "new 1"}
    if other is merge:
        expected[2] = "theirs 2"
    elif other is delete:
        del expected[2]
    check(tmp_path, expected.items())


def test_another_writer_appends_first(tmp_path: Path) -> None:
    target = create(tmp_path)
    (file,) = target.files.files
    deltalake.write_deltalake(str(tmp_path), pa.table(rows([20])), mode="append")
    target.commit(Commit(Position(200), (), {file.path: bitmap([0])}))
    assert target.version == 2
    check(tmp_path, [(n, f"row {n}") for n in (*range(1, 10), 20)])


def test_another_writer_appends_before_files_with_other_columns(tmp_path: Path) -> None:
    """Its file does not have the new name of a column, and would be read as if it lacked it."""
    target = create(tmp_path)
    step = RenameColumn("note", "text")
    schema = changed_schema(SCHEMA, [step])
    batch = rows(range(10)).rename_columns(schema.names)
    paths = [file.path for file in target.files.files]
    commit = Commit(
        target.position, [new_file(target, batch)], removed=paths, schema=schema, steps=[step]
    )
    deltalake.write_deltalake(str(tmp_path), pa.table(rows([20])), mode="append")
    with pytest.raises(CommitConflict, match="another commit added files"):
        target.commit(commit)
    assert target.schema == SCHEMA


def test_another_mirror_comes_first(tmp_path: Path) -> None:
    target, other = create(tmp_path), DeltaTarget(str(tmp_path), "mirror")
    other.commit(Commit(Position(200), [new_file(other, rows([10]))]))
    with pytest.raises(CommitConflict, match="another mirror"):
        target.commit(Commit(Position(200), [new_file(target, rows([10]))]))
    assert target.position == Position(200, 16384)


def test_other_columns_come_first(tmp_path: Path) -> None:
    target = create(tmp_path)
    field = deltalake.Field("more", deltalake.schema.PrimitiveType("string"))
    deltalake.DeltaTable(str(tmp_path)).alter.add_columns(field)
    with pytest.raises(CommitConflict, match="changed the columns"):
        target.commit(Commit(Position(200), [new_file(target, rows([10]))]))


class Failing:
    """A folder whose next commit fails, before or after it is written."""

    def __init__(self, folder: Any, after: bool) -> None:
        self._folder, self._after, self._fails = folder, after, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def create(self, path: str, data: bytes) -> None:
        if self._fails and path.endswith(".json"):
            self._fails = False
            if self._after:
                self._folder.create(path, data)
            raise OSError("connection reset")
        self._folder.create(path, data)


@pytest.mark.parametrize("written", [False, True])
def test_a_commit_whose_end_is_not_known(tmp_path: Path, written: bool) -> None:
    target = create(tmp_path)
    folder = Failing(target.folder, written)
    commit = Commit(Position(200), [new_file(target, rows([10]))])
    target.folder = folder  # type: ignore[assignment]
    if not written:
        with pytest.raises(OSError, match="connection reset"):
            target.commit(commit)
        assert target.position == Position(100, 16384)
    target.commit(commit)
    assert target.version == 1
    check(tmp_path, [(n, f"row {n}") for n in range(11)])


def test_a_feature_that_is_not_supported(tmp_path: Path) -> None:
    target = create(tmp_path, write_mode="copy-on-write")
    table = deltalake.DeltaTable(str(tmp_path))
    table.alter.add_constraint({"positive": "id >= 0"})
    target.refresh()
    with pytest.raises(TableError, match="not supported: checkConstraints"):
        target.commit(Commit(Position(200), [new_file(target, rows([10]))]))


def test_only_what_may_be_appended_to(tmp_path: Path) -> None:
    target = create(tmp_path)
    properties = {"delta.appendOnly": "true"}
    deltalake.DeltaTable(str(tmp_path)).alter.set_table_properties(properties)
    target.refresh()
    (file,) = target.files.files
    target.commit(Commit(Position(200), [new_file(target, rows([10]))]))
    with pytest.raises(TableError, match="not supported: appendOnly"):
        target.commit(Commit(Position(300), (), {file.path: bitmap([0])}))


def test_a_log_with_a_gap_is_an_error(tmp_path: Path) -> None:
    target = create(tmp_path)
    for number in range(3):
        target.commit(Commit(Position(200 + number), [new_file(target, rows([10 + number]))]))
    log = tmp_path / "_delta_log"
    (log / f"{2:020}.json").unlink()
    with pytest.raises(TableError, match="has no commit 2"):
        DeltaTarget(str(tmp_path), "mirror")
    (log / f"{2:020}.json").write_text('{"add": {')
    with pytest.raises(TableError, match="damaged"):
        DeltaTarget(str(tmp_path), "mirror")


def test_a_vector_that_is_missing_or_damaged(tmp_path: Path) -> None:
    target = create(tmp_path, 20_000)
    (file,) = target.files.files
    target.commit(Commit(Position(200), (), {file.path: bitmap(range(1, 20_000, 2))}))
    (path,) = tmp_path.glob("deletion_vector_*.bin")
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"?" + data[101:])
    with pytest.raises(TableError, match="does not match its checksum"):
        _vector(target, file.path)
    path.unlink()
    with pytest.raises(TableError, match="is missing"):
        _vector(target, file.path)


def test_commits_are_as_the_protocol_has_them(tmp_path: Path) -> None:
    target = create(tmp_path)
    (file,) = target.files.files
    target.commit(Commit(Position(200), (), {file.path: bitmap([0])}))
    path = tmp_path / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    by_kind = {kind: content for action in actions for kind, content in action.items()}
    assert by_kind["commitInfo"]["operation"] == "MERGE"
    assert not by_kind["commitInfo"]["isBlindAppend"]
    assert by_kind["remove"]["path"] == by_kind["add"]["path"] == file.path
    assert "deletionVector" not in by_kind["remove"]
    assert by_kind["add"]["deletionVector"]["cardinality"] == 1
    statistics = json.loads(by_kind["add"]["stats"])
    assert (statistics["numRecords"], statistics["tightBounds"]) == (10, False)


def _vector(target: DeltaTarget, path: str) -> BitMap64:
    files = target.files
    return files.vector(next(file for file in files.files if file.path == path))


@pytest.mark.parametrize("character", ["\U0001ffff", "\U00020000", "\U0010ffff"])
def test_a_filter_finds_any_character(tmp_path: Path, character: str) -> None:
    """Readers take the escapes of some characters for those of others."""
    from tests.support import table_readers

    batch = pa.record_batch({"note": [character]})
    target = DeltaTarget(str(tmp_path), "mirror")
    file = new_file(target, batch)
    target.commit(Commit(Position(100, 16384), [file], schema=batch.schema))
    value = pa.scalar(character)
    for reader in (table_readers.Polars(), table_readers.DeltaRs()):
        found = [reader.count(tmp_path, "note", operator, value) for operator in ("=", "<", ">")]
        assert found == [1, 0, 0], reader.name
