"""decode_message, encode_message and decode_frame: exact inverses of each other, and right."""

from __future__ import annotations

import typing
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

import pgwire_codec as pgc
from pgwire_codec.protocol.messages import Frame, LogicalMessage
from tests.support import strategies
from tests.support.build import walk
from tests.support.corpus import Capture, captures
from tests.support.golden import FRAMES, MESSAGES, Golden

KINDS = typing.get_args(LogicalMessage)


# PostgreSQL's documentation.


@pytest.mark.parametrize("golden", MESSAGES, ids=str)
def test_message_in_bytes_written_by_hand(golden: Golden) -> None:
    assert pgc.decode_message(golden.data, streaming=golden.streaming) == golden.message
    assert pgc.encode_message(golden.message) == golden.data


@pytest.mark.parametrize("golden", FRAMES, ids=str)
def test_frame_in_bytes_written_by_hand(golden: Golden) -> None:
    assert pgc.decode_frame(golden.data) == golden.message
    assert pgc.encode_message(golden.message) == golden.data


def test_every_kind_is_written_by_hand() -> None:
    assert {type(each.message) for each in MESSAGES} == set(KINDS)
    assert {type(each.message) for each in FRAMES} == set(typing.get_args(Frame))


# Messages that servers sent.


def test_every_message_of_the_corpus_comes_back_byte_for_byte() -> None:
    kinds: Counter[type] = Counter()
    aborts: Counter[int] = Counter()
    again: dict[tuple[bytes, bool], Any] = {}  # two fifths of the messages repeat another
    for capture in captures():
        for data, streaming in walk(capture):
            message = again.get((data, streaming))
            if message is None:
                message = pgc.decode_message(data, streaming=streaming)
                assert pgc.encode_message(message) == data, (capture, data.hex())
                again[data, streaming] = message
            kinds[type(message)] += 1
            if isinstance(message, pgc.StreamAbort):
                aborts[len(data)] += 1
                assert (message.abort_lsn is None) == (message.abort_time is None)
                assert (message.abort_lsn is None) == (len(data) == 9)
    assert kinds.total() == 161_578
    assert set(kinds) == set(KINDS)
    assert set(aborts) == {9, 25}  # streaming=on, streaming=parallel


#: Messages whose end LSN, or own LSN, is the LSN that the server gives the message itself.
LSN_OF_THE_MESSAGE = {
    pgc.Commit: "end_lsn",
    pgc.StreamCommit: "end_lsn",
    pgc.Prepare: "end_lsn",
    pgc.StreamPrepare: "end_lsn",
    pgc.CommitPrepared: "end_lsn",
    pgc.RollbackPrepared: "rollback_end_lsn",
    pgc.Message: "lsn",
}

#: Messages that name the transaction that the server says they belong to.
XID_OF_THE_MESSAGE = {
    **dict.fromkeys((pgc.Begin, pgc.BeginPrepare, pgc.Prepare, pgc.StreamPrepare), "xid"),
    **dict.fromkeys((pgc.CommitPrepared, pgc.RollbackPrepared), "xid"),
    **dict.fromkeys((pgc.StreamStart, pgc.StreamCommit), "xid"),
    pgc.StreamAbort: "subxid",
}


@pytest.mark.parametrize("capture", captures(major=18) + captures(major=14), ids=str)
def test_lsn_and_xid_are_those_that_the_server_tells_beside_the_message(capture: Capture) -> None:
    """pg_logical_slot_peek_binary_changes gives both as columns of their own."""
    compared = 0
    for number, (data, streaming) in enumerate(walk(capture)):
        message = pgc.decode_message(data, streaming=streaming)
        if name := LSN_OF_THE_MESSAGE.get(type(message)):
            assert getattr(message, name) == capture.lsns[number]
            compared += 1
        if name := XID_OF_THE_MESSAGE.get(type(message)):
            assert getattr(message, name) == capture.xids[number]
            compared += 1
    assert compared


@pytest.mark.parametrize("options", ["v1-text", "v4-parallel"])
def test_begin_commit_and_time_agree(options: str) -> None:
    """Begin's final LSN is Commit's commit LSN, not its end LSN; both contain the commit time."""
    for capture in captures(options=options):
        began = None
        for data, streaming in walk(capture):
            message = pgc.decode_message(data, streaming=streaming)
            if isinstance(message, pgc.Begin):
                began = message
            elif isinstance(message, pgc.Commit):
                assert began is not None
                assert message.commit_lsn == began.final_lsn < message.end_lsn
                assert message.commit_time == began.commit_time
                began = None


# Any message that the wire can carry.


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_any_message_comes_back(kind: type, streaming: bool) -> None:
    @settings(max_examples=50)
    @given(strategies.by_kind(streaming)[kind])
    def check(message: Any) -> None:
        assert type(message) is kind
        data = pgc.encode_message(message)
        assert pgc.decode_message(data, streaming=streaming) == message

    check()


@given(strategies.frames())
def test_any_frame_comes_back(frame: Any) -> None:
    assert pgc.decode_frame(pgc.encode_message(frame)) == frame


def test_strategies_have_every_kind() -> None:
    for streaming in (False, True):
        assert set(strategies.by_kind(streaming)) == set(KINDS)
    assert set(strategies.frames_by_kind()) == set(typing.get_args(Frame))


# How it is called.


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_any_bytes_like_is_taken(kind: type) -> None:
    for golden in MESSAGES:
        assert pgc.decode_message(kind(golden.data), streaming=golden.streaming) == golden.message
    assert pgc.decode_frame(kind(FRAMES[0].data)) == FRAMES[0].message


def test_a_message_keeps_nothing_of_the_buffer_it_came_in() -> None:
    buffer = bytearray(pgc.encode_message(pgc.Insert(None, 1, pgc.TupleData(b"t", (b"abc",)))))
    message = pgc.decode_message(buffer)
    buffer[:] = bytes(len(buffer))
    assert message == pgc.Insert(None, 1, pgc.TupleData(b"t", (b"abc",)))


def test_streaming_says_whether_an_xid_comes_first() -> None:
    data = bytes.fromhex("49 000002e7 00004001 4e 0000")
    streamed = pgc.decode_message(data, streaming=True)
    assert streamed == pgc.Insert(743, 0x4001, pgc.TupleData(b"", ()))
    with pytest.raises(pgc.DecodeError):
        pgc.decode_message(data)  # the OID's first byte where the marker should be


def test_length_0_is_a_value_and_not_null() -> None:
    empty = pgc.decode_message(bytes.fromhex("49 00000001 4e 0002 74 00000000 6e"))
    assert empty == pgc.Insert(None, 1, pgc.TupleData(b"tn", (b"", None)))


def test_tags_of_frames_and_messages_overlap() -> None:
    (status,) = [each for each in FRAMES if isinstance(each.message, pgc.StandbyStatusUpdate)]
    (rollback,) = [each for each in MESSAGES if isinstance(each.message, pgc.RollbackPrepared)]
    assert status.data[:1] == rollback.data[:1] == b"r"
    with pytest.raises(pgc.DecodeError):
        pgc.decode_message(status.data)
    with pytest.raises(pgc.DecodeError):
        pgc.decode_frame(rollback.data)
