"""Rows are found by key: in files that are read, and in the keys that a cache has of them."""

from __future__ import annotations

import io
import logging
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.lake import key_cache, key_file, key_folder, lookup
from pgwire_codec.lake.data_files import Bounds, write_data_files
from pgwire_codec.lake.key_cache import KeyCache
from pgwire_codec.lake.key_file import KeyFile, write_key_file
from pgwire_codec.lake.key_index import KeyIndex
from pgwire_codec.lake.lookup import find_copies, find_rows
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.row_hashes import row_hashes
from pgwire_codec.lake.table_files import DataFile
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.target import Commit
from pgwire_codec.lake.vectors import bitmap

pytest.importorskip("deltalake")

UUIDS = [f"{n:08x}-0000-4000-8000-{n:012x}" for n in range(8)]

KEYS: Any = {
    pa.int64(): st.one_of(st.none(), st.integers(-3, 3)),
    pa.string(): st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", *UUIDS])),
    pa.float64(): st.sampled_from([0.0, -0.0, float("nan"), 1.5]),
    pa.decimal128(5, 2): st.one_of(st.none(), st.decimals(-2, 2, places=2)),
    pa.list_(pa.int32()): st.one_of(st.none(), st.lists(st.integers(0, 1), max_size=2)),
}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> KeyCache:
    """The cache of a new process, and a folder that it shares with others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return new_process(monkeypatch)


def new_process(monkeypatch: pytest.MonkeyPatch) -> KeyCache:
    made = KeyCache()
    monkeypatch.setattr(lookup, "_CACHE", made)
    return made


def key_files() -> list[Path]:
    return sorted(Path(os.environ["XDG_CACHE_HOME"], "pgwire_codec", "keys").iterdir())


def written(columns: list[pa.Array], *, are_plain: bool, group: int = 7) -> bytes:
    rows = pa.table(columns, [str(n) for n in range(len(columns))])
    groups = ((n, rows.slice(n, group)) for n in range(0, max(1, len(rows)), group))
    sink = io.BytesIO()
    write_key_file(sink, "id", groups, are_plain=are_plain)
    return sink.getvalue()


def opened(data: bytes, columns: list[pa.Array], identity: str = "id") -> KeyFile:
    schema = pa.schema([(str(n), column.type) for n, column in enumerate(columns)])
    return KeyFile(lambda: io.BytesIO(data), identity, schema)


@given(data=st.data())
def test_keys_of_a_file_are_matched_like_rows(data: st.DataObject) -> None:
    """Each key once; rows as often as they like, and null in any column; many runs and blocks."""
    kinds = data.draw(st.lists(st.sampled_from([*KEYS]), min_size=1, max_size=2))
    row = st.tuples(*(KEYS[kind] for kind in kinds))
    rows = data.draw(st.lists(row, max_size=30))
    keys = data.draw(st.lists(row, min_size=1, max_size=8, unique_by=repr))
    of_rows, of_keys = (
        [pa.array([each[n] for each in some], kind) for n, kind in enumerate(kinds)]
        for some in (rows, keys)
    )
    index = KeyIndex(of_keys)
    expected = sorted(
        (position, number)
        for position, value in enumerate(rows)
        for number, key in enumerate(keys)
        if repr(value) == repr(key)
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_file, "_BLOCK_ROWS", data.draw(st.sampled_from([2, 1000])))
        patched.setattr(key_file, "_RUN_ROWS", data.draw(st.sampled_from([10, 1000])))
        content = written(of_rows, are_plain=index.are_plain)
        pairs = [index.match(of_rows), index.match_file(opened(content, of_rows))]
    for positions, numbers in pairs:
        assert sorted(zip(positions.tolist(), numbers.tolist(), strict=True)) == expected


def test_keys_with_equal_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared with the keys in the file."""
    monkeypatch.setattr(
        key_file, "row_hashes", lambda columns: np.full(len(columns[0]), 7, np.uint64)
    )
    rows = [pa.array(["a", "b", "c", "b"])]
    index = KeyIndex([pa.array(["b"])])
    positions, _ = index.match_file(opened(written(rows, are_plain=False), rows))
    assert sorted(positions.tolist()) == [1, 3]


