"""Segments that a compaction joins, and those that it leaves, with their index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log import compaction
from pgwire_codec.log.local_store import LocalStore
from tests.support import build
from tests.support.compaction import (
    build_log,
    check_index,
    check_same,
    contents,
    names,
)
from tests.support.logs import (
    SOURCE,
    append,
)

pytestmark = pytest.mark.usefixtures("small_index")


@pytest.mark.parametrize(
    ("sizes", "joined"),
    [
        ([], []),
        ([10], []),
        ([10, 10], [(0, 2)]),
        ([40, 60], [(0, 2)]),
        ([40, 61], []),
        ([10, 90], []),  # nearly all bytes would be written again
        ([10, 10, 75], [(0, 2)]),
        ([75, 10, 10], [(1, 3)]),
        ([25, 75], [(0, 2)]),
        ([24, 76], []),
        ([120, 10, 10, 120, 10], [(1, 3)]),
        ([50, 50, 50, 50, 50], [(0, 2), (2, 4)]),
        ([1] * 250, [(0, 100), (100, 200), (200, 250)]),
        ([200] * 5, []),
    ],
)
def test_runs(sizes: list[int], joined: list[tuple[int, int]]) -> None:
    found = [(each.start, each.stop) for each in compaction._planned(sizes, 100)]
    assert found == joined


def test_a_byte_is_written_again_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that gets a small segment each time before it is compacted."""
    sizes: list[int] = []
    written = 0
    for _ in range(2000):
        sizes.append(1)
        while found := compaction._planned(sizes, 1000):
            for run in reversed(found):
                total = sum(sizes[run.start : run.stop])
                written += total
                sizes[run.start : run.stop] = [total]
    assert sum(sizes) == 2000
    assert len(sizes) < 30
    assert written < 10 * 2000


def test_the_number_of_segments_at_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined segments are joined again, as one file in the result."""
    before = contents(log.Log(directory))
    old = [f"{name}.arrow" for name in names(directory)]
    size = sum(each.bytes for each in log.Log(directory).segments)
    monkeypatch.setattr(compaction, "_MOST_SEGMENTS", 3)
    [joined] = log.compact(directory)
    assert (joined.replaced, joined.replaced_bytes) == (tuple(old), size)
    assert names(directory) == [joined.file.removesuffix(".arrow")]
    check_same(log.Log(directory), before)


def test_a_dry_run(directory: Path) -> None:
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    [planned] = log.compact(directory, dry_run=True)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == files
    [joined] = log.compact(directory)
    assert planned == replace(joined, bytes=None)
    assert log.compact(directory, dry_run=True) == log.compact(directory) == []


def test_large_segments_stay(tmp_path: Path) -> None:
    build_log(tmp_path)
    sizes = [each.bytes for each in log.Log(tmp_path).segments]
    assert log.compact(tmp_path, segment_bytes=min(sizes)) == []
    joined = log.compact(tmp_path, segment_bytes=3 * max(sizes))
    assert 1 < len(joined) < 4
    assert all(each.replaced_bytes <= 3 * max(sizes) for each in joined)
    with pytest.raises(pgc.OptionError, match="segment_bytes must be 1 or more"):
        log.compact(tmp_path, segment_bytes=0)


def test_other_sources_and_snapshots_are_not_joined(tmp_path: Path) -> None:
    promoted = replace(SOURCE, timeline=2, ancestors={1: 1 << 60})
    for source, snapshot in ((SOURCE, True), (SOURCE, False), (promoted, False)):
        for _ in range(2):
            with log.LogWriter(tmp_path, source) as writer:
                writer.new_session(snapshot=snapshot)
                append(writer, build.wire(build.transaction(lsn=100)))
    before = log.statistics(tmp_path)
    joined = log.compact(tmp_path)
    assert [len(each.replaced) for each in joined] == [2, 2, 2]
    found = [(each.header.source, each.header.snapshot) for each in log.Log(tmp_path).segments]
    assert found == [(SOURCE, True), (SOURCE, False), (promoted, False)]
    after = log.statistics(tmp_path)
    assert (after.sessions, before.sessions, after.snapshot_segments) == (6, 6, 1)
    assert log.compact(tmp_path) == []
    assert log.verify(tmp_path).is_sound


def test_nothing_to_join_reads_the_index_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_log(tmp_path, 31)
    assert len(list(tmp_path.glob("*.index"))) == 10
    read: list[str] = []

    def noted(call: Any) -> Any:
        return lambda store, name, *where: read.append(name) or call(store, name, *where)

    for method in ("read", "read_buffer"):
        monkeypatch.setattr(LocalStore, method, noted(getattr(LocalStore, method)))
    assert log.compact(tmp_path, segment_bytes=1) == []
    sidecars = [name for name in read if name[0] == "0" and not name.endswith(".index")]
    assert sidecars == [f"{names(tmp_path)[-1]}.json"]  # the one that no file of the index has


def test_the_index_is_renewed(tmp_path: Path) -> None:
    """Its files have the rows of the joined segments, and a reader needs no sidecars."""
    build_log(tmp_path, 31)
    sizes = [each.bytes for each in log.Log(tmp_path).segments]
    log.compact(tmp_path, segment_bytes=2 * max(sizes))
    count = len(names(tmp_path))
    assert 10 < count < 20
    indexed = check_index(tmp_path)
    assert len(list(tmp_path.glob("*.index"))) < 10
    for path in sorted(tmp_path.glob("0*.json"))[:indexed]:
        path.write_bytes(b"damaged")
    assert len(log.Log(tmp_path).versions) > 1


def test_an_index_that_an_interruption_left(tmp_path: Path) -> None:
    """It is written again, if there are joined segments or none."""
    build_log(tmp_path, 31)
    old = {path.name: path.read_bytes() for path in tmp_path.glob("*.index")}
    for path in tmp_path.glob("*.index"):
        path.unlink()
    assert log.compact(tmp_path, segment_bytes=1) == []
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.index")} == old
    sizes = [each.bytes for each in log.Log(tmp_path).segments]
    log.compact(tmp_path, segment_bytes=2 * max(sizes))
    before = contents(log.Log(tmp_path))
    for name, content in old.items():
        (tmp_path / name).write_bytes(content)
    check_same(log.Log(tmp_path), before)
    assert log.verify(tmp_path).damage == ()
    assert log.compact(tmp_path, segment_bytes=1) == []
    check_index(tmp_path)
