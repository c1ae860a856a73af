"""Compactions that are killed or fail, and those beside writers, readers and prunings."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec import log
from pgwire_codec.log import compaction, joining, local_store
from pgwire_codec.log.local_store import LocalStore
from tests.log.test_relations import check as check_relations
from tests.support import build, corpus
from tests.support.compaction import (
    CAPTURE,
    build_log,
    check_index,
    check_same,
    contents,
    cut,
    names,
)
from tests.support.logs import (
    SOURCE,
    append,
    commit_lsns,
)
from tests.transactions.test_splits import rows, serial

pytestmark = pytest.mark.usefixtures("small_index")


#: Compacts a log until its standard input ends: a process. Prints a line before the first time.
COMPACTOR = """
import sys, threading
from pgwire_codec import log
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
joined = 0
is_last = False
while not is_last:
    is_last = ended.is_set()
    joined += len(log.compact(sys.argv[1], segment_bytes=int(sys.argv[2])))
print(joined)
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [80, pytest.param(400, marks=pytest.mark.thorough)])
def test_processes(count: int, tmp_path: Path) -> None:
    """A writer, a compaction that is killed, prunings and readers at once."""
    relation = build.relation(1, build.column("id", "int4", key=True))
    folder, pruned, quarter = tmp_path / "log", 0, count // 4

    def compactor() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", COMPACTOR, folder, str(100 * count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

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
            if lsn % quarter == quarter // 2:
                process.kill()
                process.communicate()
                process = running.enter_context(compactor())
            if lsn % quarter == 0:
                log.prune(folder, lsn - 4 * quarter // 5)
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


def before_each_change(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act before each of the calls by which a compaction changes a file system."""

    def wrapped(call: Any) -> Any:
        def call_after(*args: Any, **options: Any) -> Any:
            act()
            return call(*args, **options)

        return call_after

    for owner, name in (
        (Path, "replace"),
        (Path, "unlink"),
        (LocalStore, "_open_new"),
        (local_store, "sync_directory"),
        (os, "fsync"),
    ):
        patch.setattr(owner, name, wrapped(getattr(owner, name)))


def files(directory: Path) -> dict[str, bytes]:
    """Return the content of each file, of temporary ones without the random part of their names."""
    found = {path.name: path.read_bytes() for path in directory.iterdir()}
    return {re.sub(r"\.[0-9a-f]{32}\.tmp", ".tmp", name): data for name, data in found.items()}


def states(directory: Path, copy: Path, size: int) -> list[dict[str, bytes]]:
    """Return the files before each change by a compaction of a copy of the log."""
    found: list[dict[str, bytes]] = []
    shutil.copytree(directory, copy)
    with pytest.MonkeyPatch.context() as patch:
        before_each_change(patch, lambda: found.append(files(copy)))
        log.compact(copy, segment_bytes=size)
    shutil.rmtree(copy)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "every"),
    [
        (corpus.capture("immediate.pg18.v1-text"), False),
        pytest.param(CAPTURE, True, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_killed_at_any_moment(capture: corpus.Capture, every: bool, tmp_path: Path) -> None:
    """The log is whole at each moment, and the next compaction ends the work.

    Moments at which the files are those of another moment are thorough, and a larger log.
    """
    directory = tmp_path / "log"
    build_log(directory, capture=capture)
    before = contents(log.Log(directory))
    size = 4 * max(each.bytes for each in log.Log(directory).segments)
    moments = states(directory, tmp_path / "killed", size)
    assert len(moments) > 40
    assert len({tuple(sorted(state)) for state in moments}) > 20
    steps = [step for step, state in enumerate(moments) if every or state not in moments[:step]]
    for number, step in enumerate(steps):
        copy = Path(shutil.copytree(directory, tmp_path / "killed"))
        old = log.Log(copy)
        partitions = pickle.loads(pickle.dumps(old.plan().partitions))
        left = iter(range(step))

        def kill(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            before_each_change(patch, kill)
            with pytest.raises(Killed):
                log.compact(copy, segment_bytes=size)
        assert files(copy) == moments[step]
        check_same(log.Log(copy), before)
        found = rows([[batch for each in partitions for batch in each.decode()]])
        assert found == before[1]
        old.refresh()
        check_same(old, before)
        assert log.verify(copy).damage == ()
        if number % 3 == 0:
            log.LogWriter(copy, SOURCE).close()
            check_same(log.Log(copy), before)
            assert log.verify(copy).damage == ()
        log.compact(copy, segment_bytes=size)
        check_same(log.Log(copy), before)
        assert log.verify(copy).damage == ()
        reader = log.Log(copy)
        assert names(copy) == [each.name for each in reader.segments]
        check_index(copy)
        log.LogWriter(copy, SOURCE).close()
        assert {path.suffix for path in copy.iterdir()} <= {".arrow", ".json", ".index", ""}
        shutil.rmtree(copy)


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


def test_another_compaction(directory: Path) -> None:
    with LocalStore(directory).compaction_lock():
        words = r"is being compacted by another thread of this process \(pid \d+\) — hint: Compact"
        with pytest.raises(log.LogError, match=words) as raised:
            log.compact(directory)
        assert raised.value.is_transient
        assert len(log.compact(directory, dry_run=True)) == 1
    assert len(log.compact(directory)) == 1


@pytest.mark.slow
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


@pytest.mark.parametrize("opened", [False, True])
def test_a_list_of_files_during_the_removal(
    opened: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose list has no joined segment, and not all of the others, lists them again."""
    reader = log.Log(directory)
    before = contents(reader)
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
    if opened:
        reader._directory.watermark = None  # so that the files are listed again
        reader.refresh()
    else:
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
