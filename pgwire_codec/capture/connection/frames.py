"""The frames of a stream taken apart: messages into one buffer, keepalives by themselves.

:class:`PythonFrames` is the plain one; the compiled ``_frames.FrameBuffer`` does the same without
an object a message, and is used where the compiled implementation is.
"""

from __future__ import annotations

import ctypes
import math
import select
import struct
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from pgwire_codec import _impl
from pgwire_codec.protocol.spec import POSITIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The head of an XLogData frame, before the message: tag, WAL start, WAL end, send time.
_HEAD: Final = struct.Struct(">cQQq")
_XLOG_DATA: Final = b"w"
#: A position that no message reaches.
NEVER: Final = (1 << 64) - 1


class Outcome(IntEnum):
    """Why :meth:`Frames.read` returned. ``_frames.pyx`` has the same numbers."""

    EMPTY = 0  # nothing more has arrived
    FULL = 1  # so many messages, or bytes of them, are there
    REACHED = 2  # the last message ends something at or behind the position
    CONTROL = 3  # a frame that is no message is in ``control``
    ENDED = 4  # the server ended the stream
    BROKEN = 5  # the connection is lost


class Taken(NamedTuple):
    """Messages on end: bytes, where each begins (and the last ends), position and send time."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    lsn: NDArray[np.uint64]
    time: NDArray[np.int64]


class Frames(Protocol):
    """What a connection gives.

    Attributes
    ----------
    count, nbytes : int
        How many messages are there to be taken, and how many bytes they have.
    control : bytes
        The last frame that was no message.
    """

    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def control(self) -> bytes: ...

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> int:
        """Take in frames, and say why it stopped; an :class:`Outcome`.

        What has not arrived is waited for, for so many seconds. It may end sooner: with the first
        of the messages to be taken, whose time the caller has to note; when the process is told
        something by a signal; and, where that could not be noticed, behind 16 MB of messages.
        """

    def since(self, first: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """Give tag and position of each message from number ``first`` on, of those to be taken."""

    def take(self) -> Taken:
        """Give all the messages, and forget them."""


def open_frames(libpq: ctypes.CDLL, connection: int, socket: int) -> Frames:
    """Give the frames of a connection, in the implementation that is used."""
    if _impl.IMPL == "python":
        return PythonFrames(libpq, connection, socket)
    from pgwire_codec.capture.connection._frames import FrameBuffer

    return FrameBuffer(
        connection,
        socket,
        _address(libpq.PQgetCopyData),
        _address(libpq.PQconsumeInput),
        _address(libpq.PQfreemem),
    )


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class PythonFrames:
    """See :class:`Frames`."""

    def __init__(self, libpq: Any, connection: int, socket: int) -> None:
        self._libpq = libpq
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
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
            if outcome is not Outcome.EMPTY or (had_none and self._data):
                return outcome
            remaining = deadline - time.monotonic()
            if looked and remaining <= 0:
                return outcome
            if not self._poll.poll(math.ceil(max(remaining, 0.0) * 1000)):
                return outcome
            if not self._libpq.PQconsumeInput(self._connection):
                return Outcome.BROKEN
            looked = True

    def _take_in(self, max_messages: int, max_bytes: int, stop_lsn: int) -> Outcome:
        while len(self._data) < max_messages and self.nbytes < max_bytes:
            length: int = self._libpq.PQgetCopyData(self._connection, ctypes.byref(self._buffer), 1)
            if length <= 0:
                return {0: Outcome.EMPTY, -1: Outcome.ENDED}.get(length, Outcome.BROKEN)
            frame = ctypes.string_at(self._buffer.value or 0, length)
            self._libpq.PQfreemem(self._buffer)
            if length <= _HEAD.size or frame[:1] != _XLOG_DATA:
                self.control = frame
                return Outcome.CONTROL
            _, start, _, send_time = _HEAD.unpack_from(frame)
            self._data.append(frame[_HEAD.size :])
            self._lsns.append(start)
            self._times.append(send_time)
            self.nbytes += length - _HEAD.size
            if start >= stop_lsn and frame[_HEAD.size] in POSITIONS:
                return Outcome.REACHED
        return Outcome.FULL

    def since(self, first: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        tags = np.frombuffer(bytes(message[0] for message in self._data[first:]), np.uint8)
        return tags, np.array(self._lsns[first:], np.uint64)

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
