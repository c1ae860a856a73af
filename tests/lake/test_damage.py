"""Damaged files of tables: errors that name them, or what else has the same is read."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.folder import is_inside
from pgwire_codec.lake.lookup import find_rows
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables import delta
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.parquet import ParquetTarget
from pgwire_codec.lake.tables.target import Commit
from pgwire_codec.lake.vectors import bitmap
from tests.support.lakehouse import delta_rows

pytest.importorskip("deltalake")

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch([[*ids], [f"row {number}" for number in ids]], SCHEMA)


def add(target: Any, batch: pa.RecordBatch, lsn: int) -> str:
    """Add a file of rows to a table, and return its path."""
    (file,) = write_data_files(target.folder, SCHEMA, [batch], target.layout)
    is_new = target.schema is None
    target.commit(Commit(Position(lsn, 1), [file], schema=SCHEMA if is_new else None))
    return file.path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with commits 0 to 5, and checkpoints 1, 3 and 5."""
    path = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "_CHECKPOINT_COMMITS", 2)
        target = DeltaTarget(str(path), "mirror")
        for number in range(6):
            add(target, rows(1, number), number)
    return path


@pytest.fixture
def table(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    monkeypatch.setattr(delta, "_CHECKPOINT_COMMITS", 2)
    return Path(shutil.copytree(template, tmp_path / "t"))


def log_file(table: Path, name: str) -> Path:
    return table / "_delta_log" / name


def checkpoint(table: Path, version: int) -> Path:
    return log_file(table, f"{version:020}.checkpoint.parquet")


LAST: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is damaged: Expecting value"),
    "torn": (b'{"version":5,"si', "is damaged: "),
    "of another kind": (b"[]", "is damaged: it has no JSON object"),
    "without version": (b"{}", "is damaged: it lacks 'version'"),
    "of a missing checkpoint": (b'{"version":4}', "00004.checkpoint.parquet is missing"),
    "of missing parts": (b'{"version":5,"parts":2}', r"0000000001\.0000000002\.parquet is missing"),
}


