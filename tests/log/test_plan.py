"""However a log is cut into parts and ranges, the changes are those of one serial pass."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from tests.support import corpus
from tests.support.build import T, insert, transaction, wire
from tests.support.examples import examples, in_turn
from tests.support.logs import SOURCE, append, commit_lsns, memory, no_appends, write
from tests.transactions.test_splits import DENSE, LARGE, restarts, rows, serial, transactions

#: Sessions break off in them.
BROKEN = corpus.captures("immediate", major=18)
#: Message bytes: a message a part, a few, many, everything.
PART_BYTES = [1, 300, 5000, 1 << 24]


def check(reader: log.Log, capture: corpus.Capture, **options: Any) -> None:
    """Every partition by itself, in any order, as another process would decode it."""
    plan = pickle.loads(pickle.dumps(reader.plan(**options)))
    batches = [batch for each in reversed(plan.partitions) for batch in each.decode()]
    assert rows([batches]) == serial(capture)[0]
    told = {batch.version for batch in batches}
    assert told <= set(plan.versions)


def captures() -> Iterator[object]:
    quick = corpus.oldest_and_newest().__contains__
    large = corpus.captures("streams")
    others = [each for each in corpus.captures() if each not in DENSE and each not in large]
    sizes = [(size,) for size in PART_BYTES]
    yield from in_turn(DENSE, sizes, quick=quick)
    yield from in_turn(others, sizes[2:], quick=quick)
    yield from in_turn(large, sizes[2:], quick=quick, marks=[pytest.mark.slow])


@pytest.mark.parametrize(("capture", "part_bytes"), list(captures()), ids=str)
def test_every_capture_as_a_log(capture: corpus.Capture, part_bytes: int, tmp_path: Path) -> None:
    filesystem = no_appends(tmp_path)
    middle = [len(capture.messages) // 3, len(capture.messages) // 2]
    reader = write(capture, "log", middle, part_bytes=part_bytes, filesystem=filesystem)
    check(reader, capture, max_partition_bytes=1)
    check(reader, capture)


@pytest.mark.parametrize("capture", list(in_turn(DENSE, [()], quick=corpus.is_newest)), ids=str)
def test_the_whole_log_in_order(capture: corpus.Capture, tmp_path: Path) -> None:
    reader = write(capture, tmp_path, [7], part_bytes=500)
    changes = list(reader.changes())
    expected_rows, expected_transactions, expected_messages, _ = serial(capture)
    assert rows(changes) == expected_rows
    assert transactions(changes) == expected_transactions
    assert [each for one in changes for each in one.logical_messages] == expected_messages
    assert rows([list(reader.read())]) == expected_rows
    assert reader.end == (len(capture.messages), expected_transactions[-1][1])
    assert reader.begin == (0, 0)


@cache
def _written(capture: corpus.Capture, part_bytes: int, seals: tuple[int, ...]) -> log.Log:
    return write(capture, "log", seals, part_bytes=part_bytes, filesystem=memory())


def _bounds(capture: corpus.Capture) -> st.SearchStrategy[list[int]]:
    """Places to cut the commit LSNs at: on them, and beside them."""
    lsn = st.sampled_from(commit_lsns(capture))
    return st.lists(st.builds(lambda at, by: at + by, lsn, st.integers(-1, 1)), max_size=6)


def _check_ranges(reader: log.Log, capture: corpus.Capture, bounds: list[int]) -> None:
    found = []
    edges: list[int | None] = [None, *sorted(bounds), None]
    for after, until in itertools.pairwise(edges):
        each = rows([list(reader.read(after=after, until=until))])
        assert all((after or 0) < row[0] and (until is None or row[0] <= until) for row in each)
        found += each
    assert found == serial(capture)[0]


@pytest.mark.slow
@examples(15, 80)
def test_consecutive_ranges_give_every_change_once(examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def check_one(data: st.DataObject) -> None:
        capture = data.draw(st.sampled_from(DENSE))
        part_bytes = data.draw(st.sampled_from(PART_BYTES))
        count = len(capture.messages)
        seals = data.draw(st.lists(st.integers(1, count - 1), max_size=4, unique=True).map(sorted))
        reader = _written(capture, part_bytes, tuple(seals))
        _check_ranges(reader, capture, data.draw(_bounds(capture)))

    check_one()


@pytest.mark.slow
@pytest.mark.parametrize(
    "capture",
    list(
        in_turn(
            [each for each in DENSE if each.scenario == "immediate"],
            [()],
            quick=corpus.is_newest,
        )
    ),
    ids=str,
)
def test_a_range_for_each_transaction(capture: corpus.Capture) -> None:
    """Above all for streamed and prepared transactions: their chunks are before the range."""
    _check_ranges(_written(capture, 1, (30, 60)), capture, commit_lsns(capture))


@pytest.mark.slow
@pytest.mark.parametrize("capture", LARGE, ids=str)
def test_ranges_of_large_captures(capture: corpus.Capture) -> None:
    count = len(capture.messages)
    reader = _written(capture, 20_000, tuple(count * n // 5 for n in range(1, 5)))
    lsns = commit_lsns(capture)
    _check_ranges(reader, capture, lsns[:: max(len(lsns) // 10, 1)])


def test_only_parts_with_changes_of_the_range_are_read(tmp_path: Path) -> None:
    """A transaction was prepared long ago: parts of a message each show what is read of it."""
    prepared = [
        pgc.BeginPrepare(10, 11, 0, 5, "g"),
        T,
        insert(1, "1", "prepared", None),
        pgc.Prepare(0, 10, 11, 0, 5, "g"),
    ]
    between = [
        message
        for lsn in range(100, 200, 10)
        for message in transaction(insert(1, "2", "plain", None), xid=lsn, lsn=lsn)
    ]
    ending = [pgc.CommitPrepared(0, 300, 301, 0, 5, "g")]
    messages = wire([*prepared, *between, *ending])
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        append(writer, messages)
    plan = log.Log(tmp_path).plan(after=190)
    assert [(each.first_ordinal, each.messages) for each in plan.partitions] == [
        (2, 1),
        (len(messages) - 1, 1),
    ]
    [batch] = [batch for each in plan.partitions for batch in each.decode()]
    assert batch.new["v"].to_pylist() == ["prepared"]
    plan = log.Log(tmp_path).plan(after=0, until=300, max_partition_bytes=1 << 30)
    assert [each.messages for each in plan.partitions] == [len(messages)]


def test_a_range_with_nothing_in_it(tmp_path: Path) -> None:
    capture = DENSE[0]
    reader = write(capture, tmp_path)
    last = commit_lsns(capture)[-1]
    for after, until in ((last, None), (reader.end, None), (last + 5, last + 9), (7, 7)):
        plan = reader.plan(after, until)
        assert plan.partitions == []
    assert set(reader.plan(last).versions) <= set(reader.versions)
    assert reader.plan(last).versions
    with pytest.raises(pgc.OptionError, match="after must be a commit LSN"):
        reader.plan(-1)


@pytest.mark.slow
@examples(12, 60)
def test_sessions_that_break_off_and_begin_again(examples: int) -> None:
    """The server resumes at the last confirmed position, perhaps several times."""

    @settings(max_examples=examples)
    @given(data=st.data())
    def check_one(data: st.DataObject) -> None:
        capture = data.draw(st.sampled_from(BROKEN))
        filesystem = memory()
        part_bytes = data.draw(st.sampled_from([60, 300, 5000]))
        again = 0
        with log.LogWriter("log", SOURCE, part_bytes=part_bytes, filesystem=filesystem) as writer:
            for _ in range(data.draw(st.integers(1, 3))):
                broken = data.draw(st.integers(again, len(capture.messages)))
                append(writer, _session(capture, again, broken))
                writer.new_session()
                again = data.draw(st.sampled_from([at for at in restarts(capture) if at <= broken]))
            append(writer, _session(capture, again, len(capture.messages)))
        reader = log.Log("log", filesystem=filesystem)
        expected = [(*row[:6], 0, *row[7:]) for row in serial(capture)[0]]  # without LSNs
        assert rows(reader.changes()) == expected
        assert rows([list(reader.read())]) == expected
        bounds = [None, *sorted(data.draw(_bounds(capture))), None]
        ranges = itertools.pairwise(bounds)
        found = [rows([list(reader.read(after=a, until=u))]) for a, u in ranges]
        assert [row for each in found for row in each] == expected
        assert [segment.header.session for segment in reader.segments] == sorted(
            segment.header.session for segment in reader.segments
        )

    check_one()


def _session(capture: corpus.Capture, start: int, stop: int) -> list[bytes]:
    """Return the messages of a session from there on: the server sends the Relations again."""
    relations = [pgc.encode_message(each) for each in restarts(capture)[start]]
    return relations + capture.messages[start:stop]