def test_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a file is read: no bit of it can change what is found."""
    monkeypatch.setattr(key_file, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(key_file, "_RUN_ROWS", 10)
    rows = [pa.array([f"key {n}" for n in range(20)])]
    index = KeyIndex(rows)
    data = written(rows, are_plain=False)
    assert sorted(index.match_file(opened(data, rows))[0].tolist()) == [*range(20)]
    damaged = [
        data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        for place in range(0, len(data), 3)
    ]
    cut = [data[:place] for place in range(0, len(data), 29)]
    for content in [*damaged, *cut, data + b"\0", b"", bytes(len(data)), b"x" * len(data)]:
        with pytest.raises(key_file.DamagedKeyFileError):
            index.match_file(opened(content, rows))
    with pytest.raises(key_file.DamagedKeyFileError):
        opened(data, rows, "other")


def test_hashes_of_files_remain_the_same() -> None:
    """Otherwise, ``key_file.FORMAT`` has to change: keys in older files would not be found."""
    columns = [
        pa.array([None, "", "a text of many bytes", "ä"]),
        pa.array([1, -1, None, 7]),
        pa.array([0.0, -0.0, float("nan"), None]),
        pa.array([None, [], [1, 2], [None]], pa.list_(pa.int64())),
    ]
    assert (key_file.FORMAT, [f"{number:x}" for number in row_hashes(columns)]) == (1, HASHES)


HASHES = ["4fddc2be745dfc5b", "d808d3477ea9716f", "6c056cedce56d781", "34a1cb47b0ca7214"]

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


def table(path: Path, *ids: list[int | None]) -> DeltaTarget:
    """A table with a file for each list."""
    target = DeltaTarget(str(path), "mirror")
    files = [
        file
        for some in ids
        for file in write_data_files(
            target.folder,
            SCHEMA,
            [pa.record_batch([pa.array(some, pa.int64()), [str(n) for n in some]], SCHEMA)],
        )
    ]
    target.commit(Commit(Position(1), files, schema=SCHEMA))
    return target


def found(target: DeltaTarget, *ids: int) -> list[int]:
    """Position of each key, or -1."""
    keys = pa.table({"id": pa.array(ids, pa.int64())})
    return find_rows(target.files, keys).position.tolist()


def found_notes(target: DeltaTarget, *notes: str) -> list[int]:
    return find_rows(target.files, pa.table({"note": notes})).position.tolist()


@pytest.fixture
def count_opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the data files that were opened."""
    from pgwire_codec.lake.table_files import TableFiles

    paths: list[str] = []
    read = TableFiles.open

    def count(self: TableFiles, file: DataFile) -> Any:
        paths.append(file.path)
        return read(self, file)

    monkeypatch.setattr(TableFiles, "open", count)
    return paths


@pytest.mark.parametrize("is_large", [False, True])
def test_files_are_read_twice_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_opened: list[str], is_large: bool
) -> None:
    """Rows that are deleted in between are not found by the keys of the cache."""
    monkeypatch.setattr(key_cache, "_LARGE_ROWS", 100 if is_large else 101)
    target = table(tmp_path, [*range(100)])
    for _ in range(5):
        assert found(target, 7, 99, 100) == [7, 99, -1]
    assert len(count_opened) == 2
    (file,) = target.files.files
    target.commit(Commit(Position(2), (), {file.path: bitmap([7, 8])}))
    assert found(target, 6, 7, 9) == [6, -1, 9]
    new_process(monkeypatch)
    assert found(target, 6, 7, 9) == [6, -1, 9]
    assert len(count_opened) == (2 if is_large else 3), "processes share the keys of large files"
    monkeypatch.setattr(lookup, "_FEW_KEYS", 0)
    assert found(target, 6, 7, 9) == [6, -1, 9]
    assert len(count_opened) == (3 if is_large else 4), "many keys are looked up in the file"


def test_keys_in_memory_have_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: KeyCache
) -> None:
    monkeypatch.setattr(key_cache, "_MOST_BYTES", 3_000)
    target = table(tmp_path, [*range(100)], [*range(100, 200)], [*range(200, 500)])
    for _ in range(3):
        assert found(target, 50, 150, 450) == [50, 50, 250]
        assert cache._bytes == sum(keys.nbytes for keys in cache._keys.values()) <= 3_000
    assert len(cache._keys) == 2


@pytest.mark.parametrize("few", [0, 10])
def test_nulls_beside_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """The other values have the hashes of keys without nulls."""
    monkeypatch.setattr(lookup, "_FEW_KEYS", few)
    target = table(tmp_path, [None, 7, 0, None, 7])
    for _ in range(3):
        assert find_rows(target.files, pa.table({"id": [0]})).position.tolist() == [2]
        copies = find_copies(target.files, pa.table({"id": [7, 0]}), np.array([2, 1]))
        assert [sorted(each) for each in copies.values()] == [[1, 2, 4]]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": _flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "of another file": lambda path: path.write_bytes(max(key_files()).read_bytes()),
    "removed": Path.unlink,
    "with its folder": lambda path: shutil.rmtree(path.parent.parent),
}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of all files are in the folder."""
    monkeypatch.setattr(key_cache, "_LARGE_ROWS", 0)
    monkeypatch.setattr(key_file, "_BLOCK_ROWS", 8)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[*DAMAGES])
def test_damage_of_the_cache_costs_time_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count_opened: list[str],
    damage: Callable[[Path], Any],
    is_open: bool,
) -> None:
    """Before a process opens the file, and after that. Then it is written again."""
    target = table(tmp_path, [*range(0, 200, 2)], [*range(1, 200, 2)])
    notes = [str(n) for n in range(0, 210, 3)]
    expected = found_notes(target, *notes)
    assert expected == [n // 2 if n < 200 else -1 for n in range(0, 210, 3)]
    assert found_notes(target, *notes) == expected
    damage(key_files()[0])
    if not is_open:
        new_process(monkeypatch)
    for _ in range(3):
        assert found_notes(target, *notes) == expected
    before = len(count_opened)
    assert found_notes(target, *notes) == expected
    assert len(count_opened) == before
    assert len(key_files()) == 2


@pytest.mark.usefixtures("large")
def test_keys_of_other_content_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the same name and size; without the checksum in a commit, too."""
    (file,) = table(tmp_path / "a", [*range(100, 200)]).files.files
    (other,) = table(tmp_path / "b", [*range(200, 300)]).files.files
    assert file.size == other.size
    for has_checksum in (True, False):
        for source, first in ((file, 100), (other, 200)):
            new_process(monkeypatch)
            folder = tmp_path / ("a" if source is file else "b")
            target = table(tmp_path / f"c{has_checksum}{first}", [])
            path = Path(target.files.uri, "data.parquet")
            shutil.copy(folder / source.path, path)
            checksum = source.checksum if has_checksum else None
            copied = DataFile("data.parquet", source.size, 100, Bounds(), checksum=checksum)
            files = type(target.files)("t", str(tmp_path / "c"), (copied,))
            (tmp_path / "c").mkdir(exist_ok=True)
            path.replace(tmp_path / "c" / "data.parquet")
            for _ in range(3):
                rows = find_rows(files, pa.table({"id": [105, 205]}))
                assert rows.position.tolist() == ([5, -1] if first == 100 else [-1, 5])
    assert len(key_files()) == 4


