"""verify finds each damage of a lake, and no read returns other rows without an error."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgwire_codec.errors import OptionError, PgwireError, TableError
from pgwire_codec.lake import key_cache
from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.lookup import find_rows
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables import delta, delta_vectors
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.parquet import ParquetTarget
from pgwire_codec.lake.tables.target import Commit
from pgwire_codec.lake.vectors import bitmap
from pgwire_codec.lake.verify import verify
from tests.support.object_store import s3_options

pytest.importorskip("deltalake")

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("amount", pa.float64())])
TABLES = ("public/a", "public/b")


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch([[*ids], [f"row {n}" for n in ids], [n / 2 for n in ids]], SCHEMA)


def add(target: Any, batch: pa.RecordBatch, lsn: int, **changes: Any) -> str:
    (file,) = write_data_files(target.folder, SCHEMA, [batch], target.layout)
    schema = SCHEMA if target.schema is None else None
    target.commit(Commit(Position(lsn, 1), [file], schema=schema, **changes))
    return file.path


def fill(target: DeltaTarget) -> None:
    """Write commits, checkpoints, and vectors in commits and in files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "_CHECKPOINT_COMMITS", 4)
        patch.setattr(delta_vectors, "_INLINE_BYTES", 40)
        first = add(target, rows(0, 50), 1)
        for number in range(1, 7):
            positions = bitmap(range(0, number * 7, 7))
            add(target, rows(100 * number, 10), number * 10, deleted={first: positions})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake")
    for table in TABLES:
        fill(DeltaTarget(str(path / table), "pgwire_codec"))
    return path


def read(lake: Path, table: str) -> list[Any]:
    """Rows of a table; find some of them by key, too."""
    target = DeltaTarget(str(lake / table), "pgwire_codec")
    found = [
        row
        for file in target.files.files
        for batch in target.files.batches(file, SCHEMA)
        for row in batch.to_pylist()
    ]
    keys = pa.table({"id": [1, 305, 601]})
    places = find_rows(target.files, keys).exists.tolist()
    return [target.position, places, *sorted(found, key=str)]


def damageable(lake: Path, table: str) -> dict[str, list[Path]]:
    """Files that the newest version needs, by their kind."""
    folder = lake / table
    log = folder / "_delta_log"
    target = DeltaTarget(str(folder), "pgwire_codec")
    vectors = [file.vector for file in target.files.files if file.vector is not None]
    return {
        "commit": sorted(log.glob("*.json")),
        "checkpoint": sorted(log.glob("*.parquet"))[-1:],
        "last checkpoint": [log / "_last_checkpoint"],
        "data file": [folder / file.path for file in target.files.files],
        "vector": [folder / vector.path for vector in vectors if vector.path],
    }


def damage(lake: Path, chosen: random.Random) -> tuple[str, str]:
    """Damage a file; return its table, and a description."""
    table = chosen.choice(TABLES)
    kinds = damageable(lake, table)
    kind = chosen.choice([name for name, files in kinds.items() if files])
    path = chosen.choice(kinds[kind])
    data = path.read_bytes()
    how = chosen.choice(["flip", "flip", "cut", "empty", "blank", "exchange", "remove"])
    others = [
        other
        for name in TABLES
        for other in damageable(lake, name)[kind]
        if other.read_bytes() != data
    ]
    place = chosen.randrange(len(data))
    if how == "flip":
        path.write_bytes(
            data[:place] + bytes([data[place] ^ (1 << chosen.randrange(8))]) + data[place + 1 :]
        )
    elif how == "cut":
        path.write_bytes(data[:place])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "blank":  # as some file systems leave a part after a crash
        path.write_bytes(data[:place] + bytes(len(data) - place))
    elif how == "exchange" and others:
        path.write_bytes(chosen.choice(others).read_bytes())
    elif kind == "commit" and path in (kinds[kind][0], kinds[kind][-1]):
        # Without the last, the lake is that of an earlier moment, and the first may be too old.
        path.write_bytes(b"{}")
    else:
        path.unlink()
    return table, f"{how} {place} of {kind} {path.name}"


