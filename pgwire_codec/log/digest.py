"""What a segment holds, found out batch by batch: by its writer, and by whoever reads it again."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from pgwire_codec._impl import Decoder
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.codec.tables import MessageTable, tagged
from pgwire_codec.log.segment import Extent, Head, Part, Segment
from pgwire_codec.log.state import Follower, State
from pgwire_codec.log.tally import Tally
from pgwire_codec.parallel import summarise_pieces
from pgwire_codec.protocol.spec import COMMITS
from pgwire_codec.transactions.carry import Carry, RelationVersion
from pgwire_codec.transactions.summary import Summariser, Summary

#: Message bytes of a part, where nobody asks for another size.
PART_BYTES: Final = 8 << 20


class Digest:
    """Describes a segment by its record batches.

    Parameters
    ----------
    head : Head
        What is known when it begins.
    header : bytes-like
        The bytes of the file before the first part.
    part_bytes : int or None
        A part ends with the message that makes it so large or larger. None: the caller says where
        it ends.
    """

    _streaming: bool  # whether the next message stands inside a stream block
    _summariser: Summariser

    def __init__(self, head: Head, header: Any, part_bytes: int | None) -> None:
        self.head = head
        self._part_bytes = part_bytes
        self.file_hash = xxhash.xxh3_64(header)  # of the file's bytes so far
        self._header = Extent(0, len(header), self.file_hash.hexdigest())
        self.bytes = len(header)
        self.messages = 0
        self.message_bytes = 0
        self._commits = _Commits()
        self._times: tuple[np.datetime64, np.datetime64] | None = None
        self._follower = Follower(head.before)
        self._tally = Tally(Decoder.codec, head.before.carry)
        self._parts: list[Part] = []
        self._begin_part()

    def add(self, records: pa.RecordBatch, data: Any) -> None:
        """Take the next record batch and its bytes in the file."""
        (messages,) = to_message_arrays(records.column("data"))
        streaming = self._streaming
        table = Decoder.codec.scan(messages, streaming=streaming, skip=True)
        self._streaming = table.streaming
        self._summariser.add(records.column("data"))
        self._tally.add(messages, table, streaming)
        self._commits.add(messages, table)
        self._add_times(records.column("time"))
        size = int(messages.offsets[-1] - messages.offsets[0])
        self.file_hash.update(data)
        self._part_hash.update(data)
        self.bytes += len(data)
        self.messages += len(messages)
        self.message_bytes += size
        self._part_messages += len(messages)
        self._undecodable += len(table.errors)
        self.part_message_bytes += size
        if self._part_bytes is not None and self.part_message_bytes >= self._part_bytes:
            self.end_part()

    @property
    def checksum(self) -> str:
        """Checksum of the file's bytes so far."""
        checksum: str = self.file_hash.hexdigest()
        return checksum

    def end_part(self) -> None:
        """Say that the next record batch begins a new part."""
        if self._part_messages:
            summary = self._summariser.summary()
            self._follower.follow(summary, self._part_first)
            self._parts.append(self._part(summary, self._follower.carry.delivered_lsn))
            self._begin_part()

    def state(self) -> State:
        """Give the state behind all that was added."""
        return self._behind()[0].state

    def carry(self) -> Carry:
        """Give the carry behind all that was added: a copy."""
        return self._behind()[0].carry.copy()

    def segment(self, *, sealed: bool) -> Segment:
        """Describe all that was added."""
        follower, parts = self._behind()
        first, last = (None, None) if self._times is None else self._times
        held = {version for _, version in self.head.before.carry.scope.relations.values()}
        told: list[RelationVersion] = [
            version for version in dict.fromkeys(follower.versions) if version not in held
        ]
        return Segment(
            head=self.head,
            sealed=sealed,
            header=self._header,
            bytes=self.bytes,
            messages=self.messages,
            message_bytes=self.message_bytes,
            commits=self._commits.count,
            first_commit_lsn=self._commits.first,
            last_commit_lsn=self._commits.last,
            first_time=first,
            last_time=last,
            delivered_lsn=follower.carry.delivered_lsn,
            parts=tuple(parts),
            tables=self._tally.counts(),
            versions=tuple(told),
            opened=follower.state.opened,
        )

    def _begin_part(self) -> None:
        self._part_offset = self.bytes
        self._part_hash = xxhash.xxh3_64()
        self._part_first = self.head.first_ordinal + self.messages
        self._part_messages = 0
        self._undecodable = 0
        self.part_message_bytes = 0
        new_session = self.head.new_session and not self._parts
        self._streaming = False if new_session else self._follower.carry.in_block
        self._summariser = summarise_pieces(
            on_error="skip",
            new_session=new_session,
            in_block=self._streaming,
            delivered_lsn=self._follower.carry.delivered_lsn,
        )

    def _behind(self) -> tuple[Follower, list[Part]]:
        """Follow the part that is not ended yet, to one side."""
        if not self._part_messages:
            return self._follower, self._parts
        follower = self._follower.copy()
        summary = self._summariser.summary()
        follower.follow(summary, self._part_first)
        return follower, [*self._parts, self._part(summary, follower.carry.delivered_lsn)]

    def _part(self, summary: Summary, delivered_lsn: int) -> Part:
        return Part(
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
        )

    def _add_times(self, times: pa.Array) -> None:
        known = times.drop_null() if times.null_count else times
        if len(known):
            first, last = known[0].value, known[len(known) - 1].value
            if self._times is not None:
                first = self._times[0].astype(np.int64)
            self._times = (np.datetime64(int(first), "us"), np.datetime64(last, "us"))


class _Commits:
    """The messages that commit a transaction: how many, and the LSNs of the first and the last."""

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
