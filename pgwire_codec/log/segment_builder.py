"""SegmentBuilder: the description of a segment, built from its record batches."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from pgwire_codec._impl import Decoder
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.codec.tables import MessageTable, tagged
from pgwire_codec.log.commit_times import TimeRange, commit_times
from pgwire_codec.log.segment import Extent, Segment, SegmentHeader, SegmentPart
from pgwire_codec.log.state import LogState, StateTracker
from pgwire_codec.log.table_counts import TableCounter
from pgwire_codec.parallel import summarise_pieces
from pgwire_codec.protocol.tags import COMMITS
from pgwire_codec.transactions.carry import RelationVersion, Scope, unique_versions
from pgwire_codec.transactions.summary import Summariser, Summary

#: Message bytes of a part, by default.
PART_BYTES: Final = 8 << 20

_MOST_WAITING: Final = 64 << 10  # message bytes that are described at once

#: Tags of messages that commit a transaction, and those of plain transactions on end.
_COMMIT: Final = re.compile(b"[%s]" % COMMITS)
_PLAIN: Final = re.compile(rb"(?:B[IUDTRYOM]*C)+")
_BEGIN_OR_COMMIT: Final = re.compile(rb"[BC]")
_BEGIN_BYTES: Final = 1 + 8 + 8 + 4  # tag, final LSN, commit time, transaction ID
_COMMIT_BYTES: Final = 1 + 1 + 8 + 8 + 8  # tag, flags, commit LSN, end LSN, commit time


class SegmentBuilder:
    """Builds the description of a segment, while it is written or read.

    Parameters
    ----------
    header : SegmentHeader
        Facts that are known before its first message.
    scope : Scope
        The relations known there. It must not change as long as the builder is used.
    header_data : bytes-like
        Bytes of the file before the first part.
    part_bytes : int or None
        A part ends with the message that makes it so large or larger. None: the caller ends each
        part.
    """

    _streaming: bool  # whether the next message to be described is inside a stream block
    _commit_times: TimeRange | None  # of the current part
    part_message_bytes: int
    _summariser: Summariser

    def __init__(
        self, header: SegmentHeader, scope: Scope, header_data: Any, part_bytes: int | None
    ) -> None:
        self.header = header
        self._scope = scope
        self._part_bytes = part_bytes
        self.file_hash = xxhash.xxh3_64(header_data)  # of the file's bytes so far
        self._header_extent = Extent(0, len(header_data), self.file_hash.hexdigest())
        self.bytes = len(header_data)
        self.messages = 0
        self.message_bytes = 0
        self._commits = _Commits()
        self._times: tuple[np.datetime64, np.datetime64] | None = None
        self._tracker = StateTracker(header.before, scope)
        self._counter = TableCounter(Decoder.codec, scope, header.before.carry)
        self.parts: list[SegmentPart] = []  # that have ended
        self._waiting: list[pa.RecordBatch] = []  # to be described: they cost the same as one
        self._waiting_bytes = 0
        #: Number of versions of relations that were sent, and those that were not valid before.
        self._declared: tuple[int, tuple[RelationVersion, ...]] = (0, ())
        self._delivered_lsn: int | None = None  # after the last batch, once it was asked for
        self._begin_part(new_session=header.new_session)

    def add(self, records: pa.RecordBatch, data: Any) -> None:
        """Add the next record batch and its bytes in the file."""
        (messages,) = to_message_arrays(records.column("data"), Decoder.codec)
        size = int(messages.offsets[-1] - messages.offsets[0])
        self._waiting.append(records)
        self._waiting_bytes += size
        if self._delivered_lsn is not None:
            self._delivered_lsn = _delivered_after(messages, self._delivered_lsn)
        self.file_hash.update(data)
        self._part_hash.update(data)
        self.bytes += len(data)
        self.messages += len(messages)
        self.message_bytes += size
        self._part_messages += len(messages)
        self.part_message_bytes += size
        if self._part_bytes is not None and self.part_message_bytes >= self._part_bytes:
            self.end_part()
        elif self._waiting_bytes >= _MOST_WAITING:
            self._describe()

    def _describe(self) -> None:
        """Describe the record batches that wait for it."""
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        records = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        (messages,) = to_message_arrays(records.column("data"), Decoder.codec)
        streaming = self._streaming
        table = Decoder.codec.scan(messages, streaming=streaming, skip=True)
        self._streaming = table.streaming
        self._summariser.add(records.column("data"))
        self._counter.add(messages, table, streaming)
        self._commits.add(messages, table)
        if (times := commit_times(messages, table)) is not None:
            self._commit_times = times.union(self._commit_times)
        self._add_times(records.column("time"))
        self._undecodable += len(table.errors)

    @property
    def checksum(self) -> str:
        """Checksum of the file's bytes so far."""
        checksum: str = self.file_hash.hexdigest()
        return checksum

    def end_part(self) -> None:
        """End the current part: the next record batch begins a new one."""
        if self._part_messages:
            self._describe()
            summary = self._summariser.summary()
            self._tracker.apply(summary, self._part_first)
            self.parts.append(self._part(summary, self._tracker.carry.delivered_lsn))
            self._begin_part(new_session=False)

    def begin_session(self) -> None:
        """Begin a session with the next record batch, and a part."""
        self.end_part()
        self._begin_part(new_session=True)

    def state(self) -> LogState:
        """Return the state after the last batch."""
        return self._closed_parts()[0].state

    @property
    def delivered_lsn(self) -> int:
        """Commit LSN of the last transaction delivered up to the last batch."""
        if self._delivered_lsn is None:
            self._delivered_lsn = self._closed_parts()[0].carry.delivered_lsn
        return self._delivered_lsn

    @property
    def declared(self) -> Scope:
        """The relations that its whole parts declared, and the types and the names."""
        return self._tracker.declared

    def segment(self, *, sealed: bool) -> Segment:
        """Return the description of the segment up to the last batch."""
        tracker, parts = self._closed_parts()
        first, last = (None, None) if self._times is None else self._times
        if len(tracker.versions) != self._declared[0]:
            self._declared = len(tracker.versions), self._unknown(tracker.versions)
        return Segment(
            header=self.header,
            sealed=sealed,
            header_extent=self._header_extent,
            bytes=self.bytes,
            messages=self.messages,
            message_bytes=self.message_bytes,
            commits=self._commits.count,
            first_commit_lsn=self._commits.first,
            last_commit_lsn=self._commits.last,
            first_time=first,
            last_time=last,
            delivered_lsn=tracker.carry.delivered_lsn,
            parts=tuple(parts),
            tables=self._counter.counts(),
            versions=self._declared[1],
            opened=tracker.state.opened,
        )

    def _unknown(self, versions: list[RelationVersion]) -> tuple[RelationVersion, ...]:
        """Return those of some versions that were not valid before the segment."""
        known = self._scope.relations
        return tuple(
            version
            for version in unique_versions(versions)
            if known.get(version.relation.oid, (0, None))[1] != version
        )

    def _begin_part(self, *, new_session: bool) -> None:
        self._part_offset = self.bytes
        self._part_hash = xxhash.xxh3_64()
        self._part_first = self.header.first_ordinal + self.messages
        self._part_messages = 0
        self._undecodable = 0
        self._commit_times = None
        self.part_message_bytes = 0
        self._streaming = False if new_session else self._tracker.carry.in_block
        self._summariser = summarise_pieces(
            on_error="skip",
            new_session=new_session,
            in_block=self._streaming,
            delivered_lsn=self._tracker.carry.delivered_lsn,
        )

    def _closed_parts(self) -> tuple[StateTracker, list[SegmentPart]]:
        """Return the state and the parts as if the current part ended here."""
        if not self._part_messages:
            return self._tracker, self.parts
        self._describe()
        tracker = self._tracker.copy()
        summary = self._summariser.summary()
        tracker.apply(summary, self._part_first)
        return tracker, [*self.parts, self._part(summary, tracker.carry.delivered_lsn)]

    def _part(self, summary: Summary, delivered_lsn: int) -> SegmentPart:
        return SegmentPart(
            extent=Extent(
                self._part_offset, self.bytes - self._part_offset, self._part_hash.hexdigest()
            ),
            first_ordinal=self._part_first,
            messages=self._part_messages,
            message_bytes=self.part_message_bytes,
            summary=summary,
            delivered_lsn=delivered_lsn,
            undecodable=self._undecodable,
            committed=self._summariser.committed,
            commit_times=self._commit_times,
        )

    def _add_times(self, times: pa.Array) -> None:
        known = times.drop_null() if times.null_count else times
        if len(known):
            first, last = known[0].value, known[len(known) - 1].value
            if self._times is not None:
                first = self._times[0].astype(np.int64)
            self._times = (np.datetime64(int(first), "us"), np.datetime64(last, "us"))


