"""A libpq with a script of frames, for the compiled and the plain readers of them."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from types import SimpleNamespace
from typing import Any

from pgwire_codec.capture.connection.frames import PythonFrames
from pgwire_codec.capture.connection.libpq import addresses_of
from pgwire_codec.capture.snapshot.copy_reader import PythonCopyReader

_libc = ctypes.CDLL(ctypes.util.find_library("c"))
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]

_SILENT, _NEVER_WRITTEN = os.pipe()

_GET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int
)
_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Connection:
    """A scripted connection: returns frames or error codes, and counts frames that were not freed.

    It is always readable; reading fails once the script has ended.
    """

    def __init__(self, script: list[bytes | int], socket: int = -1, waker: int = _SILENT) -> None:
        self.script = list(script)
        self.socket = socket
        self.waker = waker
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
        from pgwire_codec.capture.connection._frames import FrameBuffer

        return FrameBuffer(1, self.socket, self.waker, *self._addresses())

    def plain(self) -> PythonFrames:
        return PythonFrames(self._libpq(), 1, self.socket, self.waker)

    def copy_reader(self, head: bytes, kinds: bytes, *, is_compiled: bool, binary: bool) -> Any:
        """Return a reader of the frames as rows of a COPY."""
        from pgwire_codec.capture.snapshot._copy_reader import CopyBuffer

        if is_compiled:
            return CopyBuffer(1, self.socket, *self._addresses(), head, kinds, binary)
        return PythonCopyReader(self._libpq(), 1, self.socket, head, kinds, binary=binary)

    def _addresses(self) -> list[int]:
        return addresses_of(self.get, self.consume, self.free)

    def _libpq(self) -> Any:
        def get(connection: Any, frame: Any, is_async: int) -> int:
            return self._get(connection, ctypes.pointer(frame._obj), is_async)

        return SimpleNamespace(
            PQgetCopyData=get,
            PQconsumeInput=self._consume,
            PQfreemem=lambda frame: self._free(frame.value),
        )
