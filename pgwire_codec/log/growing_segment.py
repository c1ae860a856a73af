"""GrowingSegment: the segment that a writer appends to."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import pyarrow as pa

from pgwire_codec.log.bounds import DurableSegment
from pgwire_codec.log.ipc_file import END, encode_batch, encode_header
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, SegmentHeader
from pgwire_codec.log.segment_builder import SegmentBuilder
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.state import LogState
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope


class GrowingSegment:
    """A new segment: its file, and its description so far.

    Parameters
    ----------
    store : Store
        Store of the log.
    header : SegmentHeader
        Facts that are known before its first message.
    scope : Scope
        The relations known there. It must not change before the segment is sealed.
    options : pyarrow.ipc.IpcWriteOptions
        Compression of the record batches.
    part_bytes : int or None
        Message bytes of a part. None: the caller ends each part.
    """

    def __init__(
        self,
        store: Store,
        header: SegmentHeader,
        scope: Scope,
        options: pa.ipc.IpcWriteOptions,
        part_bytes: int | None,
    ) -> None:
        data = encode_header(header)
        self.name = header.name
        self._store = store
        self._encoding = header.encoding
        self._options = options
        self._builder = SegmentBuilder(header, scope, data, part_bytes)
        self._begun = monotonic()
        self._file = store.create(header.name + SEGMENT)
        try:
            self._file.write(data)
        except BaseException:
            self._file.abandon()
            raise

    @property
    def age(self) -> float:
        """Seconds since it was created."""
        return monotonic() - self._begun

    @property
    def bytes(self) -> int:
        """Bytes of the file so far."""
        return self._builder.bytes

    @property
    def message_bytes(self) -> int:
        """Bytes of the messages so far."""
        return self._builder.message_bytes

    @property
    def durable(self) -> DurableSegment:
        """The segment so far, for the watermark after :meth:`sync`."""
        builder = self._builder
        return DurableSegment(self.name, builder.bytes, builder.messages, builder.checksum)

    @property
    def state(self) -> LogState:
        """State after the last message."""
        return self._builder.state()

    @property
    def delivered_lsn(self) -> int:
        """Commit LSN of the last transaction delivered in it or before it."""
        return self._builder.delivered_lsn

    @property
    def declared(self) -> Scope:
        """The relations that it declared, and the types and the names; of a sealed segment."""
        return self._builder.declared

    def write(self, records: pa.RecordBatch) -> None:
        """Append a record batch."""
        data = encode_batch(records, self._encoding, self._options)
        self._file.write(data)
        self._builder.add(records, data)

    def sync(self) -> None:
        """Make the file durable so far."""
        self._file.sync()

    def end_part(self) -> None:
        """Begin a part with the next record batch."""
        self._builder.end_part()

    def begin_session(self) -> None:
        """Begin a session, and a part, with the next record batch; of a joined segment."""
        self._builder.begin_session()

    def complete(self) -> Segment:
        """Complete the file, and return the segment. It has no sidecar yet."""
        self._file.write(END)
        self._file.close()
        self._builder.end_part()
        segment = self._builder.segment(sealed=True)
        return replace(segment, bytes=segment.bytes + len(END))

    def seal(self) -> Segment:
        """Complete the file and write the sidecar; return the segment."""
        segment = self.complete()
        self._store.write(segment.name + SIDECAR, segment_to_bytes(segment))
        return segment

    def abandon(self) -> None:
        """Close the file, complete or not."""
        self._file.abandon()