def _delivered_after(messages: Messages, delivered_lsn: int) -> int | None:
    """Return the commit LSN of the last transaction delivered after further messages.

    Returns None if only a description shows it.
    """
    starts = messages.offsets[:-1]
    if int(messages.offsets[-1] - starts[0]) >= _MOST_WAITING:  # they are described at once
        return None
    if (messages.offsets[1:] == starts).any():  # messages without a tag
        return None
    tags = messages.data[starts].tobytes()
    if not _COMMIT.search(tags):
        return delivered_lsn
    if not _PLAIN.fullmatch(tags):
        return None
    begun = 0
    for found in _BEGIN_OR_COMMIT.finditer(tags):
        message = messages[found.start()]
        if found[0] == b"B":
            if len(message) != _BEGIN_BYTES:
                return None
            begun = int.from_bytes(message[1:9], "big")
        elif len(message) != _COMMIT_BYTES or int.from_bytes(message[2:10], "big") != begun:
            return None
        else:
            delivered_lsn = max(delivered_lsn, begun)
    return delivered_lsn


class _Commits:
    """Number of messages that commit a transaction, and LSNs of the first and the last."""

    def __init__(self) -> None:
        self.count = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, messages: Messages, table: MessageTable) -> None:
        places = np.flatnonzero(tagged(table.kind, COMMITS))
        if len(places):
            self.count += len(places)
            if self.first is None:
                self.first = _commit_lsn(messages, int(places[0]))
            self.last = _commit_lsn(messages, int(places[-1]))


def _commit_lsn(messages: Messages, index: int) -> int:
    lsn: int = Decoder.codec.decode_message(messages[index]).commit_lsn  # type: ignore[union-attr]
    return lsn
