"""Description of a segment and its parts, as a sidecar contains it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pgwire_codec.log.checked_json import Count
from pgwire_codec.log.commit_times import TimeRange
from pgwire_codec.log.message_columns import Encoding
from pgwire_codec.log.source import LogSource
from pgwire_codec.log.state import LogState, StateTracker
from pgwire_codec.transactions.carry import RelationVersion, Scope
from pgwire_codec.transactions.resolver import Key
from pgwire_codec.transactions.summary import Summary

SEGMENT: Final = ".arrow"
SIDECAR: Final = ".json"


#: Digits of an ordinal in the name of a file.
DIGITS: Final = 20


def segment_name(first_ordinal: int, end_ordinal: int | None = None) -> str:
    """Return the name of a segment, without suffix. Names sort as ordinals do.

    The name of a segment that a compaction joined contains the ordinal after its last message, too.
    """
    name = f"{first_ordinal:0{DIGITS}d}"
    return name if end_ordinal is None else f"{name}-{end_ordinal:0{DIGITS}d}"


def first_ordinal_of(name: str) -> int:
    """Return the ordinal of the first message of the segment with a name."""
    return int(name[:DIGITS])


def end_ordinal_of(name: str) -> int | None:
    """Return the ordinal after the last message of a joined segment, by its name.

    Returns None for a segment that a writer wrote, whose name does not contain it.
    """
    return int(name[DIGITS + 1 :]) if len(name) > DIGITS else None


class Extent(NamedTuple):
    """Bytes of a segment's file, and their checksum.

    Attributes
    ----------
    offset, length : int
        Position in the file, and number of bytes.
    checksum : str
        Checksum of these bytes alone: XXH3 with 64 bits, 16 hexadecimal digits.
    """

    offset: Count
    length: Count
    checksum: str

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Facts that are known before the first message of a segment.

    Attributes
    ----------
    log_id : str
        Identifier of the log, as in its manifest.
    source : LogSource
        Replication slot that its messages come from.
    session : int
        Number of the connection of its first message, from 1.
    new_session : bool
        Whether the session begins with its first message. In a joined segment, others may begin
        with later parts.
    snapshot : bool
        Whether its messages represent the rows of tables, not changes.
    first_ordinal : int
        Ordinal of its first message.
    before : LogState
        State before its first message.
    encoding : {"plain", "differences"}
        Representation of ordinals, LSNs and times in its file: plain values or, if it is
        compressed, differences from the message before.
    end_ordinal : int or None
        Ordinal after the last message of a segment that a compaction joined from others; None for
        one that a writer wrote.
    """

    log_id: str
    source: LogSource
    session: int
    new_session: bool
    snapshot: bool
    first_ordinal: int
    before: LogState
    encoding: Encoding = "plain"
    end_ordinal: int | None = None

    @property
    def name(self) -> str:
        """Name of the segment's files, without suffix."""
        return segment_name(self.first_ordinal, self.end_ordinal)


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A run of record batches in a segment: the unit of parallel decode.

    Attributes
    ----------
    extent : Extent
        Its bytes in the file.
    first_ordinal, messages, message_bytes : int
        Ordinal of its first message, and the number and the bytes of its messages.
    summary : Summary
        Effect on a carry.
    delivered_lsn : int
        Commit LSN of the last transaction delivered in it or before it.
    undecodable : int
        Number of messages that do not decode.
    committed : int
        Number of changes of the plain transactions that are whole in it, less those delivered
        before. The summary has those of the other transactions.
    commit_times : TimeRange or None
        Earliest and latest commit time of the transactions that commit in it. None: no transaction
        does, or it is of a segment that an earlier release sealed.
    """

    extent: Extent
    first_ordinal: int
    messages: int
    message_bytes: int
    summary: Summary
    delivered_lsn: int
    undecodable: int
    committed: int
    commit_times: TimeRange | None = None

    @property
    def end_ordinal(self) -> int:
        """Ordinal after its last message."""
        return self.first_ordinal + self.messages

    def may_change(self, relations: Collection[int]) -> bool:
        """Return whether it may have changes of relations, by their OIDs.

        True also if it has messages that do not decode, for a reader to report their error.
        """
        found = self.summary.relations
        return found is None or self.undecodable > 0 or not set(relations).isdisjoint(found)

    def may_commit(self, times: TimeRange) -> bool:
        """Return whether transactions may commit in it at some times."""
        found = self.commit_times
        return found is None or self.undecodable > 0 or times.overlaps(*found)


@dataclass(frozen=True, slots=True)
class TableCount:
    """Number of changes of a table that were sent, committed or not, and their messages' bytes."""

    table: str
    inserts: Count = 0
    updates: Count = 0
    deletes: Count = 0
    truncates: Count = 0
    bytes: Count = 0


