"""Frames taken apart: the compiled reader and the plain one, on the same connection's frames."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import signal
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.capture.frames import NEVER, Outcome, PythonFrames

FrameBuffer = pytest.importorskip(
    "pgwire_codec.capture._frames", reason="the compiled core is not built"
).FrameBuffer

_libc = ctypes.CDLL(ctypes.util.find_library("c"))
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]

_GET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int
)
_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Connection:
    """Plays libpq: gives frames, or results that are none, and counts what was not freed.

    There is always something to be read; reading fails once the script is over.
    """

    def __init__(self, script: list[bytes | int], socket: int = -1) -> None:
        self.script = list(script)
        self.socket = socket
        self.unfreed = 0
        self.get = _GET(self._get)
        self.consume = _CONSUME(self._consume)
        self.free = _FREE(self._free)

    def _get(self, _: Any, frame: Any, is_async: int) -> int:
        assert is_async == 1
        frame[0] = None
        if not self.script:
            return 0
        given = self.script.pop(0)
        if isinstance(given, int):
            return given
        place = _libc.malloc(max(len(given), 1))
        ctypes.memmove(place, given, len(given))
        frame[0] = place
        self.unfreed += 1
        return len(given)

    def _consume(self, _: Any) -> int:
        return 1 if self.script else 0

    def _free(self, frame: int) -> None:
        self.unfreed -= 1
        _libc.free(frame)

    def compiled(self) -> Any:
        functions = (self.get, self.consume, self.free)
        addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in functions]
        return FrameBuffer(1, self.socket, *addresses)

    def plain(self) -> PythonFrames:
        def get(connection: Any, frame: Any, is_async: int) -> int:
            return self._get(connection, ctypes.pointer(frame._obj), is_async)

        return PythonFrames(
            SimpleNamespace(
                PQgetCopyData=get,
                PQconsumeInput=self._consume,
                PQfreemem=lambda frame: self._free(frame.value),
            ),
            1,
            self.socket,
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


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """What there is never something to be read from."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.fixture(scope="module")
def readable() -> Iterator[int]:
    """What there is always something to be read from."""
    reading, writing = os.pipe()
    os.write(writing, b"x")
    yield reading
    os.close(reading)
    os.close(writing)


@given(
    script=SCRIPTS,
    end=st.sampled_from([0, -1, -2]),
    calls=st.lists(
        st.tuples(
            st.integers(1, 12),
            st.sampled_from([1, 100, 10_000, 1 << 30]),
            st.sampled_from([0, 1 << 40, NEVER]),
            st.sampled_from([0.0, 60.0]),
            st.booleans(),
        ),
        min_size=1,
        max_size=60,
    ),
)
def test_both_do_the_same(
    readable: int,
    script: list[bytes | int],
    end: int,
    calls: list[tuple[int, int, int, float, bool]],
) -> None:
    sides = [Connection([*script, end], readable) for _ in range(2)]
    compiled, plain = sides[0].compiled(), sides[1].plain()
    for most, size, stop, seconds, take in calls:
        first = plain.count
        outcomes = [each.read(most, size, stop, seconds) for each in (compiled, plain)]
        assert outcomes[0] == outcomes[1]
        assert (compiled.count, compiled.nbytes) == (plain.count, plain.nbytes)
        assert compiled.control == plain.control
        if first < plain.count:
            for ours, theirs in zip(compiled.since(first), plain.since(first), strict=True):
                np.testing.assert_array_equal(ours, theirs)
        if take:
            for ours, theirs in zip(compiled.take(), plain.take(), strict=True):
                np.testing.assert_array_equal(ours, theirs)
                assert ours.dtype == theirs.dtype
    assert [side.unfreed for side in sides] == [0, 0]
    assert sides[0].script == sides[1].script


def test_what_was_taken_is_kept() -> None:
    """The next messages are read into memory of their own."""
    connection = Connection([xlog_data(1, b"Iabc"), xlog_data(2, b"Cxyz", 5)])
    frames = connection.compiled()
    assert frames.read(1, 100, NEVER, 0) == Outcome.FULL
    taken = frames.take()
    assert frames.read(10, 100, 2, 0) == Outcome.REACHED
    assert taken.data.tobytes() == b"Iabc"
    second = frames.take()
    assert second.data.tobytes() == b"Cxyz"
    assert (second.lsn.tolist(), second.time.tolist()) == ([2], [5])
    assert frames.read(10, 100, NEVER, 0) == Outcome.EMPTY


@pytest.mark.parametrize("side", ["compiled", "plain"])
class TestWaiting:
    def test_nothing_comes(self, silent: int, side: str) -> None:
        connection = Connection([], silent)
        frames = getattr(connection, side)()
        began = time.monotonic()
        assert frames.read(10, 100, NEVER, 0.05) == Outcome.EMPTY
        assert time.monotonic() - began >= 0.05

    def test_the_first_message_is_told_of(self, readable: int, side: str) -> None:
        script = [0, xlog_data(1, b"Iabc"), 0, xlog_data(2, b"Idef"), 0, xlog_data(3, b"Ighi"), -1]
        connection = Connection(script, readable)
        frames = getattr(connection, side)()
        assert frames.read(10, 100, NEVER, 60) == Outcome.EMPTY
        assert frames.count == 1
        assert frames.read(10, 100, NEVER, 60) == Outcome.ENDED
        assert frames.count == 3

    def test_a_lost_connection(self, readable: int, side: str) -> None:
        connection = Connection([0], readable)
        frames = getattr(connection, side)()
        assert frames.read(10, 100, NEVER, 60) == Outcome.BROKEN


def test_a_signal_ends_the_waiting(silent: int) -> None:
    connection = Connection([], silent)
    frames = connection.compiled()
    told: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: told.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        assert frames.read(10, 100, NEVER, 60) == Outcome.EMPTY
        assert time.monotonic() - began < 30
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told == [signal.SIGALRM]
