"""Rows are found by key: in files that are read, and in the sorted keys that are kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.lake import key_index, lookup
from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.key_index import KeyCache, KeyIndex, SortedKeys
from pgwire_codec.lake.lookup import find_copies, find_rows
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.target import Commit
from pgwire_codec.lake.vectors import bitmap

pytest.importorskip("deltalake")

KEYS: Any = {
    pa.int64(): st.one_of(st.none(), st.integers(-3, 3)),
    pa.string(): st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab"])),
    pa.float64(): st.sampled_from([0.0, -0.0, float("nan"), 1.5]),
    pa.decimal128(5, 2): st.one_of(st.none(), st.decimals(-2, 2, places=2)),
}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> KeyCache:
    made = KeyCache()
    monkeypatch.setattr(lookup, "_CACHE", made)
    return made


@given(data=st.data())
def test_sorted_keys_are_matched_like_rows(data: st.DataObject) -> None:
    """Each key once; rows as often as they like, and null in any column."""
    kinds = data.draw(st.lists(st.sampled_from([*KEYS]), min_size=1, max_size=2))
    row = st.tuples(*(KEYS[kind] for kind in kinds))
    rows = data.draw(st.lists(row, max_size=20))
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
    for positions, numbers in (
        index.match(of_rows),
        index.match_sorted(SortedKeys(of_rows, are_plain=index.are_plain)),
    ):
        assert sorted(zip(positions.tolist(), numbers.tolist(), strict=True)) == expected


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


def test_files_are_read_twice_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are deleted in between are not found by the keys that are kept."""
    target = table(tmp_path, [*range(100)])
    opened = 0
    read = type(target.files).open

    def count(*args: Any) -> Any:
        nonlocal opened
        opened += 1
        return read(*args)

    monkeypatch.setattr(type(target.files), "open", count)
    for _ in range(5):
        assert found(target, 7, 99, 100) == [7, 99, -1]
    assert opened == 2
    (file,) = target.files.files
    target.commit(Commit(Position(2), (), {file.path: bitmap([7, 8])}))
    assert found(target, 6, 7, 9) == [6, -1, 9]
    monkeypatch.setattr(lookup, "_FEW_KEYS", 0)
    assert found(target, 6, 7, 9) == [6, -1, 9]
    assert opened == 3, "many keys are looked up in the file"


def test_keys_that_are_kept_have_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: KeyCache
) -> None:
    monkeypatch.setattr(key_index, "_MOST_BYTES", 4_000)
    target = table(tmp_path, [*range(100)], [*range(100, 200)], [*range(200, 500)])
    for _ in range(3):
        assert found(target, 50, 150, 450) == [50, 50, 250]
        assert cache._bytes <= 4_000
    assert [len(keys.hashes) for keys in cache._keys.values()] == [100, 100]


@pytest.mark.parametrize("few", [0, 10])
def test_nulls_beside_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """The other values have the hashes of keys without nulls."""
    monkeypatch.setattr(lookup, "_FEW_KEYS", few)
    target = table(tmp_path, [None, 7, 0, None, 7])
    for _ in range(3):
        assert find_rows(target.files, pa.table({"id": [0]})).position.tolist() == [2]
        copies = find_copies(target.files, pa.table({"id": [7, 0]}), np.array([2, 1]))
        assert [sorted(each) for each in copies.values()] == [[1, 2, 4]]