@dataclass(frozen=True, slots=True)
class RelationCount(TableCount):
    """The same of one relation under one name; ``relation_oid`` is 0 in a segment of format 2."""

    relation_oid: Count = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of messages in one file.

    Attributes
    ----------
    header : SegmentHeader
        Facts that were known before its first message.
    sealed : bool
        Whether it is complete and has a sidecar.
    header_extent : Extent
        Bytes of the file before the first part.
    bytes : int
        Bytes of the file; of one that still grows, those that may be read.
    messages, message_bytes : int
        Number and bytes of its messages.
    commits : int
        Number of messages that commit a transaction, including repeated ones.
    first_commit_lsn, last_commit_lsn : int or None
        Commit LSNs of the first and the last of those.
    first_time, last_time : numpy.datetime64 or None
        The server's clock (UTC, microseconds) when it sent the first and the last message.
    delivered_lsn : int
        Commit LSN of the last transaction delivered in it or before it.
    parts : tuple of SegmentPart
        In order, without gaps.
    tables : tuple of RelationCount
        By name and OID.
    versions : tuple of RelationVersion
        Versions of relations that it declares and that were not valid before it, in order.
    opened : dict of Key to int
        The transactions that are open at its end, with the first ordinal that they need.
    known : Scope or None
        The relations known before it. Only the sidecar of a log's first segment contains them,
        after pruning, and those that an earlier release wrote.
    """

    header: SegmentHeader
    sealed: bool
    header_extent: Extent
    bytes: int
    messages: int
    message_bytes: int
    commits: int
    first_commit_lsn: int | None
    last_commit_lsn: int | None
    first_time: np.datetime64 | None
    last_time: np.datetime64 | None
    delivered_lsn: int
    parts: tuple[SegmentPart, ...]
    tables: tuple[RelationCount, ...]
    versions: tuple[RelationVersion, ...]
    opened: dict[Key, int]
    known: Scope | None = None

    @property
    def name(self) -> str:
        """Name of its files, without suffix."""
        return self.header.name

    @property
    def first_ordinal(self) -> int:
        """Ordinal of its first message."""
        return self.header.first_ordinal

    @property
    def end_ordinal(self) -> int:
        """Ordinal after its last message."""
        return self.header.first_ordinal + self.messages

    @property
    def session_starts(self) -> frozenset[int]:
        """Ordinals of the messages with which sessions begin in it."""
        return frozenset(part.first_ordinal for part in self.parts if part.summary.new_session)

    @property
    def last_session(self) -> int:
        """Number of the connection of its last message."""
        return self.header.session + len(self.session_starts - {self.first_ordinal})

    @property
    def commit_times(self) -> TimeRange | None:
        """Earliest and latest commit time in it; None if that of no part is known."""
        found: TimeRange | None = None
        for part in self.parts:
            found = found if part.commit_times is None else part.commit_times.union(found)
        return found

    def state(self) -> LogState:
        """Return the state after the segment."""
        return self._after(None).state

    def declared(self, scope: Scope) -> Scope:
        """Return the relations, types and names that it declares, from those known before it."""
        return self._after(scope).declared

    def _after(self, scope: Scope | None) -> StateTracker:
        tracker = StateTracker(self.header.before, scope)
        for part in self.parts:
            tracker.apply(part.summary, part.first_ordinal)
        return tracker