@pytest.mark.usefixtures("large")
def test_least_used_keys_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last hour remain: they would be written again with each lookup."""
    target = table(tmp_path, *([*range(n * 100, n * 100 + 100)] for n in range(4)))

    def look_up(*numbers: int) -> None:
        for _ in range(2):
            assert found(target, *(n * 100 + 5 for n in numbers)) == [5] * len(numbers)

    look_up(0)
    (first,) = key_files()
    look_up(1)
    (second,) = {*key_files()} - {first}
    monkeypatch.setattr(key_folder, "_MOST_BYTES", int(2.5 * first.stat().st_size))
    look_up(2)
    assert len(key_files()) == 2
    os.utime(first, (0, 1000))
    os.utime(second, (0, 2000))
    look_up(0)
    assert first.stat().st_mtime > 2000, "a lookup is a use"
    look_up(3)
    assert first in key_files()
    assert second not in key_files()
    assert len(key_files()) == 2


@pytest.mark.usefixtures("large")
def test_few_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=2_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    target = table(tmp_path, [*range(100)])
    for _ in range(3):
        assert found(target, 7) == [7]
    assert key_files() == []
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "lookups read all keys of large files, since the cache of keys cannot be used"
    ]
    assert "may have 500 B" in caplog.text


@pytest.mark.usefixtures("large")
def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    target = table(tmp_path, [*range(100)])
    for _ in range(4):
        assert found(target, 7, 100) == [7, -1]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert os.devnull in record.getMessage()


@pytest.mark.usefixtures("large")
def test_an_error_as_keys_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing remains of the file."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    target = table(tmp_path, [*range(100)])
    monkeypatch.setattr(key_file._Writer, "finish", fail)
    for _ in range(4):
        assert found(target, 7, 100) == [7, -1]
    assert key_files() == []
    assert caplog.text.count("No space left on device") == 1


@pytest.mark.usefixtures("large")
def test_processes_that_write_the_same_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes a file of its own, and renames it."""
    target = table(tmp_path, [*range(100)])
    barrier = threading.Barrier(4, timeout=10)
    finish = key_file._Writer.finish

    def together(self: Any, identity: str) -> None:
        barrier.wait()
        finish(self, identity)

    monkeypatch.setattr(key_file._Writer, "finish", together)
    results = []

    def run() -> None:
        process = KeyCache()
        index = KeyIndex([pa.array([7, 100])])
        schema = pa.schema([SCHEMA.field("id")])
        (file,) = target.files.files
        for _ in range(3):
            results.append(process.match(target.files, file, schema, index))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 12
    assert all(hits is None or hits[0].tolist() == [7] for hits in results)
    assert sum(hits is None for hits in results) == 4
    (path,) = key_files()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("values", "lower", "upper", "may_match"),
    [
        ([1, 5, 9], 2, 4, False),
        ([1, 5, 9], 2, 5, True),
        ([1, 5, 9], 9, 20, True),
        ([1, 5, 9], 10, 20, False),
        (["b", "ä", "\U0001f600"], "c", "z", False),
        (["b", "ä", "\U0001f600"], "\uffff", "\U0001f601", True),
        ([None, "b"], "c", "z", True),
        ([1], "a", "b", True),
    ],
)
def test_files_are_skipped_by_bounds(
    values: list[Any], lower: Any, upper: Any, may_match: bool
) -> None:
    file = DataFile("a", 1, 1, Bounds({"id": lower}, {"id": upper}))
    assert lookup._Filter("id", pa.array(values)).may_match_file(file) == may_match
