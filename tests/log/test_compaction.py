"""A compaction joins small segments, and changes nothing that a reader finds."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
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
from pgwire_codec.errors import OptionError
from pgwire_codec.log.object_store import REQUESTS, ObjectStore
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.report import gather
from tests.log.test_relations import check as check_relations
from tests.log.test_relations import histories
from tests.support import build, corpus
from tests.support.compaction import (
    CAPTURE,
    PART_BYTES,
    build_log,
    check_same,
    contents,
    cut,
    names,
)
from tests.support.examples import examples, in_turn
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

DATA = Path(__file__).parents[1] / "data"

SIZES = [(size,) for size in PART_BYTES]

pytestmark = pytest.mark.usefixtures("small_index")


def check_ranges(reader: log.Log, whole: list[Any], lsns: Sequence[int]) -> None:
    """Check that ranges between commits have the changes of their transactions."""
    for after, until in pairwise(lsns):
        wanted = [row for row in whole if after < row[0] <= until]
        assert rows([list(reader.read(after=after, until=until))]) == wanted


# Large captures take seconds, and most with a message a part.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "part_bytes"),
    [
        *in_turn(DENSE, SIZES, quick=corpus.is_newest),
        *in_turn(LARGE, SIZES, quick=corpus.is_newest, few=SIZES[1:]),
    ],
    indirect=["part_bytes"],
    ids=str,
)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "part_bytes"),
    list(in_turn(DENSE, SIZES, quick=corpus.is_newest)),
    indirect=["part_bytes"],
    ids=str,
)
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


@pytest.mark.parametrize("name", ["immediate.pg18.v4-parallel-2pc", "dml.pg18.v1-text"])
def test_reports_and_histories(name: str) -> None:
    """A report has the same numbers, and relations the same versions at the same commits."""
    capture, filesystem = corpus.capture(name), memory()
    write_sessions("log", capture, 6, filesystem=filesystem)

    def found() -> tuple[Any, ...]:
        reader = log.Log("log", filesystem=filesystem)
        history = RelationHistory(reader)
        oids, end = reader.relations_at().relations, reader.end.lsn
        versions = [
            history.between(oid, after, end)
            for oid in oids
            for after in (0, *commit_lsns(capture)[::7])
        ]
        findings = gather(reader)
        statistics = replace(findings.statistics, segments=0, bytes=0)
        return repr(replace(findings, statistics=statistics)), versions

    before = found()
    assert sum(map(len, before[1])) > 10
    assert log.compact("log", filesystem=filesystem)
    assert found() == before


@examples(25, 200)
def test_histories(examples: int) -> None:
    """The relations and their clocks stay the same, whatever is joined; and so with the index."""

    @settings(max_examples=examples)
    @given(messages=histories(), data=st.data())
    def check(messages: list[bytes], data: st.DataObject) -> None:
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

    check()


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


def test_a_disk_with_too_little_room(directory: Path) -> None:
    before = names(directory)
    with pytest.raises(log.LogError, match=r"is nearly full: .* are to stay free") as raised:
        log.compact(directory, min_free_bytes=shutil.disk_usage(directory).total)
    assert raised.value.is_transient
    assert names(directory) == before
    assert log.verify(directory).damage == ()
    assert log.compact(directory)


def test_an_object_store_does_not_fill_up() -> None:
    filesystem = memory()
    write_flushed(CAPTURE.messages, range(100, len(CAPTURE.messages), 100), "log", filesystem)
    assert log.compact("log", filesystem=filesystem, min_free_bytes=1 << 60)


def test_an_object_store_is_asked_for_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and removals, each of which waits for the server."""
    running = dict.fromkeys(("read_buffer", "_remove"), 0)
    most = dict(running)
    lock = threading.Lock()

    def slow(name: str) -> Any:
        usual = getattr(ObjectStore, name)

        def call(*arguments: Any) -> Any:
            with lock:
                running[name] += 1
                most[name] = max(most[name], running[name])
            time.sleep(0.01)
            try:
                return usual(*arguments)
            finally:
                with lock:
                    running[name] -= 1

        return call

    for name in running:
        monkeypatch.setattr(ObjectStore, name, slow(name))
    filesystem = memory()
    cuts = range(10, len(CAPTURE.messages), 10)
    before = rows([list(write_flushed(CAPTURE.messages, cuts, "log", filesystem).read())])
    log.compact("log", filesystem=filesystem)
    assert all(8 < number <= REQUESTS for number in most.values()), most
    reader = log.Log("log", filesystem=filesystem)
    assert rows([list(reader.read())]) == before
    assert log.verify("log", filesystem=filesystem).damage == ()


@pytest.mark.parametrize("given", [-1, "256MB", None])
def test_room_that_is_no_number(directory: Path, given: Any) -> None:
    with pytest.raises(OptionError, match="min_free_bytes must be an integer of 0 or more, not"):
        log.compact(directory, min_free_bytes=given)
