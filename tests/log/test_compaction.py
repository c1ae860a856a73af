"""A compaction joins small segments, and changes nothing that a reader finds."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log import compaction, index_check, index_renewal, index_writer, joining
from pgwire_codec.log.local_store import LocalStore
from tests.log.test_relations import check as check_relations
from tests.log.test_relations import histories
from tests.support import build, corpus
from tests.support.logs import (
    SOURCE,
    append,
    commit_lsns,
    memory,
    no_appends,
    write,
    write_flushed,
)
from tests.transactions.test_splits import DENSE, LARGE, restarts, rows, serial

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True, scope="module")
def small_files() -> Iterator[None]:
    """Files of the index with three segments."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (index_writer, index_check, index_renewal):
            patch.setattr(module, "INDEXED_SEGMENTS", 3)
        yield


@pytest.fixture(params=[1, 2000, joining.PART_BYTES])
def part_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Size of a part of the joined segments."""
    chosen: int = request.param
    monkeypatch.setattr(joining, "PART_BYTES", chosen)
    return chosen


def cut(count: int, pieces: int) -> list[int]:
    return [count * number // pieces for number in range(1, pieces)]


def contents(reader: log.Log) -> tuple[Any, ...]:
    """Return all that a reader of the whole log finds."""
    messages = pa.Table.from_batches(reader.messages()).combine_chunks()
    changes = rows([list(reader.read())])
    one_by_one = [list(each.decode()) for each in reader.plan(max_partition_bytes=1).partitions]
    assert rows([[batch for each in one_by_one for batch in each]]) == changes
    assert rows(list(reader.changes())) == changes
    scope = reader.scope_before(len(reader))
    return messages, changes, scope, set(reader.versions), reader.begin, reader.end, reader.source


def check_same(reader: log.Log, before: tuple[Any, ...]) -> None:
    assert contents(reader) == before


def check_ranges(reader: log.Log, whole: list[Any], lsns: Sequence[int]) -> None:
    """Check that ranges between commits have the changes of their transactions."""
    for after, until in pairwise(lsns):
        wanted = [row for row in whole if after < row[0] <= until]
        assert rows([list(reader.read(after=after, until=until))]) == wanted


def names(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.arrow"))


def build_log(directory: Path, pieces: int = 8, **options: Any) -> log.Log:
    return write(CAPTURE, directory, cut(len(CAPTURE.messages), pieces), part_bytes=500, **options)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    build_log(tmp_path / "log")
    return tmp_path / "log"


# Contents before and after.


@pytest.mark.parametrize("capture", [*DENSE, *LARGE], ids=str)
def test_captures(capture: corpus.Capture, part_bytes: int) -> None:
    filesystem = memory()
    seals = cut(len(capture.messages), 13)
    reader = write(capture, "log", seals, part_bytes=2000, filesystem=filesystem)
    before, statistics = contents(reader), log.statistics("log", filesystem=filesystem)
    [joined] = log.compact("log", filesystem=filesystem)
    assert joined.file == f"{0:020}-{len(capture.messages):020}.arrow"
    assert len(joined.replaced) == len(reader)
    reader = log.Log("log", filesystem=filesystem)
    assert len(reader) == 1
    check_same(reader, before)
    check_relations(reader, capture.messages)
    lsns = commit_lsns(capture)
    check_ranges(reader, serial(capture)[0], [0, *lsns[:: len(lsns) // 9 + 1], lsns[-1]])
    assert log.verify("log", filesystem=filesystem).damage == ()
    after = log.statistics("log", filesystem=filesystem)
    assert (after.segments, after.bytes) == (1, joined.bytes)
    assert replace(after, segments=statistics.segments, bytes=statistics.bytes) == statistics


def sessions(capture: corpus.Capture, count: int) -> list[list[bytes]]:
    """Return the messages of sessions that break off, each of which the next one continues.

    It begins before the end of the one before, with the Relations that hold there.
    """
    found = []
    again = 0
    for stop in [*cut(len(capture.messages), count), len(capture.messages)]:
        relations = [pgc.encode_message(each) for each in restarts(capture)[again]]
        found.append(relations + capture.messages[again:stop])
        again = max(place for place in restarts(capture) if place <= stop)
    return found


def write_sessions(uri: Path | str, capture: corpus.Capture, count: int, **options: Any) -> None:
    for messages in sessions(capture, count):
        with log.LogWriter(uri, SOURCE, part_bytes=500, **options) as writer:
            append(writer, messages[: len(messages) // 2])
            writer.seal()
            append(writer, messages[len(messages) // 2 :])


@pytest.mark.parametrize("capture", DENSE, ids=str)
def test_sessions(capture: corpus.Capture, part_bytes: int) -> None:
    """Transactions that a session left open are dropped, also within a partition."""
    filesystem = memory()
    write_sessions("log", capture, 6, filesystem=filesystem)
    reader = log.Log("log", filesystem=filesystem)
    before, statistics = contents(reader), log.statistics("log", filesystem=filesystem)
    assert before[1] == [(*row[:6], 0, *row[7:]) for row in serial(capture)[0]]
    assert statistics.sessions == 6
    assert len(log.compact("log", filesystem=filesystem)) == 1
    reader = log.Log("log", filesystem=filesystem)
    assert len(reader.segment(0).session_starts) == 6
    assert len(reader.plan().partitions) < 6
    check_same(reader, before)
    after = log.statistics("log", filesystem=filesystem)
    assert (after.sessions, after.changes) == (6, statistics.changes)
    assert log.verify("log", filesystem=filesystem).damage == ()
    with log.LogWriter("log", SOURCE, filesystem=filesystem) as writer:
        append(writer, build.wire(build.transaction(lsn=1 << 60)))
    last = log.Log("log", filesystem=filesystem).segments[-1]
    assert last.header.session == 7
    assert log.verify("log", filesystem=filesystem).damage == ()


@settings(max_examples=80)
@given(messages=histories(), data=st.data())
def test_histories(messages: list[bytes], data: st.DataObject) -> None:
    """The relations and their clocks stay the same, whatever is joined; and so with the index."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(messages), 1)), max_size=9)))
    filesystem = memory()
    reader = write_flushed(messages, cuts, "log", filesystem)
    scopes = {
        reader.segment(number).first_ordinal: reader.scope_before(number)
        for number in range(len(reader))
    }
    end, versions = reader.scope_before(len(reader)), reader.versions
    size = data.draw(st.sampled_from([5_000, 12_000, 1 << 20]))
    log.compact("log", segment_bytes=size, filesystem=filesystem)
    reader = log.Log("log", filesystem=filesystem)
    for _ in range(2):
        for number in range(len(reader)):
            scope = scopes[reader.segment(number).first_ordinal]
            assert versions_of(reader.scope_before(number)) == versions_of(scope)
        assert versions_of(reader.scope_before(len(reader))) == versions_of(end)
        assert set(reader.versions) == set(versions)
        check_relations(reader, messages)
        assert log.verify("log", filesystem=filesystem).damage == ()
        for info in filesystem.get_file_info(pa.fs.FileSelector("log")):
            if info.extension == "index":
                filesystem.delete_file(info.path)
        reader = log.Log("log", filesystem=filesystem)


