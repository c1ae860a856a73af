"""Frames of a replication connection, split into a buffer of messages and single keepalives.

:class:`PythonFrames` is the plain implementation. The compiled ``_frames.FrameBuffer`` does the
same without creating an object for each message.
"""

from __future__ import annotations

import ctypes
import math
import select
import struct
import sys
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from pgwire_codec import _impl
from pgwire_codec.capture.connection.libpq import addresses_of
from pgwire_codec.protocol.tags import POSITIONS

# Not when a connection needs it: then there may be no memory left for a library.
if _impl.IMPL == "cython" and sys.platform != "win32":
    from pgwire_codec.capture.connection._frames import FrameBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The head of an XLogData frame, before the message: tag, WAL start, WAL end, send time.
_HEAD: Final = struct.Struct(">cQQq")
_XLOG_DATA: Final = b"w"
#: A position that no message reaches.
NEVER: Final = (1 << 64) - 1


class ReadOutcome(IntEnum):
    """Why :meth:`Frames.read` returned. ``libpq_calls.pxd`` has the same numbers."""

    EMPTY = 0  # nothing more has arrived
    FULL = 1  # the maximum of messages, or of their bytes, is buffered
    REACHED = 2  # the last message ends something at or after the position
    CONTROL = 3  # a frame without a message is in ``control``
    ENDED = 4  # the server ended the stream
    BROKEN = 5  # the connection is lost
    WOKEN = 6  # nothing more has arrived, and another thread has woken up this one


class Taken(NamedTuple):
    """Concatenated messages: bytes, offsets (one more than messages), position and send time."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    lsn: NDArray[np.uint64]
    time: NDArray[np.int64]


class Frames(Protocol):
    """Buffer of the frames that a connection receives.

    Attributes
    ----------
    count, nbytes : int
        Number of buffered messages, and of their bytes.
    control : bytes
        Last frame without a message.
    """

    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def control(self) -> bytes: ...

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> int:
        """Read frames, and return why it stopped, as a :class:`ReadOutcome`.

        It waits up to ``seconds`` for frames to arrive. It may return sooner: after the first
        buffered message, whose time the caller has to record; when the waker is readable; when the
        process receives a signal; and after 16 MB of messages, because signals are not noticed
        while more of them arrive.
        """

    def since(self, first: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """Return tag and position of each buffered message from number ``first`` on."""

    def cut(self, count: int) -> None:
        """Drop the buffered messages from number ``count`` on."""

    def take(self) -> Taken:
        """Return all buffered messages, and empty the buffer."""


def open_frames(libpq: ctypes.CDLL, connection: int, socket: int, waker: int) -> Frames:
    """Return the frame buffer of a connection, in the implementation that is in use.

    ``waker`` is a descriptor that is readable when :meth:`Frames.read` has to return.
    """
    if _impl.IMPL == "python":
        return PythonFrames(libpq, connection, socket, waker)
    frames: Frames = FrameBuffer(
        connection,
        socket,
        waker,
        *addresses_of(libpq.PQgetCopyData, libpq.PQconsumeInput, libpq.PQfreemem),
    )
    return frames


class PythonFrames:
    """:class:`Frames` in plain Python."""

    def __init__(self, libpq: Any, connection: int, socket: int, waker: int) -> None:
        self._libpq = libpq
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self._poll.register(waker, select.POLLIN)
        self._waker = waker
        self._buffer = ctypes.c_void_p()
        self.control = b""
        self._clear()

    @property
    def count(self) -> int:
        return len(self._data)

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        had_none = not self._data
        looked = False
        while True:
            outcome = self._take_in(max_messages, max_bytes, stop_lsn)
            if outcome is not ReadOutcome.EMPTY or (had_none and self._data):
                return outcome
            remaining = deadline - time.monotonic()
            if looked and remaining <= 0:
                return outcome
            readable = dict(self._poll.poll(math.ceil(max(remaining, 0.0) * 1000)))
            if self._waker in readable:
                return ReadOutcome.WOKEN
            if not readable:
                return outcome
            if not self._libpq.PQconsumeInput(self._connection):
                return ReadOutcome.BROKEN
            looked = True

    def _take_in(self, max_messages: int, max_bytes: int, stop_lsn: int) -> ReadOutcome:
        while len(self._data) < max_messages and self.nbytes < max_bytes:
            length: int = self._libpq.PQgetCopyData(self._connection, ctypes.byref(self._buffer), 1)
            if length <= 0:
                return {0: ReadOutcome.EMPTY, -1: ReadOutcome.ENDED}.get(length, ReadOutcome.BROKEN)
            frame = ctypes.string_at(self._buffer.value or 0, length)
            self._libpq.PQfreemem(self._buffer)
            if length <= _HEAD.size or frame[:1] != _XLOG_DATA:
                self.control = frame
                return ReadOutcome.CONTROL
            _, start, _, send_time = _HEAD.unpack_from(frame)
            self._data.append(frame[_HEAD.size :])
            self._lsns.append(start)
            self._times.append(send_time)
            self.nbytes += length - _HEAD.size
            if start >= stop_lsn and frame[_HEAD.size] in POSITIONS:
                return ReadOutcome.REACHED
        return ReadOutcome.FULL

    def since(self, first: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        tags = np.frombuffer(bytes(message[0] for message in self._data[first:]), np.uint8)
        return tags, np.array(self._lsns[first:], np.uint64)

    def cut(self, count: int) -> None:
        for rows in (self._data, self._lsns, self._times):
            del rows[count:]
        self.nbytes = sum(map(len, self._data))

    def take(self) -> Taken:
        lengths = np.fromiter(map(len, self._data), np.int32, len(self._data))
        taken = Taken(
            np.frombuffer(b"".join(self._data), np.uint8),
            np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)]),
            np.array(self._lsns, np.uint64),
            np.array(self._times, np.int64),
        )
        self._clear()
        return taken

    def _clear(self) -> None:
        self._data: list[bytes] = []
        self._lsns: list[int] = []
        self._times: list[int] = []
        self.nbytes = 0
