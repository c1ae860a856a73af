"""A call that raises leaves no trace: the decoder is as it was, and goes on as if never called."""

from __future__ import annotations

import copy
import linecache
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import decoder as decoder_module
from pgwire_codec.decoder import SessionState
from tests.support import corpus
from tests.support.build import T, column, insert, relation, streamed, transaction, truncate, wire
from tests.support.examples import examples
from tests.support.wrong import UNKNOWN_TAG
from tests.transactions.test_splits import rows, transactions

#: The code that changes the state.
STATEFUL = tuple(str(Path(pgc.__file__).with_name(name)) for name in ("decoder.py", "transactions"))

#: Captures in which transactions of every kind are open between two messages.
CAPTURES = [
    each
    for each in corpus.oldest_and_newest()
    if (each.scenario, each.options)
    in {
        ("immediate", "v2-stream"),
        ("immediate", "v4-parallel-2pc"),
        ("traps", "v4-parallel-2pc"),
        ("dml", "v1-text"),
    }
]


def state(decoder: Any) -> SessionState:
    return decoder._session.copy()  # type: ignore[no-any-return]


def assert_same(state: SessionState, before: SessionState) -> None:
    """Check that carry and held changes are the same: the changes themselves, not equal ones."""
    assert state.carry == before.carry
    assert set(state.held) == set(before.held)
    for key, held in before.held.items():
        chunks = state.held[key].chunks
        assert list(map(id, chunks)) == list(map(id, held.chunks))
        assert state.held[key].messages == held.messages


def delivered(changes: list[pgc.Changes]) -> Any:
    messages = [message for each in changes for message in each.logical_messages]
    return rows(changes), transactions(changes), messages


# An error at each message.


@pytest.mark.parametrize("capture", CAPTURES, ids=str)
@settings(max_examples=3)
@given(random=st.randoms(use_true_random=False))
def test_after_each_message_of_a_capture(capture: corpus.Capture, random: Any) -> None:
    """Each call is first made with a wrong message after some of its messages."""
    atomic = random.choice([True, False])
    decoder, fresh = pgc.Decoder(atomic=atomic), pgc.Decoder(atomic=atomic)
    found, expected = [], []
    start = 0
    while start < len(capture.messages):
        stop = start + random.choice([1, 1, 1, 2, 5, 30])
        messages = capture.messages[start:stop]
        before = state(decoder)
        ahead = capture.messages[start : start + random.choice([0, 1, 3, 200])]
        with pytest.raises(pgc.DecodeError):
            decoder.decode([*ahead, UNKNOWN_TAG])
        assert_same(state(decoder), before)
        found.append(decoder.decode(messages))
        expected.append(fresh.decode(messages))
        start = stop
    assert delivered(found) == delivered(expected)
    assert decoder.carry == fresh.carry


XIDS = st.sampled_from([5, 6, 7])
GIDS = st.sampled_from(["g", "h"])

#: Messages, as far as the place where they come allows. They take whether that is in a stream
#: block, and an LSN.
Make = Callable[[bool, int], Any]

#: With the xid where it is in a stream block.
DECLARED: dict[str, Callable[[int | None], Any]] = {
    "relation": lambda xid: relation(1, *T.columns, xid=xid),
    "version": lambda xid: relation(1, column("id", "int4", key=True), xid=xid),
    "renamed": lambda xid: relation(1, *T.columns, name="renamed", xid=xid),
    "other": lambda xid: relation(2, *T.columns, xid=xid),
    "type": lambda xid: pgc.Type(xid, 90_000, "public", "mood"),
    "insert": lambda xid: insert(1, "1", "a", None, xid=xid),
    "insert into other": lambda xid: insert(2, "1", "a", None, xid=xid),
    "truncate": lambda xid: truncate(1, xid=xid),
    "message": lambda xid: pgc.Message(xid, 1, 5, "p", b"x"),
}