def versions_of(scope: Any) -> Any:
    return dict(scope.relations), dict(scope.types), dict(scope.names)


@pytest.mark.parametrize("version", [2, 3])
def test_old_formats(version: int, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(DATA / f"log-format-{version}", tmp_path / "log"))
    log.LogWriter(directory, SOURCE).close()  # seals the growing segment
    before = contents(log.Log(directory))
    [joined] = log.compact(directory)
    assert len(joined.replaced) == 3
    check_same(log.Log(directory), before)
    [segment] = log.Log(directory).segments
    assert segment.header.encoding == "differences"
    assert all(part.summary.relations is not None for part in segment.parts)
    assert log.verify(directory).damage == ()


@pytest.mark.parametrize("compression", ["lz4", "zstd", None])
def test_compression(compression: Any, directory: Path) -> None:
    before = contents(log.Log(directory))
    log.compact(directory, compression=compression)
    check_same(log.Log(directory), before)
    encoding = "plain" if compression is None else "differences"
    assert log.Log(directory).segment(0).header.encoding == encoding
    assert log.verify(directory).damage == ()


def test_messages_that_do_not_decode(tmp_path: Path) -> None:
    broken = list(CAPTURE.messages)
    for place in range(30, len(broken), 40):
        if broken[place][:1] in b"IUD":
            broken[place] = broken[place][:3]
    with log.LogWriter(tmp_path, SOURCE, part_bytes=300) as writer:
        for start in range(0, len(broken), 25):
            append(writer, broken[start : start + 25])
            writer.seal()
    damage = [each.reason for each in log.verify(tmp_path).damage]
    before = rows([list(log.Log(tmp_path).read(on_error="skip"))])
    assert damage
    assert before
    log.compact(tmp_path)
    assert rows([list(log.Log(tmp_path).read(on_error="skip"))]) == before
    assert [each.reason for each in log.verify(tmp_path).damage]


