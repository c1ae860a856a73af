"""A segment and its parts, as its sidecar describes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from pgwire_codec.carry import RelationVersion
from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import dump, load
from pgwire_codec.log.source import Source, source_from_json, source_to_json
from pgwire_codec.log.state import (
    Follower,
    State,
    opened_from_json,
    opened_to_json,
    state_from_json,
    state_to_json,
)
from pgwire_codec.log.state_json import (
    summary_from_json,
    summary_to_json,
    version_from_json,
    version_to_json,
)
from pgwire_codec.lsn import format_lsn, parse_lsn
from pgwire_codec.summary import Summary
from pgwire_codec.transactions import Key

#: Of segments, sidecars and the watermark. A reader refuses one that it does not know.
FORMAT: Final = 1

SEGMENT: Final = ".arrow"
SIDECAR: Final = ".json"


def segment_name(first_ordinal: int) -> str:
    """Name a segment, without suffix: names sort as ordinals do."""
    return f"{first_ordinal:020d}"


@dataclass(frozen=True, slots=True)
class Head:
    """What is known when a segment begins.

    Attributes
    ----------
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
    offset, length : int
        Where its bytes stand in the file.
    first_ordinal, messages, message_bytes : int
        What is in it.
    crc32 : int
        Of the file's bytes from its start to the part's end.
    summary : Summary
        What it does to a carry.
    delivered_lsn : int
        Commit LSN of the last transaction delivered in it or before it.
    undecodable : int
        How many of its messages do not decode.
    """

    offset: int
    length: int
    first_ordinal: int
    messages: int
    message_bytes: int
    crc32: int
    summary: Summary
    delivered_lsn: int
    undecodable: int

    @property
    def end_ordinal(self) -> int:
        """One past its last message's ordinal."""
        return self.first_ordinal + self.messages


@dataclass(frozen=True, slots=True)
class TableCount:
    """How many changes of a table were told, whatever became of them, and their messages' bytes."""

    table: str
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of messages in one file.

    Attributes
    ----------
    head : Head
        What was known when it began.
    sealed : bool
        Whether it is complete and has a sidecar.
    header : int
        Bytes of the file before the first part.
    header_crc32 : int
        Of these.
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
    header: int
    header_crc32: int
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


def segment_to_bytes(segment: Segment) -> bytes:
    """Give the sidecar of a sealed segment."""
    return dump(
        {
            "format": FORMAT,
            **head_to_json(segment.head),
            "header": segment.header,
            "header_crc32": segment.header_crc32,
            "bytes": segment.bytes,
            "messages": segment.messages,
            "message_bytes": segment.message_bytes,
            "last_ordinal": segment.end_ordinal - 1,
            "commits": segment.commits,
            "first_commit_lsn": lsn_to_json(segment.first_commit_lsn),
            "last_commit_lsn": lsn_to_json(segment.last_commit_lsn),
            "first_time": _time_to_json(segment.first_time),
            "last_time": _time_to_json(segment.last_time),
            "delivered_lsn": lsn_to_json(segment.delivered_lsn),
            "tables": [asdict(each) for each in segment.tables],
            "versions": [version_to_json(each) for each in segment.versions],
            "opened": opened_to_json(segment.opened),
            "parts": [_part_to_json(part) for part in segment.parts],
        }
    )


def segment_from_bytes(data: bytes, file: str) -> Segment:
    """Read a sidecar; ``LogError`` for one that is damaged. ``file`` is its name, for people."""
    value = load(data, file)
    check_format(value["format"], file)
    return Segment(
        head=head_from_json(value),
        sealed=True,
        header=value["header"],
        header_crc32=value["header_crc32"],
        bytes=value["bytes"],
        messages=value["messages"],
        message_bytes=value["message_bytes"],
        commits=value["commits"],
        first_commit_lsn=lsn_from_json(value["first_commit_lsn"]),
        last_commit_lsn=lsn_from_json(value["last_commit_lsn"]),
        first_time=_time_from_json(value["first_time"]),
        last_time=_time_from_json(value["last_time"]),
        delivered_lsn=parse_lsn(value["delivered_lsn"]),
        parts=tuple(map(_part_from_json, value["parts"])),
        tables=tuple(TableCount(**each) for each in value["tables"]),
        versions=tuple(map(version_from_json, value["versions"])),
        opened=opened_from_json(value["opened"]),
    )


def check_format(found: object, file: str) -> None:
    """Raise ``LogError`` for a version of the format that is not this one."""
    if found != FORMAT:
        raise LogError(
            f"{file} has format version {found}, and this release reads {FORMAT}: "
            "use the release of pgwire-codec that wrote it, or a newer one"
        )


def head_to_json(head: Head) -> dict[str, Any]:
    return {
        "source": source_to_json(head.source),
        "session": head.session,
        "new_session": head.new_session,
        "snapshot": head.snapshot,
        "first_ordinal": head.first_ordinal,
        "before": state_to_json(head.before),
    }


def head_from_json(value: dict[str, Any]) -> Head:
    return Head(
        source=source_from_json(value["source"]),
        session=value["session"],
        new_session=value["new_session"],
        snapshot=value["snapshot"],
        first_ordinal=value["first_ordinal"],
        before=state_from_json(value["before"]),
    )


def lsn_to_json(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def lsn_from_json(value: str | None) -> int | None:
    return None if value is None else parse_lsn(value)


def _time_to_json(time: np.datetime64 | None) -> str | None:
    return None if time is None else str(time)


def _time_from_json(value: str | None) -> np.datetime64 | None:
    return None if value is None else np.datetime64(value, "us")


def _part_to_json(part: Part) -> dict[str, Any]:
    return {
        "offset": part.offset,
        "length": part.length,
        "first_ordinal": part.first_ordinal,
        "messages": part.messages,
        "message_bytes": part.message_bytes,
        "crc32": part.crc32,
        "delivered_lsn": format_lsn(part.delivered_lsn),
        "undecodable": part.undecodable,
        "summary": summary_to_json(part.summary),
    }


def _part_from_json(value: dict[str, Any]) -> Part:
    return Part(
        offset=value["offset"],
        length=value["length"],
        first_ordinal=value["first_ordinal"],
        messages=value["messages"],
        message_bytes=value["message_bytes"],
        crc32=value["crc32"],
        summary=summary_from_json(value["summary"]),
        delivered_lsn=parse_lsn(value["delivered_lsn"]),
        undecodable=value["undecodable"],
    )
