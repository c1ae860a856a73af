"""Messages in Arrow's binary layout: a byte buffer and the offsets of the messages in it.

Every input becomes such arrays. Arrow arrays keep their buffers: nothing is copied, except of
binary_view, whose bytes lie in pieces. A sequence of bytes-likes is joined once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_WANTED = (
    "messages must be a sequence of bytes-likes, or an Arrow binary, large_binary or binary_view "
    "array (anything with __arrow_c_array__ or __arrow_c_stream__)"
)


@dataclass(slots=True, eq=False)
class Messages:
    """One input array.

    Attributes
    ----------
    data : numpy.ndarray of uint8
        The bytes; read-only. Keeps its owner alive.
    offsets : numpy.ndarray of int64, one more than there are messages
        Message ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
    """

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def tag(self, index: int) -> bytes:
        """Return the tag byte of a message; empty for an empty message."""
        start = self.offsets[index]
        return self.data[start : min(start + 1, self.offsets[index + 1])].tobytes()


class Joins(Protocol):
    """Functions of an implementation that make one array of messages."""

    arrow_messages: Callable[..., Messages]
    join_messages: Callable[..., Messages]
    join_views: Callable[..., Messages]


def to_message_arrays(messages: object, codec: Joins) -> list[Messages]:
    """Return the input arrays of what a caller passed: one, or one a chunk.

    Raises ``TypeError`` for anything else, and ``ValueError`` for a null message.
    """
    if hasattr(messages, "__arrow_c_array__"):
        return [codec.arrow_messages(messages)]
    if hasattr(messages, "__arrow_c_stream__"):
        import nanoarrow

        return list(map(codec.arrow_messages, nanoarrow.c_array_stream(messages)))
    if isinstance(messages, (str, bytes, bytearray, memoryview, dict)):
        raise TypeError(f"{_WANTED}, not {type(messages).__name__}; put a single one into a list")
    if isinstance(messages, np.ndarray) and messages.dtype.kind == "S":
        raise TypeError(f"{_WANTED}, not numpy's S, which drops zero bytes from the messages' ends")
    if not isinstance(messages, Iterable):
        raise TypeError(f"{_WANTED}, not {type(messages).__name__}")
    return [codec.join_messages(messages)]


def to_lsns(lsn: object, count: int) -> npt.NDArray[np.uint64] | None:
    """Return the messages' LSNs as uint64, and check that there is one a message."""
    if lsn is None:
        return None
    if hasattr(lsn, "__arrow_c_array__") or hasattr(lsn, "__arrow_c_stream__"):
        lsn = _values(lsn)
    values = np.asarray(lsn)
    if values.ndim != 1 or len(values) != count:
        raise ValueError(f"lsn must have one LSN a message: {count}, not shape {values.shape}")
    if count and values.dtype.kind not in "iu":
        raise TypeError(f"lsn must be integers, not {values.dtype}")
    if count and values.dtype.kind == "i" and values.min() < 0:
        raise ValueError(f"lsn must be LSNs, from 0 on, not {values.min()}")
    return values.astype(np.uint64, copy=False)


def not_a_message(index: int, message: object) -> TypeError:
    """Return the error for an item of a sequence of messages."""
    return TypeError(f"{_WANTED}; message {index} is {type(message).__name__}")


def views_outside(index: int) -> ValueError:
    """Return the error for a message of a binary_view array."""
    return ValueError(f"the view of message {index} must lie within the array's buffers")


def from_arrow(array: object, join_views: Callable[..., Messages]) -> Messages:
    """Return the messages of any Arrow array that may have some."""
    import nanoarrow

    carray = nanoarrow.c_array(array)
    kind = carray.schema.format
    if kind not in ("z", "Z", "vz"):
        raise TypeError(f"{_WANTED}, not Arrow format {kind!r}")
    view: Any = carray.view()
    length, start = carray.length, carray.offset
    if carray.null_count:
        valid = np.unpackbits(_bytes(view.buffer(0)), bitorder="little")[start : start + length]
        raise ValueError(f"message {int(np.flatnonzero(valid == 0)[0])} is null")
    if kind == "vz":
        views = np.frombuffer(view.buffer(1), np.int32).reshape(-1, 4)[start : start + length]
        # Between the views and the last buffer, which has their sizes.
        buffers = [_bytes(view.buffer(number)) for number in range(2, view.n_buffers - 1)]
        return join_views(views, buffers)
    offsets = np.asarray(view.buffer(1))[start : start + length + 1].astype(np.int64, copy=False)
    if not len(offsets):  # an empty array may have no offsets at all
        offsets = np.zeros(1, dtype=np.int64)
    return Messages(_bytes(view.buffer(2)), offsets)


def _values(array: Any) -> Any:
    """Return the values of an Arrow array; raise ``ValueError`` for a null."""
    import nanoarrow

    if hasattr(array, "__arrow_c_array__"):  # nanoarrow.Array takes five times as long
        carray = nanoarrow.c_array(array)
        if carray.schema.format in ("l", "L") and not carray.null_count:
            values = np.asarray(carray.view().buffer(1))
            return values[carray.offset : carray.offset + carray.length]
    return nanoarrow.Array(array).to_pysequence()


def _bytes(buffer: object) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, dtype=np.uint8)  # type: ignore[call-overload, no-any-return]