@pytest.mark.parametrize(("content", "text"), LAST.values(), ids=[*LAST])
def test_a_last_checkpoint_that_cannot_be_read(
    table: Path, content: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An older one and commits are read, or the error names the file."""
    log_file(table, "_last_checkpoint").write_bytes(content)
    log_file(table, f"{0:020}.json").unlink()
    with caplog.at_level(logging.WARNING):
        target = DeltaTarget(str(table), "mirror")
    assert (target.version, len(target.files.files)) == (5, 6)
    assert "it is not needed, and is skipped" in caplog.text
    for version in (1, 3, 5):
        checkpoint(table, version).unlink()
    with pytest.raises(TableError, match=f"{text}.*, and commit 0 is missing — hint: Restore"):
        DeltaTarget(str(table), "mirror")


@pytest.mark.parametrize("how", ["empty", "torn", "missing", "flipped"])
def test_a_checkpoint_that_cannot_be_read(table: Path, how: str) -> None:
    """The table is read without it, and other programs read the table after the next commit."""
    path = checkpoint(table, 5)
    data = path.read_bytes()
    footer = len(data) - 40
    changed = {
        "empty": b"",
        "torn": data[: len(data) // 2],
        "flipped": data[:footer] + bytes([data[footer] ^ 255]) + data[footer + 1 :],
    }
    path.unlink() if how == "missing" else path.write_bytes(changed[how])
    log_file(table, f"{0:020}.json").unlink()
    target = DeltaTarget(str(table), "mirror")
    assert (target.version, target.position.commit_lsn) == (5, 5)
    add(target, rows(1, 6), 6)
    assert sorted(delta_rows(table).column("id").to_pylist()) == [*range(7)]
    path.write_bytes(b"")
    for version in (1, 3):
        checkpoint(table, version).unlink()
    log_file(table, "_last_checkpoint").unlink()
    checkpoint(table, 6).unlink()
    with pytest.raises(TableError, match=r"00005.checkpoint.parquet is damaged: .*commit 0 is mis"):
        DeltaTarget(str(table), "mirror")


@pytest.mark.parametrize("content", [b"", b" \n\n", b"{}\n", b"3\n", b"[]", b'{"add"', b"\xff\n"])
def test_a_commit_without_actions(table: Path, content: bytes) -> None:
    path = log_file(table, f"{5:020}.json")
    path.write_bytes(content)
    log_file(table, "_last_checkpoint").unlink()
    checkpoint(table, 5).unlink()
    with pytest.raises(TableError, match=f"commit {path} is damaged: .* — hint: Restore the file"):
        DeltaTarget(str(table), "mirror")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'"version":3', b'"version":2', 1),
        lambda data: data.replace(b'"crc32"', b'"crc33"', 1),
        lambda data: data.replace(b"commitInfo", b"commitInfp", 1),
        lambda data: data[: data.rindex(b"\n")],
        lambda data: data + b'\n{"txn":{"appId":"mirror","version":9}}',
    ],
)
def test_a_commit_that_was_changed(table: Path, change: Callable[[bytes], bytes]) -> None:
    """It is valid JSON, with other actions."""
    path = log_file(table, f"{3:020}.json")
    path.write_bytes(change(path.read_bytes()))
    log_file(table, "_last_checkpoint").unlink()
    checkpoint(table, 3).unlink()
    checkpoint(table, 5).unlink()
    with pytest.raises(TableError, match=f"commit {path} is damaged: .* (checksum|action)"):
        DeltaTarget(str(table), "mirror")


def test_a_checkpoint_that_was_changed(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = checkpoint(table, 5)
    rows = pq.read_table(path)
    pq.write_table(rows.slice(1), path)
    assert DeltaTarget(str(table), "mirror").version == 5
    assert f"checkpoint {path} is damaged: it does not match its checksum" in caplog.text


def test_an_error_after_the_commit_is_a_warning(
    table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next commit writes the checkpoint."""
    import deltalake

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    target = DeltaTarget(str(table), "mirror")
    with monkeypatch.context() as patch:
        patch.setattr(deltalake.DeltaTable, "create_checkpoint", fail)
        for number in range(6, 9):
            add(target, rows(1, number), number)
    assert caplog.text.count("has no new checkpoint: [Errno 5] Input/output error") == 2
    add(target, rows(1, 9), 9)
    assert checkpoint(table, 9).exists()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.parquet", True),
        ("d=2026-01-01 00:00/a..b/.c.parquet", True),
        ("../a.parquet", False),
        ("d/../../a.parquet", False),
        ("..", False),
        ("d\\..\\..\\a", False),
        ("/etc/a.parquet", False),
        ("\\\\server\\a", False),
        ("file:///etc/a.parquet", False),
        ("s3://bucket/a.parquet", False),
        ("C:/a.parquet", False),
        ("", False),
    ],
)
def test_paths_in_a_folder(path: str, expected: bool) -> None:
    assert is_inside(path) is expected


@pytest.mark.parametrize(
    "path", ["../../x.parquet", "%2E%2E/x.parquet", "..%2Fx.parquet", "/x.parquet", "file:///x"]
)
def test_a_file_outside_of_the_folder(table: Path, path: str) -> None:
    action = {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, "stats": "{}"}
    log_file(table, f"{6:020}.json").write_text(json.dumps({"add": action}))
    with pytest.raises(TableError, match=r"outside of its folder, .* — hint: Use a table with"):
        assert DeltaTarget(str(table), "mirror").files


