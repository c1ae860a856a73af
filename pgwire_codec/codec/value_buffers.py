"""Buffers of values that differ in length: their offsets, and the messages that views point to."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode

MAX_BYTES: Final = 2**31 - 1  # what Arrow's 32-bit offsets address
INLINE: Final = 12  # bytes that a view holds in itself
#: A view's offset has 31 bits, so longer messages are cut into overlapping buffers: each value
#: starts in the first half of one.
_CHUNK: Final = 2**30


def offsets_of(lengths: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return Arrow's offsets of values of these lengths."""
    ends = np.zeros(np.size(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    over = np.flatnonzero(ends > MAX_BYTES)
    if len(over):
        raise overflow(int(over[0]) - 1)
    return ends.astype(np.int32)


def overflow(row: int) -> ValueProblem:
    """Return the error for the first row that no offset reaches."""
    return ValueProblem(
        ErrorCode.UNREPRESENTABLE,
        0,
        f"at most {MAX_BYTES} bytes or elements of one column in a batch",
        row=row,
        hint="Decode fewer messages at once.",
    )


def chunks_of(data: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.uint8]]:
    """Return the buffers that views into the messages point to."""
    return [data[at : at + 2 * _CHUNK] for at in range(0, max(len(data), 1), _CHUNK)]


def chunk_at(start: int) -> tuple[int, int]:
    """Return the number of the buffer that a value starts in, and its offset there."""
    return divmod(start, _CHUNK)
