"""Log: what is in it while it grows, and what is read of it."""

from __future__ import annotations

import gc
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log import sealed_segments
from pgwire_codec.log.directory import read_directory
from pgwire_codec.log.ipc_file import read_batches
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.sealed_segments import SealedSegments
from pgwire_codec.log.segment import Segment
from pgwire_codec.log.store import open_store
from tests.support import corpus
from tests.support.build import T, insert, transaction, wire
from tests.support.logs import SOURCE, append, write
from tests.transactions.test_splits import rows, serial

CAPTURES = corpus.captures("immediate", major=18)
CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
MESSAGES = wire([*transaction(T, insert(1, "1", "a", None), lsn=100), *transaction(lsn=200)])


@pytest.mark.slow
@settings(max_examples=25)
@given(data=st.data())
def test_reading_on_while_the_log_grows(data: st.DataObject) -> None:
    """As a stream does: again and again what came since, by the end of the time before."""
    capture = data.draw(st.sampled_from(CAPTURES))
    options = {
        "part_bytes": data.draw(st.sampled_from([100, 2000, 1 << 23])),
        "segment_bytes": data.draw(st.sampled_from([9000, 1 << 27])),
    }
    found: list[Any] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        log.LogWriter(directory, SOURCE, **options) as writer,
    ):
        reader = log.Log(directory)
        end, start = reader.end, 0
        while start < len(capture.messages):
            stop = start + data.draw(st.integers(1, 200))
            append(writer, capture.messages[start:stop], capture.lsns[start:stop])
            if data.draw(st.booleans()):
                writer.flush()
            if data.draw(st.booleans()):
                reader.refresh()
            after, end = end, reader.end
            plan = reader.plan(after, end)
            if data.draw(st.booleans()):
                writer.seal()  # the plan holds all the same
            found += rows([[batch for each in plan.partitions for batch in each.decode()]])
            assert reader.end == end  # until it is refreshed
            start = stop
        writer.flush()
        reader.refresh()
        found += rows([list(reader.read(after=end))])
        assert found == serial(capture)[0]
        assert reader.end.ordinal == len(capture.messages)
        assert rows(reader.changes()) == serial(capture)[0]


def test_the_growing_segment_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgwire_codec.log.segment_builder import SegmentBuilder

    added: list[int] = []
    add = SegmentBuilder.add
    with log.LogWriter(tmp_path, SOURCE) as writer:
        monkeypatch.setattr(
            SegmentBuilder,
            "add",
            lambda self, records, data: added.append(len(records)) or add(self, records, data),
        )
        append(writer, MESSAGES[:3])
        writer.flush()
        added.clear()
        reader = log.Log(tmp_path)
        assert (reader.end, added) == (log.LogPosition(3, 0), [])  # of the watermark
        assert reader.segments[0].messages == 3
        assert reader.plan().partitions == []
        append(writer, MESSAGES[3:])
        writer.flush()
        added.clear()
        reader.refresh()
        assert [len(batch) for batch in reader.read()] == [1]
        assert added == [len(MESSAGES) - 3]
        assert not reader.segments[0].sealed


def test_a_refresh_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = write(CAPTURE, tmp_path, part_bytes=500)
    found: list[str] = []
    read = LocalStore.read
    monkeypatch.setattr(
        LocalStore, "read", lambda self, name: found.append(name) or read(self, name)
    )
    reader.refresh()
    assert sorted(found) == ["manifest.json", "watermark.json"]


def test_a_log_is_pickled_as_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = write(CAPTURE, tmp_path / "log", part_bytes=100)
    assert reader.segments
    assert len(pickle.dumps(reader)) < 500
    assert rows([list(pickle.loads(pickle.dumps(reader)).read())]) == serial(CAPTURE)[0]
    monkeypatch.chdir(tmp_path)
    relative = pickle.dumps([log.Log("log"), *log.Log("log").plan().partitions])
    monkeypatch.chdir("/")
    found = pickle.loads(relative)
    assert found[0].end == reader.end
    assert rows([[batch for each in found[1:] for batch in each.decode()]]) == serial(CAPTURE)[0]


def test_partitions_are_small(tmp_path: Path) -> None:
    reader = write(CAPTURE, tmp_path, part_bytes=500)
    plan = reader.plan()
    assert len(plan.partitions) == 1  # as large as allowed
    assert len(pickle.dumps(plan.partitions)) < 3000
    sizes = [
        sum(map(len, CAPTURE.messages[each.first_ordinal :][: each.messages]))
        for each in reader.plan(max_partition_bytes=2_000).partitions
    ]
    assert sum(sizes) == sum(map(len, CAPTURE.messages))
    assert len(sizes) > 3
    assert 1_000 < max(sizes) <= 2_000


