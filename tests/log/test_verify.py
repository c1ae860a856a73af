"""verify finds every wrong byte; prune takes nothing that is needed; statistics count."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log.sidecar import segment_from_bytes, segment_to_bytes
from tests.support import corpus
from tests.support.build import T, insert, transaction, wire
from tests.support.examples import examples, in_turn
from tests.support.logs import SOURCE, append, commit_lsns, memory, write
from tests.transactions.test_splits import DENSE, rows, serial

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
MESSAGES = wire([*transaction(T, insert(1, "1", "a", None), lsn=100), *transaction(lsn=200)])


@pytest.mark.parametrize("capture", DENSE, ids=str)
def test_a_sound_log(capture: corpus.Capture) -> None:
    filesystem = memory()
    count = len(capture.messages)
    reader = write(capture, "log", [count // 4, count // 2], part_bytes=3000, filesystem=filesystem)
    report = log.verify("log", filesystem=filesystem)
    assert report.damage == ()
    assert report.is_sound
    assert (report.segments, report.messages) == (3, count)
    assert report.bytes == sum(segment.bytes for segment in reader.segments)


def small(directory: Path) -> None:
    """A log of two sealed segments and one that grows, as small as can be."""
    with log.LogWriter(directory, SOURCE, part_bytes=100) as writer:
        append(writer, MESSAGES)
        writer.seal()
        append(writer, wire(transaction(insert(1, "2", "b", None), lsn=300)))
        writer.new_session()
        append(writer, wire(transaction(T, insert(1, "3", "c", None), lsn=400)))
        writer.flush()
        for path in directory.iterdir():
            (directory.parent / path.name).write_bytes(path.read_bytes())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A log whose writer is gone."""
    small(tmp_path / "original")
    return tmp_path


def test_a_growing_log_is_sound(copy: Path) -> None:
    assert log.verify(copy).damage == ()
    assert log.verify(copy).segments == 3


@pytest.mark.slow
@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.thorough)])
def test_any_flipped_byte_is_found(one_in: int, copy: Path) -> None:
    names = sorted(path.name for path in copy.iterdir() if path.suffix in (".arrow", ".json"))
    assert len(names) == 7
    for name in names:
        content = (copy / name).read_bytes()
        step = one_in * (1 if len(content) < 1500 else 23)
        for place in range(0, len(content), step):
            wrong = bytearray(content)
            wrong[place] ^= 0x10
            (copy / name).write_bytes(wrong)
            report = log.verify(copy)
            assert [damage.file for damage in report.damage][:1] == [name], (name, place)
            offset = report.damage[0].offset
            assert offset is None or offset <= place
        (copy / name).write_bytes(content)
    assert log.verify(copy).is_sound


def test_where_the_damage_is(copy: Path) -> None:
    path = copy / f"{0:020}.arrow"
    content = bytearray(path.read_bytes())
    part = log.Log(copy).segments[0].parts[1]
    content[part.extent.offset + part.extent.length // 2] ^= 1
    path.write_bytes(content)
    [damage] = log.verify(copy).damage
    assert (damage.file, damage.offset) == (path.name, part.extent.offset)
    reason = f"the {part.extent.length} bytes from here on do not have their checksum"
    assert str(damage) == f"{path.name}, byte {part.extent.offset}: {reason}"


@pytest.mark.parametrize("cut", [1, 8, 9, 300])
def test_a_cut_file(copy: Path, cut: int) -> None:
    path = copy / f"{0:020}.arrow"
    path.write_bytes(path.read_bytes()[:-cut])
    [damage] = log.verify(copy).damage
    assert damage.file == path.name
    path.write_bytes(path.read_bytes() + bytes(cut + 5))
    [damage] = log.verify(copy).damage
    assert damage.file == path.name


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("commits", lambda value: value - 1),
        ("delivered_lsn", lambda value: value + 1),
        ("first_time", lambda value: value + 1),
        ("last_commit_lsn", lambda value: None),
        ("message_bytes", lambda value: 0),
        ("tables", lambda value: ()),
        ("versions", lambda value: ()),
        ("opened", lambda value: {("plain", 0): 0}),
        ("parts", lambda value: (*value[:-1], replace(value[-1], delivered_lsn=1))),
        ("parts", lambda value: (*value[:-1], replace(value[-1], message_bytes=1))),
        (
            "parts",
            lambda value: (
                replace(
                    value[0],
                    summary=replace(
                        pgc.summarise(MESSAGES[1:2], new_session=True), messages=value[0].messages
                    ),
                ),
                *value[1:],
            ),
        ),
    ],
)
def test_a_sidecar_that_says_something_else(copy: Path, field: str, change: Any) -> None:
    """The checksums are right, but the content does not match the messages."""
    path = copy / f"{0:020}.json"
    segment = segment_from_bytes(path.read_bytes(), path.name)
    told = replace(segment, **{field: change(getattr(segment, field))})
    path.write_bytes(segment_to_bytes(told))
    damage = log.verify(copy).damage[0]
    assert (damage.file, damage.offset) == (path.name, None)
    assert damage.reason.startswith(f"{field} does not match the messages")


