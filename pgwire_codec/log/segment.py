"""A segment and its parts, as its sidecar describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pgwire_codec.log.checked_json import Count
from pgwire_codec.log.source import Source
from pgwire_codec.log.state import Follower, State
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.transactions.resolver import Key
from pgwire_codec.transactions.summary import Summary

SEGMENT: Final = ".arrow"
SIDECAR: Final = ".json"


def segment_name(first_ordinal: int) -> str:
    """Name a segment, without suffix: names sort as ordinals do."""
    return f"{first_ordinal:020d}"


class Extent(NamedTuple):
    """Bytes of a segment's file, and their checksum.

    Attributes
    ----------
    offset, length : int
    checksum : str
        Of these bytes alone: XXH3 with 64 bits, 16 hexadecimal digits.
    """

    offset: Count
    length: Count
    checksum: str

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Head:
    """What is known when a segment begins.

    Attributes
    ----------
    log_id : str
        Of the log, as in its manifest.
    source : Source
        Where its messages come from.
    session : int
        Number of the connection, from 1.
    new_session : bool
        Whether the segment is the first of its session.
    snapshot : bool
        Whether its messages stand for tables as they were, not for changes that happened.
    first_ordinal : int
        Of its first message.
    before : State
        What the messages before it leave behind.
    """

    log_id: str
    source: Source
    session: int
    new_session: bool
    snapshot: bool
    first_ordinal: int
    before: State

    @property
    def name(self) -> str:
        """The names of the segment's files, without suffix."""
        return segment_name(self.first_ordinal)


@dataclass(frozen=True, slots=True)
class Part:
    """A run of record batches in a segment: the unit of parallel decode.

    Attributes
    ----------
    extent : Extent
        Its bytes in the file.
    first_ordinal, messages, message_bytes : int
        What is in it.
    summary : Summary
        What it does to a carry.
    delivered_lsn : int
        Commit LSN of the last transaction delivered in it or before it.
    undecodable : int
        How many of its messages do not decode.
    committed : int
        Changes of the plain transactions that are whole in it, less those delivered before. The
        summary has those of the other transactions.
    """

    extent: Extent
    first_ordinal: int
    messages: int
    message_bytes: int
    summary: Summary
    delivered_lsn: int
    undecodable: int
    committed: int

    @property
    def end_ordinal(self) -> int:
        """One past its last message's ordinal."""
        return self.first_ordinal + self.messages


@dataclass(frozen=True, slots=True)
class TableCount:
    """How many changes of a table were sent, whatever became of them, and their messages' bytes."""

    table: str
    inserts: Count = 0
    updates: Count = 0
    deletes: Count = 0
    truncates: Count = 0
    bytes: Count = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of messages in one file.

    Attributes
    ----------
    head : Head
        What was known when it began.
    sealed : bool
        Whether it is complete and has a sidecar.
    header : Extent
        Bytes of the file before the first part.
    bytes : int
        Of the file; of one that still grows, those that may be read.
    messages, message_bytes : int
        What is in it.
    commits : int
        Messages that commit a transaction, repeated ones among them.
    first_commit_lsn, last_commit_lsn : int or None
        Of the first and the last of those.
    first_time, last_time : numpy.datetime64 or None
        The server's clock (UTC, microseconds) when it sent the first and the last message.
    delivered_lsn : int
        Commit LSN of the last transaction delivered in it or before it.
    parts : tuple of Part
        In order, without gaps.
    tables : tuple of TableCount
        By name.
    versions : tuple of RelationVersion
        Versions of relations that are told in it and held not before, in order.
    opened : dict of Key to int
        The transactions that are open behind it, with the ordinal from which on their messages are
        needed.
    """

    head: Head
    sealed: bool
    header: Extent
    bytes: int
    messages: int
    message_bytes: int
    commits: int
    first_commit_lsn: int | None
    last_commit_lsn: int | None
    first_time: np.datetime64 | None
    last_time: np.datetime64 | None
    delivered_lsn: int
    parts: tuple[Part, ...]
    tables: tuple[TableCount, ...]
    versions: tuple[RelationVersion, ...]
    opened: dict[Key, int]

    @property
    def name(self) -> str:
        """The names of its files, without suffix."""
        return self.head.name

    @property
    def first_ordinal(self) -> int:
        """Of its first message."""
        return self.head.first_ordinal

    @property
    def end_ordinal(self) -> int:
        """One past its last message's ordinal."""
        return self.head.first_ordinal + self.messages

    def state(self) -> State:
        """Give the state behind the segment."""
        follower = Follower(self.head.before)
        for part in self.parts:
            follower.follow(part.summary, part.first_ordinal)
        return follower.state