# Segments that are joined.


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


def check_index(directory: Path) -> int:
    """Check that the files of the index have a row for each segment, up to the last few."""
    found = []
    for path in sorted(directory.glob("*.index")):
        with pa.ipc.open_stream(path) as stream:
            table = stream.read_all()
        columns = (table.column(name).to_pylist() for name in ("first_ordinal", "end_ordinal"))
        found += list(zip(*columns, strict=True))
    segments = [(each.first_ordinal, each.end_ordinal) for each in log.Log(directory).segments]
    assert found == segments[: len(found)]
    assert len(segments) - len(found) < 3
    return len(found)


# Interruptions.


#: Compacts a log until its standard input ends: a process.
COMPACTOR = """
import sys, threading
from pgwire_codec import log
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
joined = 0
while not ended.is_set():
    joined += len(log.compact(sys.argv[1], segment_bytes=40_000))
print(joined)
"""


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    """A writer, a compaction that is killed, prunings and readers at once."""
    relation = build.relation(1, build.column("id", "int4", key=True))
    folder, count, pruned = tmp_path / "log", 400, 0

    def compactor() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", COMPACTOR, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with log.LogWriter(folder, SOURCE) as writer, ExitStack() as running:
        process = None
        old = None
        for lsn in range(1, count + 1):
            append(
                writer, build.wire(build.transaction(relation, build.insert(1, str(lsn)), lsn=lsn))
            )
            writer.flush()
            if lsn % 2:
                writer.seal()
            process = process or running.enter_context(compactor())
            if lsn % 100 == 50:
                process.kill()
                process.communicate()
                process = running.enter_context(compactor())
            if lsn % 100 == 0:
                log.prune(folder, lsn - 80)
                pruned = log.Log(folder).begin.lsn
                old = None
            if lsn % 3 == 0:
                old = old or log.Log(folder)
                for reader in (log.Log(folder), old):
                    reader.refresh()
                    found = [
                        key
                        for each in reader.read("public.t")
                        for key in each.new["id"].to_pylist()
                    ]
                    assert found == list(range(reader.begin.lsn + 1, lsn + 1))
        assert process is not None
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert int(output) > 0
    assert pruned > 0
    assert log.verify(folder).is_sound
    log.compact(folder)
    assert log.verify(folder).is_sound


class Killed(BaseException):
    """The process was killed: it does nothing any more."""


class Killer:
    """Kills a compaction before one of the calls that change a file system."""

    CALLS = (
        (Path, "replace"),
        (Path, "unlink"),
        (LocalStore, "_open_new"),
        (LocalStore, "_sync_directory"),
    )

    def __init__(self, patch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        for owner, name in self.CALLS:
            patch.setattr(owner, name, self._wrapped(getattr(owner, name)))
        patch.setattr("os.fsync", self._wrapped(__import__("os").fsync))

    def _wrapped(self, call: Any) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return call(*args, **options)

        return wrapped


def test_killed_at_any_moment(directory: Path, tmp_path: Path) -> None:
    """The log is whole at each moment, and the next compaction ends the work."""
    before = contents(log.Log(directory))
    sizes = [each.bytes for each in log.Log(directory).segments]
    step = 0
    states = set()
    while True:
        copy = Path(shutil.copytree(directory, tmp_path / "killed"))
        old = log.Log(copy)
        partitions = pickle.loads(pickle.dumps(old.plan().partitions))
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, step)
            try:
                log.compact(copy, segment_bytes=4 * max(sizes))
                break
            except Killed:
                pass
        check_same(log.Log(copy), before)
        found = rows([[batch for each in partitions for batch in each.decode()]])
        assert found == before[1]
        old.refresh()
        check_same(old, before)
        assert log.verify(copy).damage == ()
        states.add(tuple(sorted(path.name for path in copy.iterdir())))
        if step % 3 == 0:
            log.LogWriter(copy, SOURCE).close()
            check_same(log.Log(copy), before)
            assert log.verify(copy).damage == ()
        log.compact(copy, segment_bytes=4 * max(sizes))
        check_same(log.Log(copy), before)
        assert log.verify(copy).damage == ()
        reader = log.Log(copy)
        assert names(copy) == [each.name for each in reader.segments]
        check_index(copy)
        log.LogWriter(copy, SOURCE).close()
        assert {path.suffix for path in copy.iterdir()} <= {".arrow", ".json", ".index", ""}
        shutil.rmtree(copy)
        step += 1
    assert step > 40
    assert len(states) > 20