def test_one_table(tmp_path: Path) -> None:
    reader = write(CAPTURE, tmp_path, part_bytes=500)
    whole = [batch for changes in reader.changes() for batch in changes]
    assert {each.oid for each in reader.relations} == {batch.relation.oid for batch in whole}
    for each in reader.relations:
        found = [list(reader.read(each.name))]
        wanted = [[batch for batch in whole if batch.relation.oid == each.oid]]
        assert rows(found) == rows(wanted)
    with pytest.raises(ValueError, match=r"no table 'public\.nobody' — hint: Their tables: "):
        reader.read("public.nobody")


def test_decoder_options_arrive(tmp_path: Path) -> None:
    reader = write(CAPTURE, tmp_path)
    batch = next(iter(reader.read(types="text")))
    columns = [each.name for each in batch.relation.columns]
    assert {batch.to_arrow().schema.field(name).type for name in columns} == {pa.string()}
    with pytest.raises(TypeError, match="nonsense"):
        reader.read(nonsense=1)
    with log.LogWriter(tmp_path / "empty", SOURCE), pytest.raises(TypeError, match="nonsense"):
        log.Log(tmp_path / "empty").read(nonsense=1)


def test_messages_from_any_ordinal(tmp_path: Path) -> None:
    count = len(CAPTURE.messages)
    reader = write(CAPTURE, tmp_path, [count // 3, count // 2], part_bytes=700)
    for first in (None, 0, 1, count // 3, count // 3 + 1, count - 1, count, count + 5):
        found = [
            each
            for records in reader.messages(first)
            for each in records.column("data").to_pylist()
        ]
        assert found == CAPTURE.messages[first or 0 :]


def test_mapped_bytes_are_decoded_where_they_lie(tmp_path: Path) -> None:
    value = "x" * 1000
    inserts = [insert(1, str(number), value, None) for number in range(3000)]
    with log.LogWriter(tmp_path, SOURCE, compression=None) as writer:
        append(writer, wire(transaction(T, *inserts, lsn=100)))
    [partition] = log.Log(tmp_path).plan().partitions
    before = pa.total_allocated_bytes()
    [batch] = partition.decode()
    assert len(batch) == 3000
    assert pa.total_allocated_bytes() - before < 100_000
    assert batch.new["v"].buffer.nbytes > 3_000_000
    assert not batch.new["v"].buffer.flags.writeable


def test_many_small_batches_are_decoded_together(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for number in range(40):
            append(writer, wire(transaction(T, insert(1, "1", "a", None), lsn=100 + number)))
            writer.flush()
    assert [len(batch) for batch in log.Log(tmp_path).read()] == [40]


@pytest.mark.parametrize("place", ["0/64", 1.5, b"x"])
def test_no_place(place: Any, tmp_path: Path) -> None:
    write(CAPTURE, tmp_path)
    for ask in (
        lambda: log.Log(tmp_path).plan(place),
        lambda: log.Log(tmp_path).plan(0, place),
        lambda: log.prune(tmp_path, place),
    ):
        with pytest.raises(TypeError, match="must be a commit LSN as a number or a LogPosition"):
            ask()


def test_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(log.LogError, match=r"is not a log: .* — hint: Capture into it first"):
            log.Log(directory)


def test_a_log_with_nothing_in_it(tmp_path: Path) -> None:
    log.LogWriter(tmp_path, SOURCE).close()
    reader = log.Log(tmp_path)
    assert (len(reader), reader.segments, reader.versions) == (0, [], ())
    assert (reader.begin, reader.end, reader.confirm_lsn) == ((0, 0), (0, 0), 0)
    assert reader.source == SOURCE
    assert reader.plan().partitions == []
    assert list(reader.read()) == list(reader.changes()) == list(reader.messages()) == []


def test_a_segment_that_is_missing(tmp_path: Path) -> None:
    write(CAPTURE, tmp_path, [20, 40])
    first, second, third = sorted(tmp_path.glob("*.arrow"))
    for path in (second, second.with_suffix(".json")):
        path.rename(path.with_suffix(path.suffix + ".away"))
    with pytest.raises(log.LogError, match=f"{second.name} is missing"):
        list(log.Log(tmp_path).read())
    for path in (second, second.with_suffix(".json")):
        path.with_suffix(path.suffix + ".away").rename(path)
    plan = log.Log(tmp_path).plan()
    third.with_suffix(".json").unlink()
    third.unlink()
    with pytest.raises(log.LogError, match=f"{third.name} is missing.* ends before ordinal 40"):
        _ = log.Log(tmp_path).end
    with pytest.raises(log.LogError, match=f"{third.name} is missing"):
        log.LogWriter(tmp_path, SOURCE)
    first.unlink()
    with pytest.raises(
        log.LogError, match=f"{first.name} is missing — hint: If the log was pruned"
    ):
        list(plan.partitions[0].decode())


def test_damage_of_values_cannot_lead_out_of_the_file(tmp_path: Path) -> None:
    """Offsets are checked before anything is read by them, whatever the checksum says."""
    write(CAPTURE, tmp_path)
    [path] = tmp_path.glob("*.arrow")
    [part] = log.Log(tmp_path).segments[0].parts
    content = path.read_bytes()
    start = content.index(CAPTURE.messages[0])
    wrong = bytearray(content)
    wrong[start - 40 : start] = b"\x7f" * 40  # the last of the messages' offsets
    path.write_bytes(wrong)
    with pytest.raises(log.LogError, match=r"is damaged: the checksum of its bytes"):
        list(log.Log(tmp_path).read())
    data = bytes(wrong[part.extent.offset : part.extent.stop])
    with pytest.raises(log.LogError, match=r"is damaged: invalid record batch at byte \d+"):
        list(read_batches(pa.py_buffer(data), part.extent.offset, path.name, "differences"))


def test_a_protocol_violation_is_told(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        append(writer, [*MESSAGES, MESSAGES[-1], *wire(transaction(lsn=300))])
    with pytest.raises(pgc.DecodeError, match=r"protocol: .*Commit after a Begin"):
        list(log.Log(tmp_path).read())
    [batch] = log.Log(tmp_path).read(on_error="skip")
    assert len(batch) == 1


class TestSmallBatches:
    """Frequent flushes write small record batches, which are read as larger ones."""

    def test_are_combined(self, tmp_path: Path) -> None:
        sent = [wire(transaction(T, insert(k, "k", None), lsn=100 + 100 * k)) for k in range(200)]
        for folder in ("sealed", "killed"):
            with suppress(KeyError), log.LogWriter(tmp_path / folder, SOURCE, part_bytes=3000) as w:
                for new in sent:
                    append(w, new)
                    w.flush()
                assert_batches(log.Log(tmp_path / folder), sent, 1)
                if folder == "killed":
                    raise KeyError
        log.LogWriter(tmp_path / "killed", SOURCE, part_bytes=3000).close()
        sealed, killed = (log.Log(tmp_path / folder).segment(0) for folder in ("sealed", "killed"))
        # A part ends where the writer ended it, in whatever batches its messages are read.
        assert len(sealed.parts) > 3
        assert [part.messages for part in sealed.parts] == [part.messages for part in killed.parts]
        assert [part.summary for part in sealed.parts] == [part.summary for part in killed.parts]
        for folder in ("sealed", "killed"):
            assert_batches(log.Log(tmp_path / folder), sent, len(sealed.parts))


def assert_batches(found: log.Log, sent: list[list[bytes]], count: int) -> None:
    batches = list(found.messages())
    assert [each for batch in batches for each in batch["data"].to_pylist()] == [
        message for new in sent for message in new
    ]
    ordinals = [each for batch in batches for each in batch["ordinal"].to_pylist()]
    assert ordinals == list(range(sum(map(len, sent))))
    assert len(batches) == count


@pytest.mark.usefixtures("small_index")
def test_a_reader_that_runs_for_long_keeps_the_newest_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_segments, "_KEPT", 4)
    of_others = segments_in_memory()
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, MESSAGES)
        writer.seal()
        store = open_store(tmp_path)
        sealed = SealedSegments(store, read_directory(store))
        for number in range(20):
            append(writer, wire(transaction(insert(1, "1", "a", None), lsn=300 + number)))
            writer.seal()
            sealed.update(read_directory(store))
            assert len(sealed.index) == number + 2
            assert sealed[-1].end_ordinal == writer.end_ordinal
    assert len(sealed.rows_without_file()) < 3
    sealed.update(read_directory(store))
    others = set(map(id, of_others))
    kept = {each.name for each in segments_in_memory() if id(each) not in others}
    assert 1 < len(kept) <= 4
    assert [sealed[number].first_ordinal for number in (0, 1)] == [0, len(MESSAGES)]


def segments_in_memory() -> list[Segment]:
    gc.collect()
    return [each for each in gc.get_referrers(Segment) if isinstance(each, Segment)]
