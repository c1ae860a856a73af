"""The index of a log has what its segments have, and is never wrong in silence."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log import index_check, index_writer
from tests.log.test_relations import check as check_relations
from tests.log.test_relations import histories, table
from tests.support import corpus
from tests.support.build import T, insert, transaction, wire
from tests.support.examples import in_turn
from tests.support.log_copies import copy_log
from tests.support.logs import SOURCE, append, commit_lsns, memory, write, write_flushed
from tests.transactions.test_splits import DENSE, rows, serial

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")


@pytest.fixture(autouse=True, scope="module")
def small_files() -> Iterator[None]:
    """Files of the index with two segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_writer, "INDEXED_SEGMENTS", 2)
        patch.setattr(index_check, "INDEXED_SEGMENTS", 2)
        yield


def build(directory: Path, **options: Any) -> log.Log:
    count = len(CAPTURE.messages)
    seals = [count * number // 7 for number in range(1, 7)]
    return write(CAPTURE, directory, seals, part_bytes=500, **options)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    build(tmp_path / "log")
    return tmp_path / "log"


def index_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.index"))


def check_whole(directory: Path) -> None:
    assert rows([list(log.Log(directory).read())]) == serial(CAPTURE)[0]


def test_a_file_for_so_many_segments(directory: Path) -> None:
    files = index_files(directory)
    names = sorted(path.stem for path in directory.glob("*.arrow"))
    assert [path.stem for path in files] == names[:6:2]
    with pa.ipc.open_stream(files[0]) as stream:  # anyone can read it
        table = stream.read_all()
    assert table.column("first_ordinal").to_pylist() == [int(name) for name in names[:2]]
    assert sum(len(each) for each in table.column("definitions").to_pylist()) > 0
    assert log.verify(directory).damage == ()
    check_whole(directory)


@pytest.mark.slow
@pytest.mark.parametrize("capture", list(in_turn(DENSE, [()], quick=corpus.is_newest)), ids=str)
def test_captures(capture: corpus.Capture) -> None:
    count = len(capture.messages)
    filesystem = memory()
    seals = [count * number // 9 for number in range(1, 9)]
    reader = write(capture, "log", seals, part_bytes=2000, filesystem=filesystem)
    check_relations(reader, capture.messages)
    assert rows([list(reader.read())]) == serial(capture)[0]
    assert log.verify("log", filesystem=filesystem).damage == ()


@pytest.mark.slow
@settings(max_examples=60)
@given(messages=histories(), data=st.data())
def test_histories(messages: list[bytes], data: st.DataObject) -> None:
    """The relations by the index are those by the sidecars, their clocks included."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(messages), 1)), max_size=7)))
    filesystem = memory()
    reader = write_flushed(messages, cuts, "log", filesystem)
    check_relations(reader, messages)
    found = [reader.scope_before(number) for number in range(len(reader) + 1)]
    versions = reader.versions
    for info in filesystem.get_file_info(pa.fs.FileSelector("log")):
        if info.extension == "index":
            filesystem.delete_file(info.path)
    again = log.Log("log", filesystem=filesystem)
    assert [again.scope_before(number) for number in range(len(again) + 1)] == found
    assert again.versions == versions
    scope = found[0]
    for number, segment in enumerate(again.segments):
        scope.update(segment.declared(scope))
        assert scope == found[number + 1]


def test_reading_needs_few_sidecars(directory: Path) -> None:
    """Of the segments in the index, a range reads the sidecars of its own."""
    lsns = commit_lsns(CAPTURE)
    for path in sorted(directory.glob("0*.json"))[:4]:
        path.write_bytes(b"damaged")
    reader = log.Log(directory)
    assert len(reader.versions) > 1
    assert reader.relations_at().relations
    expected = [row for row in serial(CAPTURE)[0] if row[0] == lsns[-1]]
    assert rows([list(reader.read(after=lsns[-2]))]) == expected
    with pytest.raises(log.LogError, match="is damaged"):
        list(reader.read())


def test_a_damaged_file(directory: Path) -> None:
    expected = len(log.Log(directory).versions)
    for path in index_files(directory):
        content = path.read_bytes()
        for place in range(0, len(content), 97):
            wrong = bytearray(content)
            wrong[place] ^= 0x10
            path.write_bytes(wrong)
            with pytest.raises(log.LogError, match=f"{path.name} is damaged") as error:
                _ = log.Log(directory).versions
            assert "log verify --repair" in (error.value.hint or "")
        with pytest.raises(log.LogError, match=f"{path.name} is damaged"):
            log.LogWriter(directory, SOURCE)
        [damage] = log.verify(directory).damage
        assert damage.file == path.name
        report = log.verify(directory, repair=True)
        assert report.is_sound
        assert path.name in report.repaired
        assert path.read_bytes() == content
        assert len(log.Log(directory).versions) == expected
    check_whole(directory)


def test_a_missing_file(directory: Path) -> None:
    """The sidecars are read in its place, and the next writer writes it again."""
    versions = log.Log(directory).versions
    for path in index_files(directory):
        content = path.read_bytes()
        path.unlink()
        assert log.Log(directory).versions == versions
        check_whole(directory)
        assert log.verify(directory).is_sound
        log.LogWriter(directory, SOURCE).close()
        assert path.read_bytes() == content
    for path in index_files(directory):
        path.unlink()
    assert len(log.verify(directory, repair=True).repaired) == 3


def test_a_file_of_other_segments(directory: Path, tmp_path: Path) -> None:
    first, second, _ = index_files(directory)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    check_whole(directory)  # the sidecars are read in its place
    assert len(log.verify(directory, repair=True).repaired) == 3
    assert first.read_bytes() == content
    build(tmp_path / "other")
    shutil.copy(index_files(tmp_path / "other")[0], first)
    with pytest.raises(log.LogError, match="belongs to another log"):
        _ = log.Log(directory).versions
    first.write_bytes(content)
    check_whole(directory)
    for path in directory.glob(f"{second.stem}.[aj]*"):
        path.unlink()
    with pytest.raises(log.LogError, match=f"{second.stem}.arrow is missing"):
        _ = log.Log(directory).versions


def test_a_row_that_says_something_else(directory: Path) -> None:
    path = index_files(directory)[1]
    with pa.ipc.open_stream(path) as stream:
        batch = stream.read_next_batch()
    wrong = pa.array([0, 0], pa.uint64())
    place = batch.schema.get_field_index("delivered_lsn")
    log_id = log.Log(directory).manifest.log_id
    from pgwire_codec.log.index_file import index_to_bytes

    path.write_bytes(index_to_bytes(batch.set_column(place, "delivered_lsn", wrong), log_id))
    [damage] = log.verify(directory).damage
    assert damage.file == path.name
    assert "does not match the segment" in damage.reason
    assert log.verify(directory, repair=True).is_sound
    assert log.verify(directory).damage == ()


def test_a_reader_that_knows_the_log_from_before_it_was_pruned(directory: Path) -> None:
    reader = log.Log(directory)
    known = reader.relations_at()
    assert known.relations
    assert len(reader.segments) > 2
    log.prune(directory, commit_lsns(CAPTURE)[-1])
    reader.refresh()
    assert reader.begin.ordinal > 0
    assert reader.relations_at() == known


def test_pruning_and_copying(directory: Path, tmp_path: Path) -> None:
    lsns = commit_lsns(CAPTURE)
    copy_log(directory, tmp_path / "copy")
    assert [path.name for path in index_files(tmp_path / "copy")] == [
        path.name for path in index_files(directory)
    ]
    whole = serial(CAPTURE)[0]
    remaining = []
    for lsn in lsns[:: len(lsns) // 8]:
        log.prune(directory, lsn)
        remaining.append(len(index_files(directory)))
        found = rows([list(log.Log(directory).read(after=lsn))])
        assert found == [row for row in whole if row[0] > lsn]
        assert log.verify(directory).damage == ()
        copy_log(directory, tmp_path / f"copy{lsn}")
        assert rows([list(log.Log(tmp_path / f"copy{lsn}").read(after=lsn))]) == found
    assert remaining[0] == 3
    assert remaining[-1] < 3
    assert rows([list(log.Log(tmp_path / "copy").read())]) == whole


def test_a_log_grows_after_its_index(tmp_path: Path) -> None:
    """A reader that is refreshed, and sessions that declare their relations again."""
    reader = None
    messages: list[bytes] = []
    for number in range(6):
        with log.LogWriter(tmp_path, SOURCE) as writer:
            for lsn in (100 * number + 100, 100 * number + 150):
                changes = [T, table(2 + number % 2, "s"), insert(1, "1", "a", None)]
                messages += wire(transaction(*changes, lsn=lsn))
                append(writer, messages[-5:])
                writer.flush()
                reader = reader or log.Log(tmp_path)
                reader.refresh()
                ours, theirs = (each.relations_at() for each in (reader, log.Log(tmp_path)))
                # Their clocks only order the relations of one reader.
                assert {oid: version for oid, (_, version) in ours.relations.items()} == {
                    oid: version for oid, (_, version) in theirs.relations.items()
                }
                assert list(map(ours.named, ours.names)) == list(map(theirs.named, ours.names))
        assert len(index_files(tmp_path)) == (number + 1) // 2
    assert reader is not None
    reader.refresh()
    check_relations(reader, messages)
    assert len(pgc.Decoder().decode(messages).transactions) == 12
