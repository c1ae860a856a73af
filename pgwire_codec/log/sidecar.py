"""The sidecar of a segment: its description as a JSON file."""

from __future__ import annotations

import msgspec
import numpy as np

from pgwire_codec.log.checked_json import Count, dump, invalid, load
from pgwire_codec.log.segment import Extent, Head, Part, Segment, TableCount
from pgwire_codec.log.source import Source
from pgwire_codec.log.state import State
from pgwire_codec.log.state_json import (
    CarryJson,
    OpenedJson,
    SummaryJson,
    VersionJson,
    carry_from_json,
    carry_to_json,
    opened_from_json,
    opened_to_json,
    summary_from_json,
    summary_to_json,
    version_from_json,
    version_to_json,
)
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn


class HeadJson(msgspec.Struct):
    """A :class:`Head`; also in the metadata of the segment's Arrow schema."""

    log_id: str
    source: Source
    session: Count
    new_session: bool
    snapshot: bool
    first_ordinal: Count
    carry: CarryJson
    opened: list[OpenedJson]


class _Part(msgspec.Struct):
    extent: Extent
    first_ordinal: Count
    messages: Count
    message_bytes: Count
    summary: SummaryJson
    delivered_lsn: str
    undecodable: Count
    committed: Count


class _File(msgspec.Struct):
    head: HeadJson
    header: Extent
    bytes: Count
    messages: Count
    message_bytes: Count
    commits: Count
    first_commit_lsn: str | None
    last_commit_lsn: str | None
    first_time: str | None
    last_time: str | None
    delivered_lsn: str
    parts: list[_Part]
    tables: tuple[TableCount, ...]
    versions: list[VersionJson]
    opened: list[OpenedJson]


def segment_to_bytes(segment: Segment) -> bytes:
    """Return the sidecar of a sealed segment."""
    return dump(
        _File(
            head=head_to_json(segment.head),
            header=segment.header,
            bytes=segment.bytes,
            messages=segment.messages,
            message_bytes=segment.message_bytes,
            commits=segment.commits,
            first_commit_lsn=_lsn_to_json(segment.first_commit_lsn),
            last_commit_lsn=_lsn_to_json(segment.last_commit_lsn),
            first_time=_time_to_json(segment.first_time),
            last_time=_time_to_json(segment.last_time),
            delivered_lsn=format_lsn(segment.delivered_lsn),
            parts=[_part_to_json(part) for part in segment.parts],
            tables=segment.tables,
            versions=[version_to_json(version) for version in segment.versions],
            opened=opened_to_json(segment.opened),
        )
    )


def segment_from_bytes(data: bytes, file: str) -> Segment:
    """Read a sidecar; ``LogError`` for one that is damaged. ``file`` is its name for messages."""
    value = load(data, _File, file)
    try:
        segment = Segment(
            head=head_from_json(value.head),
            sealed=True,
            header=value.header,
            bytes=value.bytes,
            messages=value.messages,
            message_bytes=value.message_bytes,
            commits=value.commits,
            first_commit_lsn=_lsn_from_json(value.first_commit_lsn),
            last_commit_lsn=_lsn_from_json(value.last_commit_lsn),
            first_time=_time_from_json(value.first_time),
            last_time=_time_from_json(value.last_time),
            delivered_lsn=parse_lsn(value.delivered_lsn),
            parts=tuple(map(_part_from_json, value.parts)),
            tables=value.tables,
            versions=tuple(map(version_from_json, value.versions)),
            opened=opened_from_json(value.opened),
        )
        _check_parts(segment)
    except ValueError as error:
        raise invalid(file, error) from error
    return segment


def head_to_json(head: Head) -> HeadJson:
    return HeadJson(
        log_id=head.log_id,
        source=head.source,
        session=head.session,
        new_session=head.new_session,
        snapshot=head.snapshot,
        first_ordinal=head.first_ordinal,
        carry=carry_to_json(head.before.carry),
        opened=opened_to_json(head.before.opened),
    )


def head_from_json(value: HeadJson) -> Head:
    """Return the head; ``ValueError`` for content that none has."""
    return Head(
        log_id=value.log_id,
        source=value.source,
        session=value.session,
        new_session=value.new_session,
        snapshot=value.snapshot,
        first_ordinal=value.first_ordinal,
        before=State(carry_from_json(value.carry), opened_from_json(value.opened)),
    )


def _check_parts(segment: Segment) -> None:
    """Raise ``ValueError`` unless the parts follow one another and make up the segment."""
    offset, ordinal = segment.header.stop, segment.first_ordinal
    for number, part in enumerate(segment.parts):
        if (part.extent.offset, part.first_ordinal) != (offset, ordinal):
            raise ValueError(f"part {number} does not begin where the one before it ends")
        if not (part.extent.length and part.messages):
            raise ValueError(f"part {number} is empty")
        begins_session = segment.head.new_session and not number
        if (part.summary.messages, part.summary.new_session) != (part.messages, begins_session):
            raise ValueError(f"part {number} has the summary of another one")
        offset = part.extent.stop
        ordinal += part.messages
    if ordinal != segment.end_ordinal or offset > segment.bytes:
        raise ValueError("the parts do not have the segment's messages and bytes")


def _part_to_json(part: Part) -> _Part:
    return _Part(
        extent=part.extent,
        first_ordinal=part.first_ordinal,
        messages=part.messages,
        message_bytes=part.message_bytes,
        summary=summary_to_json(part.summary),
        delivered_lsn=format_lsn(part.delivered_lsn),
        undecodable=part.undecodable,
        committed=part.committed,
    )


def _part_from_json(value: _Part) -> Part:
    return Part(
        extent=value.extent,
        first_ordinal=value.first_ordinal,
        messages=value.messages,
        message_bytes=value.message_bytes,
        summary=summary_from_json(value.summary),
        delivered_lsn=parse_lsn(value.delivered_lsn),
        undecodable=value.undecodable,
        committed=value.committed,
    )


def _lsn_to_json(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _lsn_from_json(value: str | None) -> int | None:
    return None if value is None else parse_lsn(value)


def _time_to_json(time: np.datetime64 | None) -> str | None:
    return None if time is None else str(time)


def _time_from_json(value: str | None) -> np.datetime64 | None:
    return None if value is None else np.datetime64(value, "us")
