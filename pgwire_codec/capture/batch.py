"""A run of messages in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: 2000-01-01, from which the protocol counts its microseconds.
EPOCH = np.datetime64("2000-01-01", "us")
#: Seconds from 1970, where Unix counts from, to 2000, where PostgreSQL does.
UNIX_EPOCH_OFFSET: Final = 946_684_800


@dataclass(frozen=True, eq=False)
class Batch:
    """Messages of one stream, in the order of arrival.

    Attributes
    ----------
    buffer : numpy.ndarray of uint8
        The messages' bytes on end, without the frames around them.
    offsets : numpy.ndarray of int32
        Where each message begins in it, and where the last one ends.
    lsn : numpy.ndarray of uint64
        The WAL position that came with each. It does not order messages: a walsender sends 0
        with a Relation, and transactions overlap.
    time : numpy.ndarray of datetime64[us]
        The server's clock (UTC) when it sent each; NaT where the source does not tell.
    xid : numpy.ndarray of uint32 or None
        Transaction IDs, from a source that tells them beside the message (``peek``).
    first : int
        The number of the batch's first message in the stream, counted from 0.
    confirm_lsn : int
        What may be confirmed once this batch and all before it are durable: the end of the last
        transaction in them.
    """

    buffer: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    lsn: NDArray[np.uint64]
    time: NDArray[np.datetime64]
    xid: NDArray[np.uint32] | None
    first: int
    confirm_lsn: int

    def __len__(self) -> int:
        return len(self.lsn)

    @cached_property
    def data(self) -> list[bytes]:
        """The messages, one ``bytes`` each: a copy, made once."""
        buffer, offsets = self.buffer.tobytes(), self.offsets.tolist()
        return [buffer[start:end] for start, end in pairwise(offsets)]

    @property
    def nbytes(self) -> int:
        """Bytes of all messages together."""
        return len(self.buffer)

    def messages(self) -> Any:
        """Give the messages as a ``pyarrow.BinaryArray``, without a copy; needs ``arrow``."""
        pa = _load_pyarrow("Batch.messages()")
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.buffer)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)

    def to_arrow(self) -> Any:
        """Give the batch as a ``pyarrow.RecordBatch``; needs the extra ``arrow``.

        Columns: ``ordinal`` int64 (the order of arrival), ``lsn`` int64, ``time`` timestamp[us,
        UTC], ``data`` binary, and ``xid`` int64 where the source tells it. Signed, because Spark
        has no unsigned types.
        """
        pa = _load_pyarrow("Batch.to_arrow()")
        columns = {
            "ordinal": pa.array(np.arange(self.first, self.first + len(self), dtype=np.int64)),
            "lsn": pa.array(self.lsn.astype(np.int64)),
            "time": pa.array(self.time, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "data": self.messages(),
        }
        if self.xid is not None:
            columns["xid"] = pa.array(self.xid.astype(np.int64))
        return pa.RecordBatch.from_pydict(columns)


def _load_pyarrow(who: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError(
            f"{who} needs pyarrow: pip install 'pgwire-codec[arrow]'"
        ) from error
    return pyarrow