def vector_of(prefix: str, kind: str = "u") -> dict[str, Any]:
    text = f"{prefix}{'0' * 20}"
    return {"storageType": kind, "pathOrInlineDv": text, "sizeInBytes": 8, "cardinality": 1}


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        (vector_of("../.."), "outside of its folder"),
        (vector_of("/etc"), "outside of its folder"),
        (vector_of("", "p"), "outside of its folder"),
        (vector_of("") | {"pathOrInlineDv": "?"}, "is damaged: "),
        ({"storageType": "u"}, "is damaged: it lacks 'pathOrInlineDv'"),
        (vector_of("0000", "i"), "is damaged: 24 digits in base 85"),
    ],
)
def test_a_vector_outside_of_the_folder(table: Path, vector: dict[str, Any], text: str) -> None:
    action = {"path": "x", "partitionValues": {}, "size": 1, "dataChange": True, "stats": "{}"}
    log_file(table, f"{6:020}.json").write_text(
        json.dumps({"add": action | {"deletionVector": vector}})
    )
    with pytest.raises(TableError, match=text):
        assert DeltaTarget(str(table), "mirror").files


def test_a_vector_with_another_number_of_positions(table: Path) -> None:
    target = DeltaTarget(str(table), "mirror")
    path = add(target, rows(5), 10)
    target.commit(Commit(Position(11, 1), (), {path: bitmap([1, 3])}))
    commit = log_file(table, f"{7:020}.json")
    text = commit.read_text().replace('"cardinality":2', '"cardinality":3')
    commit.write_text(re.sub(r'"crc32":"\w+",|pgwire_codec/', "", text, count=2))
    log_file(table, "_last_checkpoint").unlink()
    checkpoint(table, 7).unlink()
    files = DeltaTarget(str(table), "mirror").files
    file = next(file for file in files.files if file.path == path)
    with pytest.raises(TableError, match=f"deletion vector of .*{path} is damaged: .* 2 positions"):
        files.vector(file)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    """Change a bit of a value."""
    column = pq.read_metadata(path).row_group(0).column(1)
    place = column.data_page_offset + column.total_compressed_size - 3
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def flip_footer(path: Path) -> None:
    """Change a bound of a row group."""
    data = path.read_bytes()
    place = data.rindex(b"row 9")
    path.write_bytes(data[:place] + b"s" + data[place + 1 :])


def exchange(path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "note": ["x"]}), path)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut": (cut, "is damaged: it has [0-9]+ bytes, and the table records [0-9]+"),
    "flipped": (flip, "is damaged: .*CRC checksum"),
    "with another footer": (flip_footer, "is damaged: its footer does not match its checksum"),
    "exchanged": (exchange, "is damaged: it has"),
    "missing": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize(("damage", "text"), DAMAGES.values(), ids=[*DAMAGES])
def test_a_damaged_data_file(tmp_path: Path, damage: Callable[[Path], Any], text: str) -> None:
    """Lookups and rewriting read it, with and without the keys that are kept."""
    target = DeltaTarget(str(tmp_path), "mirror")
    path = tmp_path / add(target, rows(10), 10)
    damage(path)
    for _ in range(3):
        with pytest.raises(TableError, match=f"^data file {path} {text}") as error:
            find_rows(target.files, pa.table({"note": ["row 1"]}))
        assert error.value.hint
        assert error.value.is_transient == (text == "is missing")
    with pytest.raises(TableError, match=text):
        list(target.files.batches(target.files.files[0], SCHEMA))


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Pages without checksums are read."""
    import deltalake

    deltalake.write_deltalake(str(tmp_path), pa.table(rows(10)))
    target = DeltaTarget(str(tmp_path), "mirror")
    assert find_rows(target.files, pa.table({"id": [3]})).position.tolist() == [3]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: b" ",
        lambda data: b"[]",
        lambda data: data[:-5],
        lambda data: data.replace(b'"removed": []', b'"removed": ["../x.parquet"]'),
        lambda data: data.replace(b'"commit_lsn"', b'"commit_lsm"'),
    ],
)
def test_a_damaged_commit_of_parquet_files(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    target = ParquetTarget(str(tmp_path), "mirror", by_date=False)
    add(target, rows(10), 10)
    (path,) = (tmp_path / "_pgwire_codec").glob("*.json")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(TableError, match=f"^commit {path} is damaged: .* — hint: Restore"):
        ParquetTarget(str(tmp_path), "mirror", by_date=False)
