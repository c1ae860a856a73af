"""MessageBuffer: appended messages that are not in a record batch of the log yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.log.message_columns import SCHEMA, column

#: The columns of :data:`SCHEMA` without the ordinals, which a writer adds.
_UNNUMBERED: Final = pa.schema([field for field in SCHEMA if field.name != "ordinal"])

_BYTES: Final = (bytes, bytearray, memoryview, type(None))  # a null has an error of its own


class MessageBuffer:
    """Collects messages into record batches of a part each, or the rest of one at a flush.

    Parameters
    ----------
    part_bytes : int
        A batch ends with the message that makes its part so large or larger.
    """

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._pieces: list[pa.RecordBatch] = []
        self._part = 0  # message bytes of the part that is not full
        self.messages = 0

    def add(self, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add messages, as :func:`to_batches` returns them; yield the batches that are full."""
        for piece in pieces:
            yield from self._cut(piece)

    def begin_part(self) -> None:
        """Begin a part with the next message."""
        self._part = 0

    def take(self) -> pa.RecordBatch | None:
        """Remove and return all messages as one batch, or None without messages."""
        if not self._pieces:
            return None
        pieces, self._pieces, self.messages = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _cut(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        column = piece.column("data")
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
        start, count = 0, piece.num_rows
        size = int(offsets[count]) - int(offsets[0])
        if count and self._part + size < self._part_bytes:
            self._pieces.append(piece)
            self.messages += count
            self._part += size
            return
        while start < count:
            full = int(offsets[start]) + self._part_bytes - self._part
            stop = 1 + int(np.searchsorted(offsets[1 : count + 1], full))
            is_full = stop <= count
            stop = min(stop, count)
            self._pieces.append(piece.slice(start, stop - start))
            self.messages += stop - start
            self._part += int(offsets[stop] - offsets[start])
            start = stop
            if is_full:
                self._part = 0
                batch = self.take()
                assert batch is not None
                yield batch


def to_batches(data: Any, lsn: npt.ArrayLike, time: npt.ArrayLike) -> list[pa.RecordBatch]:
    """Return messages as record batches of the log's columns, without ordinals.

    Raises ``ValueError`` for invalid input.
    """
    if isinstance(data, list):
        if wrong := [each for each in data if not isinstance(each, _BYTES)]:
            raise ValueError(f"data must be bytes, not {type(wrong[0]).__name__}")
        data = pa.array(data, pa.binary())  # a chunked array from 2 GiB on
    elif (kind := getattr(data, "type", type(data).__name__)) != pa.binary():
        raise ValueError(f"data must be a list of bytes, or an Arrow binary array, not {kind}")
    if data.null_count:
        raise ValueError("data has a null: every element must be a message")
    lsns = np.asarray(lsn)
    if len(lsns) and lsns.dtype.kind not in "iu":
        raise ValueError(f"lsn must be whole numbers, not {lsns.dtype}")
    times = np.asarray(time, "datetime64[us]")
    if lsns.shape != (len(data),) or times.shape != (len(data),):
        raise ValueError(
            f"lsn and time must have one element a message: {len(data)}, not shapes {lsns.shape} "
            f"and {times.shape}"
        )
    pieces = []
    start = 0
    for chunk in data.chunks if isinstance(data, pa.ChunkedArray) else [data]:
        stop = start + len(chunk)
        columns = [
            column(lsns[start:stop].astype(np.uint64), "lsn"),
            column(times[start:stop], "time"),
            chunk,
        ]
        pieces.append(pa.RecordBatch.from_arrays(columns, schema=_UNNUMBERED))
        start = stop
    return pieces
