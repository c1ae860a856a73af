"""GrowingReader: reads a segment while it grows, and each message of it once."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pgwire_codec.log.bounds import Watermark
from pgwire_codec.log.ipc_file import END, check_extent
from pgwire_codec.log.part_joining import join_small_parts
from pgwire_codec.log.recovery import add_messages, read_growing
from pgwire_codec.log.segment import SEGMENT, Extent, Segment
from pgwire_codec.log.segment_builder import PART_BYTES, SegmentBuilder
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope


class GrowingReader:
    """Reads a segment while it grows, and after it is sealed.

    A part ends where a reading ends: what comes next is read without what was read before. Small
    parts far from the end are joined.

    Parameters
    ----------
    store : Store
        Store of the log.
    name : str
        Name of the segment, without suffix.
    scope : Scope
        The relations known before it. It must not change as long as the reader is used.
    """

    def __init__(self, store: Store, name: str, scope: Scope) -> None:
        self.name = name
        self._store = store
        self._file = name + SEGMENT
        self._label = f"{store.name}/{self._file}"
        self._scope = scope
        self._builder: SegmentBuilder | None = None
        self._segment: Segment | None = None

    @property
    def declared(self) -> Scope:
        """The relations that it declared so far, and the types and the names."""
        assert self._builder is not None
        return self._builder.declared

    def read(self, watermark: Watermark) -> Segment:
        """Return the segment up to the watermark."""
        if self._segment is None or self._segment.bytes != watermark.bytes:
            begun = self._builder or self._scope
            self._builder = self._segment = None  # after an error, it is read from its beginning
            builder = read_growing(self._store, watermark, PART_BYTES, begun)
            self._take(builder)
        assert self._segment is not None
        return self._segment

    def complete(self, sealed: Segment) -> Segment:
        """Return the sealed segment that its sidecar describes, with the parts of this reader."""
        builder = self._builder
        end = sealed.bytes - len(END)
        if builder is None or builder.bytes > end:
            return sealed
        if builder.bytes < end:
            self._builder = None
            new = [part.extent for part in sealed.parts if part.extent.stop > builder.bytes]
            start = min(new[0].offset, builder.bytes)
            data = self._store.read_buffer(self._file, start, end - start)
            for extent in new:
                check_extent(data[extent.offset - start : extent.stop - start], extent, self._label)
            add_messages(builder, data[builder.bytes - start :], self._label, PART_BYTES)
            self._take(builder)
        if self._segment is None or self._segment.messages != sealed.messages:
            return sealed
        return replace(sealed, parts=self._segment.parts)

    def _take(self, builder: SegmentBuilder) -> None:
        """End a part of the description, and keep it."""
        builder.end_part()
        before = builder.header.before.carry.delivered_lsn
        join_small_parts(builder.parts, before, PART_BYTES, self._read, self._label)
        self._segment = builder.segment(sealed=False)
        self._builder = builder

    def _read(self, extent: Extent) -> pa.Buffer:
        return self._store.read_buffer(self._file, extent.offset, extent.length)
