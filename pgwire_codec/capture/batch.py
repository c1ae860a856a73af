"""Batches of messages in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.codec.tables import tagged
from pgwire_codec.errors import missing_extra
from pgwire_codec.format import format_count, format_size
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.tags import ENDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: 2000-01-01, the zero of the protocol's microseconds.
EPOCH: Final = np.datetime64(EPOCH_MICROSECONDS, "us")


@dataclass(frozen=True, eq=False, repr=False)
class MessageBatch:
    """Messages of one stream, in the order of arrival.

    Attributes
    ----------
    buffer : numpy.ndarray of uint8
        Concatenated bytes of the messages, without their frames.
    offsets : numpy.ndarray of int32
        Offset of each message in it, and the end of the last one.
    lsn : numpy.ndarray of uint64
        WAL position of each message's frame. It does not order messages: a walsender sends 0 with
        a Relation, and transactions overlap.
    time : numpy.ndarray of datetime64[us]
        The server's clock (UTC) when it sent each message; NaT if the source does not report it.
    xid : numpy.ndarray of uint32 or None
        Transaction IDs, from a source that reports them with each message (``peek``).
    first : int
        Number of the batch's first message in the stream, counted from 0.
    confirm_lsn : int
        LSN that may be confirmed once this batch and all before it are durable: the end of the
        last transaction in them.
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

    def __repr__(self) -> str:
        lsns = self.lsn[self.lsn > 0]
        lsn_range = (
            f", LSN {format_lsn(int(lsns.min()))} to {format_lsn(int(lsns.max()))}"
            if len(lsns)
            else ""
        )
        messages, size = format_count(len(self), "message"), format_size(self.nbytes)
        return f"<MessageBatch: {messages}, {size}{lsn_range}>"

    @cached_property
    def data(self) -> list[bytes]:
        """Messages, one ``bytes`` each: a copy, made once."""
        buffer, offsets = self.buffer.tobytes(), self.offsets.tolist()
        return [buffer[start:end] for start, end in pairwise(offsets)]

    @property
    def nbytes(self) -> int:
        """Bytes of all messages together."""
        return len(self.buffer)

    def until(self, lsn: int) -> MessageBatch:
        """Return the messages before the first one that ends a transaction after an LSN.

        If there is one, its transaction remains without an end.
        """
        tags = self.buffer[self.offsets[:-1]]
        # The LSN of such a message is that of the transaction's end, of a Message its own.
        later = (tagged(tags, ENDS) & (self.lsn > lsn)) | ((tags == ord("M")) & (self.lsn >= lsn))
        if not later.any():
            return self
        count = int(later.argmax())
        return replace(
            self,
            buffer=self.buffer[: self.offsets[count]],
            offsets=self.offsets[: count + 1],
            lsn=self.lsn[:count],
            time=self.time[:count],
            xid=None if self.xid is None else self.xid[:count],
            confirm_lsn=min(self.confirm_lsn, lsn),
        )

    def messages(self) -> Any:
        """Return the messages as a ``pyarrow.BinaryArray``, without a copy.

        Needs the extra ``arrow``.
        """
        pa = _load_pyarrow("MessageBatch.messages()")
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.buffer)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)

    def to_arrow(self) -> Any:
        """Return the batch as a ``pyarrow.RecordBatch``; needs the extra ``arrow``.

        Its columns are ``ordinal`` int64 (the order of arrival), ``lsn`` int64, ``time``
        timestamp[us, UTC], ``data`` binary, and ``xid`` int64 if the source reports it. Integers
        are signed, because Spark has no unsigned types.
        """
        pa = _load_pyarrow("MessageBatch.to_arrow()")
        columns = {
            "ordinal": pa.array(np.arange(self.first, self.first + len(self), dtype=np.int64)),
            "lsn": pa.array(self.lsn.astype(np.int64)),
            "time": pa.array(self.time, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "data": self.messages(),
        }
        if self.xid is not None:
            columns["xid"] = pa.array(self.xid.astype(np.int64))
        return pa.RecordBatch.from_pydict(columns)


def _load_pyarrow(method: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise missing_extra(f"{method} needs pyarrow", "arrow") from error
    return pyarrow
