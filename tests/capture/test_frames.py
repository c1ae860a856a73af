"""Frames read by the compiled and by the plain implementation from the same connection."""

from __future__ import annotations

import signal
import struct
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgwire_codec.capture.connection.frames import NEVER, ReadOutcome
from tests.support.scripted_libpq import Connection

pytest.importorskip(
    "pgwire_codec.capture.connection._frames", reason="the compiled core is not built"
)


def xlog_data(start: int, message: bytes, time: int = 0) -> bytes:
    return struct.pack(">cQQq", b"w", start, 0, time) + message


MESSAGES = st.builds(
    xlog_data,
    st.integers(0, 1 << 63),
    st.builds(
        lambda tag, size: tag + bytes(size),
        st.sampled_from(b"BCIUPESAcpKrMRY").map(lambda tag: bytes([tag])),
        st.sampled_from([0, 1, 20, 5000, 300_000]),
    ),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
KEEPALIVES = st.just(struct.pack(">cQqB", b"k", 7, 0, 1))
SCRIPTS = st.lists(
    st.one_of(MESSAGES, MESSAGES, KEEPALIVES, st.binary(min_size=1, max_size=25), st.just(0)),
    max_size=40,
)


@example(  # a frame that the buffer has no room for, after the deadline
    script=[xlog_data(1, b"B"), 0, xlog_data(2, bytes(300_000)), 0, xlog_data(3, b"B")],
    end=0,
    calls=[(1, 1, NEVER, 0.0, "go on"), (4, 1 << 30, NEVER, 0.0, "go on")],
)
@given(
    script=SCRIPTS,
    end=st.sampled_from([0, -1, -2]),
    calls=st.lists(
        st.tuples(
            st.integers(1, 12),
            st.sampled_from([1, 100, 10_000, 1 << 30]),
            st.sampled_from([0, 1 << 40, NEVER]),
            st.sampled_from([0.0, 60.0]),
            st.sampled_from(["take", "cut", "go on"]),
        ),
        min_size=1,
        max_size=60,
    ),
)
def test_both_do_the_same(
    readable: int,
    script: list[bytes | int],
    end: int,
    calls: list[tuple[int, int, int, float, str]],
) -> None:
    sides = [Connection([*script, end], readable) for _ in range(2)]
    compiled, plain = sides[0].compiled(), sides[1].plain()
    for most, size, stop, seconds, then in calls:
        first = plain.count
        outcomes = [each.read(most, size, stop, seconds) for each in (compiled, plain)]
        assert outcomes[0] == outcomes[1]
        assert (compiled.count, compiled.nbytes) == (plain.count, plain.nbytes)
        assert compiled.control == plain.control
        if first < plain.count:
            for ours, theirs in zip(compiled.since(first), plain.since(first), strict=True):
                np.testing.assert_array_equal(ours, theirs)
        if then == "cut":
            for each in (compiled, plain):
                each.cut(first + (each.count - first) // 2)
            assert (compiled.count, compiled.nbytes) == (plain.count, plain.nbytes)
        if then == "take":
            for ours, theirs in zip(compiled.take(), plain.take(), strict=True):
                np.testing.assert_array_equal(ours, theirs)
                assert ours.dtype == theirs.dtype
    assert [side.unfreed for side in sides] == [0, 0]
    assert sides[0].script == sides[1].script


def test_what_was_taken_is_kept() -> None:
    """The next messages are read into memory of their own."""
    connection = Connection([xlog_data(1, b"Iabc"), xlog_data(2, b"Cxyz", 5)])
    frames = connection.compiled()
    assert frames.read(1, 100, NEVER, 0) == ReadOutcome.FULL
    taken = frames.take()
    assert frames.read(10, 100, 2, 0) == ReadOutcome.REACHED
    assert taken.data.tobytes() == b"Iabc"
    second = frames.take()
    assert second.data.tobytes() == b"Cxyz"
    assert (second.lsn.tolist(), second.time.tolist()) == ([2], [5])
    assert frames.read(10, 100, NEVER, 0) == ReadOutcome.EMPTY


@pytest.mark.parametrize("sizes", [[4], [300_000], [1 << 20, 300_000, 4]])
def test_what_was_taken_keeps_little_else(sizes: list[int]) -> None:
    """A capture has many takes of a few messages at the same time."""
    connection = Connection([xlog_data(1, bytes(size)) for size in sizes])
    frames = connection.compiled()
    for size in sizes:
        assert frames.read(1, 1 << 30, NEVER, 0) == ReadOutcome.FULL
        data = frames.take().data
        assert data.nbytes == size
        owner = data if data.base is None else data.base
        assert owner.nbytes <= 2 * size


@pytest.mark.parametrize("side", ["compiled", "plain"])
class TestWaiting:
    def test_nothing_comes(self, silent: int, side: str) -> None:
        connection = Connection([], silent)
        frames = getattr(connection, side)()
        began = time.monotonic()
        assert frames.read(10, 100, NEVER, 0.05) == ReadOutcome.EMPTY
        assert time.monotonic() - began >= 0.05

    def test_the_first_message_is_told_of(self, readable: int, side: str) -> None:
        script = [0, xlog_data(1, b"Iabc"), 0, xlog_data(2, b"Idef"), 0, xlog_data(3, b"Ighi"), -1]
        connection = Connection(script, readable)
        frames = getattr(connection, side)()
        assert frames.read(10, 100, NEVER, 60) == ReadOutcome.EMPTY
        assert frames.count == 1
        assert frames.read(10, 100, NEVER, 60) == ReadOutcome.ENDED
        assert frames.count == 3

    def test_another_thread_wakes_it_up(self, silent: int, readable: int, side: str) -> None:
        connection = Connection([xlog_data(1, b"Iabc"), 0], silent, readable)
        frames = getattr(connection, side)()
        assert frames.read(10, 100, NEVER, 60) == ReadOutcome.EMPTY
        assert frames.read(10, 100, NEVER, 60) == ReadOutcome.WOKEN
        assert frames.count == 1

    def test_a_lost_connection(self, readable: int, side: str) -> None:
        connection = Connection([0], readable)
        frames = getattr(connection, side)()
        assert frames.read(10, 100, NEVER, 60) == ReadOutcome.BROKEN


def test_a_signal_ends_the_waiting(silent: int) -> None:
    connection = Connection([], silent)
    frames = connection.compiled()
    told: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: told.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        assert frames.read(10, 100, NEVER, 60) == ReadOutcome.EMPTY
        assert time.monotonic() - began < 30
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told == [signal.SIGALRM]
