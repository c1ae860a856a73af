"""join_messages and arrow_messages: messages of bytes-likes, or of Arrow, as one array."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages, from_arrow, not_a_message, views_outside

_INLINE = 12  # bytes of the longest message that lies in its view


def join_messages(messages: Iterable[object]) -> Messages:
    """Return an array of copies of bytes-likes.

    Parameters
    ----------
    messages : iterable of bytes-likes
        A memoryview is the bytes that it shows, in C order.

    Raises
    ------
    TypeError
        For the first that is not bytes, a bytearray or a memoryview.
    """
    copies = []
    for index, message in enumerate(messages):
        if not isinstance(message, (bytes, bytearray, memoryview)):
            raise not_a_message(index, message)
        copies.append(memoryview(message).tobytes())
    return _joined(copies)


def arrow_messages(array: object) -> Messages:
    """Return the messages of an Arrow array.

    Parameters
    ----------
    array : object
        Of binary, large_binary or binary_view: anything with ``__arrow_c_array__``. Only the bytes
        of binary_view are copied.

    Raises
    ------
    TypeError
        For an array of another type.
    ValueError
        For a null, or for a view of bytes that are not in its buffer.
    """
    return from_arrow(array, join_views)


def join_views(views: npt.NDArray[np.int32], buffers: Sequence[npt.NDArray[np.uint8]]) -> Messages:
    """Return an array of the messages of a binary_view array.

    Parameters
    ----------
    views : numpy.ndarray of int32, messages x 4
        Length of each message, then its bytes, or its prefix, buffer and offset.
    buffers : sequence of numpy.ndarray of uint8
        The buffers of the messages of more than twelve bytes.

    Raises
    ------
    ValueError
        If a view refers to bytes that are not in its buffer.
    """
    raw = views.tobytes()
    copies = []
    for row, (size, _, number, start) in enumerate(views.tolist()):
        if 0 <= size <= _INLINE:
            source, start = memoryview(raw), 16 * row + 4
        elif size > _INLINE and 0 <= number < len(buffers) and start >= 0:
            source = memoryview(buffers[number])
        else:
            raise views_outside(row)
        if start + size > len(source):
            raise views_outside(row)
        copies.append(source[start : start + size].tobytes())
    return _joined(copies)


def _joined(copies: list[bytes]) -> Messages:
    offsets = [0, *itertools.accumulate(map(len, copies))]
    return Messages(np.frombuffer(b"".join(copies), np.uint8), np.array(offsets, np.int64))