def test_an_error_leaves_no_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(log.Log(directory))
    files = sorted(path.name for path in directory.iterdir())

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(log.LogError, match="No space left on device") as raised:
        log.compact(directory)
    assert raised.value.is_transient
    monkeypatch.undo()
    assert sorted({path.name for path in directory.iterdir()} - {"compaction-lock"}) == files
    check_same(log.Log(directory), before)


def test_damage_is_not_joined(directory: Path) -> None:
    segment = sorted(directory.glob("*.arrow"))[3]
    content = bytearray(segment.read_bytes())
    content[-20] ^= 1
    segment.write_bytes(content)
    files = names(directory)
    with pytest.raises(log.LogError, match=f"{segment.name} is damaged"):
        log.compact(directory)
    assert names(directory) == files


def test_a_state_that_does_not_follow(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the joined segment does not lead to the state after the others, they stay."""
    monkeypatch.setattr(log.Segment, "state", lambda segment: segment.header.before)
    files = names(directory)
    with pytest.raises(log.LogError, match="do not lead to the state") as raised:
        log.compact(directory)
    assert "log verify" in str(raised.value.hint)
    assert names(directory) == files


def test_missing_files_of_a_joined_segment(directory: Path) -> None:
    [joined] = log.compact(directory)
    name = joined.file.removesuffix(".arrow")
    for suffix in (".arrow", ".json"):
        path = directory / (name + suffix)
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(log.LogError, match=f"{path.name} is missing"):
            log.Log(directory)
        assert path.name in {each.file for each in log.verify(directory).damage}
        path.write_bytes(content)
    assert log.verify(directory).is_sound


# Other processes.


def test_another_compaction(directory: Path) -> None:
    with LocalStore(directory).compaction_lock():
        words = r"is being compacted by another thread of this process \(pid \d+\) — hint: Compact"
        with pytest.raises(log.LogError, match=words) as raised:
            log.compact(directory)
        assert raised.value.is_transient
        assert len(log.compact(directory, dry_run=True)) == 1
    assert len(log.compact(directory)) == 1


def test_a_writer(tmp_path: Path, part_bytes: int) -> None:
    """A writer goes on, with its own index; the growing segment stays."""
    count = len(CAPTURE.messages)
    with log.LogWriter(tmp_path, SOURCE, part_bytes=300) as writer:
        for number, (start, stop) in enumerate(
            zip([0, *cut(count, 40)], [*cut(count, 40), count], strict=True)
        ):
            append(writer, CAPTURE.messages[start:stop], CAPTURE.lsns[start:stop])
            writer.flush()
            if number % 5 == 4:
                growing = names(tmp_path)[-1]
                log.compact(tmp_path)
                assert names(tmp_path)[-1] == growing
                reader = log.Log(tmp_path)
                found = pa.Table.from_batches(reader.messages())
                assert found.column("data").to_pylist() == CAPTURE.messages[:stop]
                assert log.verify(tmp_path).damage == ()
            if number % 3 != 2:
                writer.seal()
    reader = log.Log(tmp_path)
    assert rows([list(reader.read())]) == serial(CAPTURE)[0]
    check_relations(reader, CAPTURE.messages)
    assert log.verify(tmp_path).damage == ()
    before = contents(reader)
    log.compact(tmp_path)
    check_same(log.Log(tmp_path), before)
    log.LogWriter(tmp_path, SOURCE).close()
    check_same(log.Log(tmp_path), before)
    assert log.verify(tmp_path).damage == ()


def test_a_writer_that_opens_meanwhile(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removes nothing that the compaction writes, and reads the files again."""
    before = contents(log.Log(directory))

    def opened(*args: Any, **options: Any) -> Any:
        log.LogWriter(directory, SOURCE).close()
        return joining.join(*args, **options)

    monkeypatch.setattr(compaction, "join", opened)
    read_sidecars = compaction.read_sidecars
    assert len(log.compact(directory)) == 1
    monkeypatch.setattr(compaction, "read_sidecars", read_sidecars)
    check_same(log.Log(directory), before)
    assert log.verify(directory).damage == ()


def test_readers(directory: Path) -> None:
    """They read from the joined segments, also after a plan or the first messages."""
    reader, fresh, half = (log.Log(directory) for _ in range(3))
    before = contents(log.Log(directory))
    lsns = commit_lsns(CAPTURE)
    plan = pickle.loads(pickle.dumps(reader.plan(max_partition_bytes=1)))
    part = reader.plan(after=lsns[3], until=lsns[-4])
    messages = half.messages()
    begun = [next(messages)]
    log.compact(directory)
    found = rows([[batch for each in plan.partitions for batch in each.decode()]])
    assert found == before[1]
    wanted = [row for row in before[1] if lsns[3] < row[0] <= lsns[-4]]
    assert rows([[batch for each in part.partitions for batch in each.decode()]]) == wanted
    check_same(fresh, before)
    assert pa.Table.from_batches([*begun, *messages]).combine_chunks() == before[0]
    reader.refresh()
    check_same(reader, before)


def test_readers_of_pruned_segments(directory: Path) -> None:
    """An old plan is an error if its segments were pruned."""
    plan = log.Log(directory).plan()
    log.compact(directory, segment_bytes=20_000)
    assert log.prune(directory, log.Log(directory).end.lsn)
    with pytest.raises(log.LogError, match=r"missing — hint: If the log was pruned or compacted"):
        list(plan.partitions[0].decode())


def test_a_list_of_files_during_the_removal(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose list has no joined segment, and not all of the others, lists them again."""
    before = contents(log.Log(directory))
    list_names = LocalStore.names
    found: list[list[str]] = []

    def raced(store: LocalStore) -> list[str]:
        listed = list_names(store)
        if not found:
            found.append(listed)
            log.compact(directory)
            return listed[:3] + [name for name in listed if not name.startswith("0")]
        return list_names(store)

    monkeypatch.setattr(LocalStore, "names", raced)
    reader = log.Log(directory)
    assert len(reader) == 1
    monkeypatch.undo()
    check_same(reader, before)


def test_pruning(tmp_path: Path) -> None:
    """Joined segments are pruned as others are, and joined after a pruning."""
    build_log(tmp_path, 30)
    whole = serial(CAPTURE)[0]
    lsns = commit_lsns(CAPTURE)
    sizes = [each.bytes for each in log.Log(tmp_path).segments]
    first = set()
    for lsn in lsns[:: len(lsns) // 6]:
        log.prune(tmp_path, lsn)
        begin = log.Log(tmp_path).begin
        log.compact(tmp_path, segment_bytes=int(1.8 * max(sizes)))
        reader = log.Log(tmp_path)
        assert reader.begin == begin
        assert rows([list(reader.read(after=lsn))]) == [row for row in whole if row[0] > lsn]
        assert log.verify(tmp_path).damage == ()
        first.add(len(reader.segment(0).name))
    assert log.Log(tmp_path).begin.ordinal > 0
    assert first == {20, 41}


@pytest.mark.parametrize("count", [1, 3, 7])
def test_a_pruning_meanwhile(count: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that were pruned while they were joined stay so."""
    lsns = commit_lsns(CAPTURE)
    begun: list[int] = []

    def pruned(*args: Any, **options: Any) -> Any:
        segment = joining.join(*args, **options)
        if not begun:
            log.prune(directory, lsns[-2])
            begun.append(log.Log(directory).begin.ordinal)
        return segment

    monkeypatch.setattr(compaction, "join", pruned)
    sizes = [each.bytes for each in log.Log(directory).segments]
    log.compact(directory, segment_bytes=count * max(sizes))
    reader = log.Log(directory)
    assert reader.begin.ordinal == (begun[0] if begun else 0)
    wanted = [row for row in serial(CAPTURE)[0] if row[0] > reader.begin.lsn]
    assert rows([list(reader.read())]) == wanted
    assert log.verify(directory).damage == ()
    assert {path.stem for path in directory.glob("*.arrow")} == {
        each.name for each in reader.segments
    }


# Copies and other places.


def test_copies(directory: Path, tmp_path: Path) -> None:
    """A copy gets the joined segments, in place of those that it has."""
    log.copy(directory, tmp_path / "copy")
    with pytest.raises(log.LogError, match="is a copy of a log — hint: Compact the log itself"):
        log.compact(tmp_path / "copy")
    sizes = [each.bytes for each in log.Log(directory).segments]
    for factor in (3, 6):
        joined = log.compact(directory, segment_bytes=factor * max(sizes))
        before = contents(log.Log(directory))
        old = log.Log(tmp_path / "copy").plan()
        copied = log.copy(directory, tmp_path / "copy")
        assert copied == [each.file for each in joined]
        assert names(tmp_path / "copy") == names(directory)
        check_same(log.Log(tmp_path / "copy"), before)
        found = rows([[batch for each in old.partitions for batch in each.decode()]])
        assert found == before[1]
        assert log.verify(tmp_path / "copy").damage == ()
        indexes = [
            sorted(path.name for path in each.glob("*.index"))
            for each in (directory, tmp_path / "copy")
        ]
        assert indexes[0] == indexes[1]
        assert log.copy(directory, tmp_path / "copy") == []


def test_a_copy_that_has_a_part_of_a_joined_segment(tmp_path: Path) -> None:
    count = len(CAPTURE.messages)
    with log.LogWriter(tmp_path / "log", SOURCE) as writer:
        for start, stop in zip([0, *cut(count, 6)], [*cut(count, 6), count], strict=True):
            append(writer, CAPTURE.messages[start:stop], CAPTURE.lsns[start:stop])
            writer.seal()
            if start == cut(count, 6)[2]:
                log.copy(tmp_path / "log", tmp_path / "copy")
                log.copy(tmp_path / "log", tmp_path / "pruned")
    lsn = log.Log(tmp_path / "pruned").end.lsn
    assert log.prune(tmp_path / "pruned", lsn)
    [joined] = log.compact(tmp_path / "log")
    assert log.copy(tmp_path / "log", tmp_path / "copy") == [joined.file]
    check_same(log.Log(tmp_path / "copy"), contents(log.Log(tmp_path / "log")))
    assert log.verify(tmp_path / "copy").damage == ()
    with pytest.raises(log.LogError, match="is inside of segment") as raised:
        log.copy(tmp_path / "log", tmp_path / "pruned")
    assert raised.value.hint == "Copy to an empty directory."
    assert log.verify(tmp_path / "pruned").damage == ()


def test_an_object_store(tmp_path: Path) -> None:
    """Each flush writes a segment there."""
    filesystem = no_appends(tmp_path)
    with log.LogWriter("log", SOURCE, filesystem=filesystem) as writer:
        for start in range(0, len(CAPTURE.messages), 10):
            stop = start + 10
            append(writer, CAPTURE.messages[start:stop], CAPTURE.lsns[start:stop])
            writer.flush()
            if start % 100 == 90:
                log.compact("log", filesystem=filesystem)
    reader = log.Log("log", filesystem=filesystem)
    assert len(reader) < 8
    assert rows([list(reader.read())]) == serial(CAPTURE)[0]
    assert log.verify("log", filesystem=filesystem).damage == ()


def test_permissions(tmp_path: Path) -> None:
    build_log(tmp_path / "log", file_mode=0o640)
    log.compact(tmp_path / "log")
    log.prune(tmp_path / "log", 1)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()}
    assert set(modes.values()) == {0o640}, modes


def test_no_log(tmp_path: Path) -> None:
    """Nothing is created in its place."""
    with pytest.raises(log.LogError, match="is not a log"):
        log.compact(tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_progress(directory: Path) -> None:
    found: list[tuple[int, int]] = []
    log.compact(directory, progress=lambda read, of: found.append((read, of)))
    assert found
    assert found == sorted(found)
    assert all(0 < read <= of for read, of in found)
    assert len({of for _, of in found}) == 1


def test_a_batch_of_a_part(tmp_path: Path) -> None:
    """Record batches of frequent flushes become one."""
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for number in range(40):
            append(writer, build.wire(build.transaction(lsn=100 + number)))
            writer.flush()
            if number % 10 == 9:
                writer.seal()
    log.compact(tmp_path)
    [segment] = log.Log(tmp_path).segments
    with pa.OSFile(str(tmp_path / f"{segment.name}.arrow")) as file:
        reader = pa.ipc.open_stream(file)
        assert [batch.num_rows for batch in reader] == [80]
    assert len(segment.parts) == 1
    assert np.array_equal(segment.parts[0].messages, 80)