def test_a_sidecar_whose_parts_do_not_make_a_segment(copy: Path) -> None:
    path = copy / f"{0:020}.json"
    segment = segment_from_bytes(path.read_bytes(), path.name)
    first, second = segment.parts[:2]
    for wrong in (
        replace(segment, messages=segment.messages + 1),
        replace(segment, parts=segment.parts[1:]),
        replace(segment, parts=(first, replace(second, first_ordinal=0), *segment.parts[2:])),
        replace(segment, bytes=10),
    ):
        path.write_bytes(segment_to_bytes(wrong))
        damage = log.verify(copy).damage[0]
        assert (damage.file, damage.offset) == (path.name, None)
        assert "has invalid content: " in damage.reason
        with pytest.raises(log.LogError, match="has invalid content"):
            list(log.Log(copy).read())


def test_a_state_that_is_not_what_came_before(copy: Path) -> None:
    with_, of = (copy / f"{n:020}" for n in (0, len(MESSAGES)))
    segment = segment_from_bytes(of.with_suffix(".json").read_bytes(), "sidecar")
    carry = segment.header.before.carry.copy()
    carry.delivered_lsn += 1
    header = replace(segment.header, before=replace(segment.header.before, carry=carry))
    of.with_suffix(".json").write_bytes(segment_to_bytes(replace(segment, header=header)))
    assert with_.with_suffix(".json").exists()
    damage = log.verify(copy).damage[0]
    assert damage.file == f"{of.name}.json"
    assert "its state before the first message does not match" in damage.reason


def test_missing_segments(copy: Path) -> None:
    middle = copy / f"{len(MESSAGES):020}"
    kept = {name: middle.with_suffix(name).read_bytes() for name in (".json", ".arrow")}
    for suffix in kept:
        middle.with_suffix(suffix).unlink()
    [damage] = log.verify(copy).damage
    assert "messages from ordinal 6 to 8 are missing" in damage.reason
    for suffix, content in kept.items():
        middle.with_suffix(suffix).write_bytes(content)
    with log.LogWriter(copy, SOURCE):
        pass
    for path in copy.glob(f"{9:020}.*"):
        path.unlink()
    [damage] = log.verify(copy).damage
    assert damage.file == f"{9:020}.arrow"
    assert "but had messages up to ordinal 12" in damage.reason
    with pytest.raises(log.LogError, match="is not a log"):
        log.verify(copy / "nowhere")