#: With the xid of a transaction, the gid that it gets, a subtransaction and an LSN.
CONTROL: dict[str, Callable[[int, str, int, int], Any]] = {
    "begin": lambda xid, gid, sub, lsn: pgc.Begin(lsn, 0, xid),
    "commit": lambda xid, gid, sub, lsn: pgc.Commit(0, lsn, lsn + 1, 0),
    "origin": lambda xid, gid, sub, lsn: pgc.Origin(5, "o"),
    "begin prepare": lambda xid, gid, sub, lsn: pgc.BeginPrepare(lsn, lsn, 0, xid, gid),
    "prepare": lambda xid, gid, sub, lsn: pgc.Prepare(0, lsn, lsn, 0, xid, gid),
    "commit prepared": lambda xid, gid, sub, lsn: pgc.CommitPrepared(0, lsn, lsn, 0, xid, gid),
    "rollback prepared": lambda xid, gid, sub, lsn: pgc.RollbackPrepared(
        0, lsn, lsn, 0, 0, xid, gid
    ),
    "first block": lambda xid, gid, sub, lsn: pgc.StreamStart(xid, True),
    "block": lambda xid, gid, sub, lsn: pgc.StreamStart(xid, False),
    "stop": lambda xid, gid, sub, lsn: pgc.StreamStop(),
    "stream commit": lambda xid, gid, sub, lsn: pgc.StreamCommit(xid, 0, lsn, lsn, 0),
    "stream abort": lambda xid, gid, sub, lsn: pgc.StreamAbort(xid, xid, None, None),
    "savepoint": lambda xid, gid, sub, lsn: pgc.StreamAbort(xid, sub, None, None),
    "stream prepare": lambda xid, gid, sub, lsn: pgc.StreamPrepare(0, lsn, lsn, 0, xid, gid),
}

STEPS = st.tuples(
    st.sampled_from([*DECLARED, *DECLARED, *CONTROL]),
    XIDS,
    GIDS,
    st.sampled_from([10, 11, 12, 13]),
)

#: Calls: steps, and how many tenths of them come before a wrong message in a call that fails.
CALLS = st.lists(st.lists(STEPS, min_size=1, max_size=6), min_size=5, max_size=40)


def made(steps: list[tuple[str, int, str, int]], in_block: bool, lsn: int) -> list[bytes]:
    messages: list[Any] = []
    for name, xid, gid, sub in steps:
        if name in DECLARED:
            messages.append(DECLARED[name](sub if in_block else None))
            continue
        # The LSN of a Begin is the next Commit's, and the one after that is later.
        lsn += name in ("begin", "stream commit", "commit prepared")
        messages.append(CONTROL[name](xid, gid, sub, lsn))
        in_block = name in ("first block", "block") or (in_block and name == "origin")
    return wire(messages)


@examples(100, 1000)
def test_made_streams(examples: int) -> None:
    """Calls that raise are as if they had not been made."""

    @settings(max_examples=examples)
    @given(calls=CALLS, atomic=st.booleans())
    def check(calls: list[Any], atomic: bool) -> None:
        decoder = pgc.Decoder(atomic=atomic)
        decoder.decode(wire([T]))
        found, accepted = [], []
        lsn = 100
        for steps in calls:
            before = state(decoder)
            messages = made(steps, before.carry.in_block, lsn)
            lsn += len(steps)
            with pytest.raises(pgc.DecodeError):
                decoder.decode([*messages, UNKNOWN_TAG])
            assert_same(state(decoder), before)
            try:
                found.append(decoder.decode(messages))
            except pgc.DecodeError:
                assert_same(state(decoder), before)
            else:
                accepted.append(messages)
        fresh = pgc.Decoder(atomic=atomic)
        fresh.decode(wire([T]))
        assert delivered(found) == delivered([fresh.decode(messages) for messages in accepted])
        assert decoder.carry == fresh.carry

    check()


# Errors of every kind.