def check(lake: Path, tmp_path: Path, seeds: range) -> dict[str, int]:
    """Damage copies of a lake; return the numbers of what the reads did."""
    expected = {table: read(lake, table) for table in TABLES}
    counts = {"error": 0, "the same": 0, "silent": 0, "not verified": 0}
    wrong = []
    for seed in seeds:
        copy = tmp_path / str(seed)
        shutil.copytree(lake, copy)
        table, text = damage(copy, random.Random(seed))
        found = verify(f"delta:{copy}").damage
        if not found or {each.table for each in found} != {table}:
            counts["not verified"] += 1
            wrong.append(f"{seed}: {text} is not verified: {found}")
        for name in TABLES:
            try:
                is_same = read(copy, name) == expected[name]
            except PgwireError as error:
                counts["error"] += 1
                if not error.hint or name != table:
                    wrong.append(f"{seed}: {text} is {error!r} of {name}")
                continue
            if not is_same:
                wrong.append(f"{seed}: {text} is silent")
            elif name == table:
                counts["the same"] += 1
            counts["silent"] += not is_same
        shutil.rmtree(copy)
    assert not wrong, "\n".join(wrong)
    return counts


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cache.KeyCache, "match", lambda *_: None)


def test_a_lake_that_is_sound(lake: Path) -> None:
    found = verify(f"delta:{lake}")
    assert (found.tables, found.damage) == (2, ())
    # _last_checkpoint, a checkpoint, seven commits, seven data files
    assert found.files >= 2 * 16
    assert verify(f"delta:{lake / TABLES[0]}").tables == 1


def test_some_damages(lake: Path, tmp_path: Path) -> None:
    check(lake, tmp_path, range(3))


@pytest.mark.thorough
def test_many_damages(lake: Path, tmp_path: Path) -> None:
    print(check(lake, tmp_path, range(500)))


@pytest.mark.slow
@pytest.mark.thorough
def test_objects_of_a_store() -> None:
    with s3_options("lake") as options:
        target = DeltaTarget("s3://lake/public/a", "pgwire_codec", options)
        fill(target)
        assert verify("delta:s3://lake", options).damage == ()
        path = target.files.files[0].path
        data = target.folder.read(path)
        target.folder.remove(path)
        target.folder.create(path, data[:50] + b"?" + data[51:])
        (damage,) = verify("delta:s3://lake", options).damage
    assert (damage.table, damage.file) == ("public/a", path)


def test_other_targets(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is in a catalog of Spark"):
        verify("iceberg:lake")
    with pytest.raises(TableError, match="has no tables"):
        verify(f"delta:{tmp_path}")


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Without checksums, rows are compared with the bounds in the commit."""
    import deltalake

    deltalake.write_deltalake(str(tmp_path), pa.table(rows(0, 10)))
    assert verify(str(tmp_path)).damage == ()
    commit = tmp_path / "_delta_log" / f"{0:020}.json"
    text = commit.read_text()
    for before, after in (('\\"id\\":9', '\\"id\\":8'), ("row 9", "row 8")):
        assert before in text
        commit.write_text(text.replace(before, after))
        (damage,) = verify(str(tmp_path)).damage
        assert "has values that its bounds do not contain" in damage.text


def test_parquet_files(tmp_path: Path) -> None:
    target = ParquetTarget(str(tmp_path / "t"), "pgwire_codec", by_date=False)
    for number in range(2):
        add(target, rows(number * 10, 10), number)
    found = verify(f"parquet:{tmp_path}")
    assert (found.tables, found.files, found.damage) == (1, 3, ())
    first, second = (tmp_path / "t" / file.path for file in target.files.files)
    column = pq.read_metadata(first).row_group(0).column(1)
    data = bytearray(first.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 4
    first.write_bytes(data)
    assert [each.file for each in verify(f"parquet:{tmp_path}").damage] == [first.name]
    first.unlink()
    second.unlink()
    (damage,) = verify(f"parquet:{tmp_path}").damage
    assert "is missing" in damage.text