def test_messages_that_do_not_decode(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        append(writer, [*MESSAGES, b"?"])
    [damage] = log.verify(tmp_path).damage
    assert damage.offset == log.Log(tmp_path).segments[0].parts[-1].extent.offset
    assert f"message {len(MESSAGES)}: unknown_tag" in damage.reason


# prune


def pruned(capture: corpus.Capture, seals: list[int], before: int) -> tuple[Any, list[str]]:
    filesystem = memory()
    write(capture, "log", seals, part_bytes=500, filesystem=filesystem)
    removed = log.prune("log", before, filesystem=filesystem)
    return filesystem, removed


@pytest.mark.slow
@examples(12, 80)
def test_what_is_behind_stays_readable(examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        capture = data.draw(st.sampled_from(corpus.captures("immediate", major=18)))
        count = len(capture.messages)
        seals = data.draw(st.lists(st.integers(1, count - 1), unique=True, max_size=25).map(sorted))
        before = data.draw(st.sampled_from([0, *commit_lsns(capture), 2**63]))
        filesystem, removed = pruned(capture, seals, before)
        reader = log.Log("log", filesystem=filesystem)
        assert len(removed) == len(seals) + 1 - len(reader)
        whole = serial(capture)[0]
        later = [row for row in whole if row[0] > before]
        if before < reader.end.lsn:
            assert reader.begin.lsn <= before
            assert rows([list(reader.read(after=before))]) == later
            assert rows([list(reader.read())]) == [
                row for row in whole if row[0] > reader.begin.lsn
            ]
        assert rows(reader.changes()) == [row for row in whole if row[0] > reader.begin.lsn]
        if reader.begin.lsn:
            with pytest.raises(log.LogError, match="cannot read transactions that commit after"):
                reader.plan(reader.begin.lsn - 1)
        if reader.begin.ordinal:
            with pytest.raises(log.LogError, match="cannot read messages from ordinal 0 on"):
                next(reader.messages(0))
        assert log.verify("log", filesystem=filesystem).is_sound
        # As much as can be: the next segment holds what is needed.
        if len(reader) > 1 and before < 2**62:
            assert log.prune("log", before, filesystem=filesystem) == []

    check()


def test_open_transactions_keep_their_segments(tmp_path: Path) -> None:
    prepared = [pgc.BeginPrepare(10, 11, 0, 5, "g"), T, insert(1, "1", "prepared", None)]
    prepared.append(pgc.Prepare(0, 10, 11, 0, 5, "g"))
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire(transaction(lsn=50)))
        writer.seal()
        append(writer, wire(prepared))
        writer.seal()
        for lsn in (100, 200, 300):
            append(writer, wire(transaction(insert(1, "2", "plain", None), lsn=lsn)))
            writer.seal()
        assert log.prune(tmp_path, 300) == [f"{0:020}.arrow"]
        assert log.prune(tmp_path, 300) == []
        append(writer, wire([pgc.CommitPrepared(0, 400, 401, 0, 5, "g")]))
        writer.flush()
        assert log.prune(tmp_path, 399) == []
        assert [len(batch) for batch in log.Log(tmp_path).read(after=300)] == [1]
        # Not the growing one, nor the last that is sealed.
        assert log.prune(tmp_path, 400) == [f"{n:020}.arrow" for n in (2, 6, 9)]
        assert log.Log(tmp_path).begin == (12, 400)
        assert list(log.Log(tmp_path).read()) == []
        append(writer, wire(transaction(insert(1, "3", "later", None), lsn=500)))
    [batch] = log.Log(tmp_path).read()
    assert batch.new["v"].to_pylist() == ["later"]
    assert sorted(path.suffix for path in tmp_path.glob("0*")) == [".arrow"] * 2 + [".json"] * 2
    with pytest.raises(pgc.OptionError, match="before_lsn"):
        log.prune(tmp_path, -1)


def test_a_crash_while_pruning_leaves_a_log(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for lsn in (100, 200, 300):
            append(writer, wire(transaction(T, insert(1, "2", "plain", None), lsn=lsn)))
            writer.seal()
    removed = mock.patch.object(Path, "unlink", side_effect=RuntimeError)
    with removed, pytest.raises(RuntimeError):
        log.prune(tmp_path, 100)
    assert (tmp_path / f"{0:020}.json").exists()  # nothing was removed, and yet it is pruned
    reader = log.Log(tmp_path)
    assert reader.begin == (4, 100)
    assert [batch.commit_lsn.tolist() for batch in reader.read()] == [[200], [300]]
    assert log.verify(tmp_path).is_sound
    log.LogWriter(tmp_path, SOURCE).close()
    assert not (tmp_path / f"{0:020}.arrow").exists()
    assert not (tmp_path / f"{0:020}.json").exists()


# statistics


@pytest.mark.parametrize("capture", DENSE, ids=str)
def test_statistics(capture: corpus.Capture) -> None:
    filesystem = memory()
    count = len(capture.messages)
    reader = write(capture, "log", [count // 3], part_bytes=3000, filesystem=filesystem)
    found = log.statistics("log", filesystem=filesystem)
    decoder = pgc.Decoder()
    changes = decoder.decode(capture.messages)
    kinds = Counter(message[:1] for message in capture.messages)
    assert found.messages == count
    assert found.message_bytes == sum(map(len, capture.messages))
    assert found.bytes == sum(each.bytes for each in reader.segments)
    assert found.commits == kinds[b"C"] + kinds[b"c"] + kinds[b"K"] == len(changes.transactions)
    assert (found.begin, found.end) == (reader.begin, reader.end)
    assert found.first_commit_lsn == changes.transactions.commit_lsn[0]
    assert found.last_commit_lsn == changes.transactions.commit_lsn[-1]
    assert sum(each.inserts for each in found.sent) == kinds[b"I"]
    assert sum(each.updates for each in found.sent) == kinds[b"U"]
    assert sum(each.deletes for each in found.sent) == kinds[b"D"]
    rows = sum(len(message) for message in capture.messages if message[:1] in b"IUD")
    assert sum(each.bytes for each in found.sent) == rows
    names = {batch.version.qualified_name for batch in changes}
    assert names <= {each.table for each in found.sent}
    assert sorted(each.xid for each in found.open) == decoder.pending
    assert (found.segments, found.sessions, found.snapshot_segments) == (2, 1, 0)


def delivered(folder: Path) -> int:
    """How many changes readers of a log get."""
    return sum(len(batch) for changes in log.Log(folder).changes() for batch in changes)


@pytest.mark.slow
@pytest.mark.parametrize("capture", list(in_turn(DENSE, [()], quick=corpus.is_newest)), ids=str)
def test_changes(capture: corpus.Capture, tmp_path: Path) -> None:
    """Those that are committed are those that readers get, whatever a later session repeats."""
    count = len(capture.messages)
    for cut, part_bytes in ((count // 2, 3000), (count - 1, 1 << 20)):
        folder = tmp_path / str(cut)
        with log.LogWriter(folder, SOURCE, part_bytes=part_bytes) as writer:
            append(writer, capture.messages[:cut])
            writer.new_session()
            append(writer, capture.messages)
        found = log.statistics(folder)
        alone = tmp_path / f"{cut} alone"
        with log.LogWriter(alone, SOURCE, part_bytes=part_bytes) as writer:
            append(writer, capture.messages)
        once = log.statistics(alone)
        changes = found.changes
        assert changes.committed == once.changes.committed == delivered(folder)
        assert once.changes.repeated == 0
        assert changes.repeated >= 0
        rest = changes.committed + changes.rolled_back + changes.repeated + changes.open
        assert changes.sent == rest
        assert changes.sent == sum(
            each.inserts + each.updates + each.deletes + each.truncates for each in found.sent
        )
        assert log.verify(folder).is_sound


def test_changes_of_each_kind(tmp_path: Path) -> None:
    def rows(count: int, xid: int | None = None) -> list[pgc.messages.LogicalMessage]:
        return [insert(1, str(key), "x", None, xid=xid) for key in range(count)]

    def plain(lsn: int, count: int) -> list[pgc.messages.LogicalMessage]:
        return [pgc.Begin(lsn, 0, lsn), *rows(count), pgc.Commit(0, lsn, lsn + 1, 0)]

    first = [
        pgc.Begin(100, 0, 5), T, *rows(3), pgc.Commit(0, 100, 101, 0),
        pgc.StreamStart(6, True), replace(T, xid=6), *rows(2, 6), *rows(4, 7), pgc.StreamStop(),
        pgc.StreamAbort(6, 7, None, None),
        pgc.StreamStart(8, True), *rows(5, 8), pgc.StreamStop(), pgc.StreamAbort(8, 8, None, None),
        pgc.BeginPrepare(110, 111, 0, 9, "g"), *rows(6), pgc.Prepare(0, 110, 111, 0, 9, "g"),
        pgc.RollbackPrepared(0, 111, 112, 0, 0, 9, "g"),
        *plain(120, 7),
        pgc.Begin(200, 0, 10), *rows(8),
    ]  # fmt: skip
    second = [
        *plain(120, 7),
        *plain(200, 9),
        pgc.StreamStart(11, True), replace(T, xid=11), *rows(10, 11), pgc.StreamStop(),
    ]  # fmt: skip
    for part_bytes in (1, 1 << 20):
        folder = tmp_path / str(part_bytes)
        with log.LogWriter(folder, SOURCE, part_bytes=part_bytes) as writer:
            append(writer, wire(first))
            writer.new_session()
            append(writer, wire(second))
        # The stream of transaction 6, of which 2 changes hold, was cut off with its session.
        assert log.statistics(folder).changes == log.ChangeCounts(
            sent=61, committed=19, rolled_back=4 + 5 + 6, repeated=7 + 8 + 2, open=10
        )
        assert delivered(folder) == 19


def test_statistics_of_what_is_open(tmp_path: Path) -> None:
    opened = [
        pgc.BeginPrepare(10, 11, 0, 5, "g"),
        T,
        insert(1, "1", "prepared", None),
        pgc.Prepare(0, 10, 11, 0, 5, "g"),
        pgc.StreamStart(6, True),
        replace(T, xid=6),
        insert(1, "2", "streamed", None, xid=6),
        insert(1, "3", "streamed", None, xid=6),
        pgc.StreamStop(),
        pgc.Begin(300, 0, 8),
    ]
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        append(writer, wire(opened))
        writer.flush(confirm_lsn=77)
        writer.seal()  # the growing segment is not described part by part
        found = log.statistics(tmp_path)
    assert found.confirm_lsn == 77
    assert set(found.open) == {
        log.OpenStatistics("prepared", 5, "g", 1, 0),
        log.OpenStatistics("stream", 6, None, 2, 4),
        log.OpenStatistics("plain", 8, None, 0, 9),
    }
    assert json.dumps([each.kind for each in found.open])