#: Two open streamed transactions, one of them prepared, and Relations that hold in them alone.
OPEN = wire(
    [
        *transaction(T, insert(1, "1", "a", None), lsn=50),
        *streamed(relation(1, *T.columns, xid=5), insert(1, "5", "s", None, xid=5), xid=5),
        *streamed(relation(2, *T.columns, xid=8), insert(2, "5", "s", None, xid=9), xid=8),
        pgc.StreamPrepare(0, 60, 61, 0, 8, "g"),
    ]
)

#: Messages that change each part of the state.
CHANGING = wire(
    [
        *streamed(
            pgc.Type(5, 90_000, "public", "mood"),
            relation(3, *T.columns, xid=5),
            insert(1, "6", "s", None, xid=6),
            pgc.Message(5, 1, 5, "p", b"x"),
            xid=5,
            first=False,
        ),
        pgc.StreamAbort(5, 6, None, None),
        *streamed(
            pgc.Type(5, 90_001, "public", "mood"),
            insert(1, "7", "s", None, xid=7),
            xid=5,
            first=False,
        ),
        *streamed(insert(1, "7", "s", None, xid=10), xid=10),
        pgc.CommitPrepared(0, 70, 71, 0, 8, "g"),
        pgc.StreamPrepare(0, 72, 73, 0, 10, "h"),
        *transaction(relation(1, column("id", "int4"), name="renamed"), insert(1, "8"), lsn=80),
        pgc.StreamCommit(5, 0, 90, 91, 0),
        pgc.Begin(100, 0, 11),
        insert(2, "9", "s", None),
    ]
)


@pytest.fixture
def opened() -> Any:
    decoder = pgc.Decoder()
    decoder.decode(OPEN)
    return decoder


def test_changing_changes_every_part_of_the_carry(opened: Any) -> None:
    """Otherwise the tests here would not see what is not undone."""
    before = state(opened)
    opened.decode(CHANGING)
    after = state(opened)
    for name in ("scope", "plain", "streams", "prepared", "delivered_lsn", "clock"):
        assert getattr(after.carry, name) != getattr(before.carry, name), name
    for name in ("relations", "types", "names"):
        assert getattr(after.carry.scope, name) != getattr(before.carry.scope, name), name
    assert set(after.held) != set(before.held)


def test_an_error_of_a_later_array(opened: Any) -> None:
    before = state(opened)
    for cut in range(len(CHANGING) + 1):
        chunks = [CHANGING[:cut], [], CHANGING[cut:], [UNKNOWN_TAG]]
        with pytest.raises(pgc.DecodeError):
            opened.decode(pa.chunked_array(chunks, pa.binary()))
        assert_same(state(opened), before)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, pgc.OptionError])
def test_an_error_at_the_end(
    opened: Any, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    before = state(opened)
    with monkeypatch.context() as patch:
        patch.setattr(decoder_module, "gather", fail)
        with pytest.raises(error):
            opened.decode(CHANGING)
    assert_same(state(opened), before)
    assert len(opened.decode(CHANGING)) == 4


def test_an_error_among_the_messages(opened: Any) -> None:
    def generated() -> Iterator[bytes]:
        yield from CHANGING
        raise MemoryError

    before = state(opened)
    with pytest.raises(MemoryError):
        opened.decode(generated())
    assert_same(state(opened), before)


@contextmanager
def interrupted(line: int) -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` before the n-th line of stateful code that is executed."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(STATEFUL):
            return None
        if event == "line" and not _is_after_the_commit(frame):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def _is_after_the_commit(frame: FrameType) -> bool:
    """Between the commit and the return to the caller, Python runs no signal handlers."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return frame.f_code.co_name == "change" and line.strip() == "return result"


def test_an_interruption_at_each_line(opened: Any) -> None:
    before = state(opened)
    for line in range(1, 10_000):
        try:
            with interrupted(line):
                changes = opened.decode(CHANGING)
        except KeyboardInterrupt:
            assert_same(state(opened), before)
        else:
            break
    assert line > 400
    fresh = pgc.Decoder()
    fresh.decode(OPEN)
    assert delivered([changes]) == delivered([fresh.decode(CHANGING)])
    assert opened.carry == fresh.carry


def test_an_interruption_at_each_line_of_a_call_that_fails(opened: Any) -> None:
    """If the roll-back is interrupted as well, the next call completes it."""
    before = state(opened)
    for line in range(1, 10_000):
        try:
            with interrupted(line):
                opened.decode([*CHANGING, UNKNOWN_TAG[:0]])
        except KeyboardInterrupt:
            opened.decode([])
            assert_same(state(opened), before)
        except pgc.DecodeError:
            break
    assert line > 400
    assert_same(state(opened), before)


def test_an_interruption_at_each_line_of_a_new_session(opened: Any) -> None:
    opened.decode(CHANGING[:3])
    before = state(opened)
    for line in range(1, 1000):
        try:
            with interrupted(line):
                opened.new_session()
        except KeyboardInterrupt:
            assert_same(state(opened), before)
        else:
            break
    assert line > 10
    assert opened.pending == [8]
    assert not opened.carry.in_block


# Parts, and copies.


def test_a_part_after_an_error() -> None:
    messages = [OPEN, CHANGING]
    plan = pgc.plan([pgc.summarise(each) for each in messages])
    expected = pgc.Decoder().decode_part(CHANGING, plan.parts[1])
    for part in (plan.parts[1], pickle.loads(pickle.dumps(plan.parts[1]))):
        decoder = pgc.Decoder().for_part(part)
        carry = part.carry.copy()
        for last in (False, True):
            with pytest.raises(pgc.DecodeError):
                decoder.decode([*CHANGING, UNKNOWN_TAG], last=last)
        assert part.carry == carry
        assert delivered([decoder.decode(CHANGING, last=True)]) == delivered([expected])
        assert part.carry == carry


def test_a_part_whose_outcomes_cut_what_it_holds() -> None:
    """A rollback of a savepoint in a later part, undone with the call that brings it."""
    parts = [
        OPEN + CHANGING[:6],
        wire([pgc.StreamAbort(5, 6, None, None), pgc.StreamCommit(5, 0, 90, 91, 0)]),
    ]
    plan = pgc.plan([pgc.summarise(each) for each in parts])
    expected = pgc.Decoder().decode_part(parts[0], plan.parts[0])
    decoder = pgc.Decoder().for_part(plan.parts[0])
    changes = [decoder.decode(parts[0])]
    before = state(decoder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_module, "gather", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            decoder.decode([], last=True)
    assert_same(state(decoder), before)
    changes.append(decoder.decode([], last=True))
    assert delivered(changes) == delivered([expected])


def test_the_carry_is_a_copy(opened: Any) -> None:
    carry = opened.carry
    as_it_was = pickle.loads(pickle.dumps(carry))
    opened.decode(CHANGING)
    assert carry == as_it_was
    carry.scope.relations.clear()
    carry.streams[99] = carry.prepared.pop("g")
    assert opened.relations.keys() == {1, 2}
    for each in (carry.streams, carry.prepared, carry.scope.names, carry.streams[99].first):
        assert type(each) is dict


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_a_copy_of_a_decoder_is_independent(opened: Any, duplicate: Callable[[Any], Any]) -> None:
    expected = delivered([pickle.loads(pickle.dumps(opened)).decode(CHANGING)])
    before = state(opened)
    duplicated = duplicate(opened)
    assert delivered([duplicated.decode(CHANGING)]) == expected
    assert_same(state(opened), before)
    with pytest.raises(pgc.DecodeError):
        duplicated.decode([*OPEN, UNKNOWN_TAG])
    assert delivered([opened.decode(CHANGING)]) == expected
    assert duplicated.carry == opened.carry
