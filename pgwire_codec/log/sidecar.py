"""The sidecar of a segment: its description as a JSON file."""

from __future__ import annotations

import msgspec
import numpy as np

from pgwire_codec.log.checked_json import Count, converted, dump, invalid, load, optional
from pgwire_codec.log.commit_times import TimeRange
from pgwire_codec.log.message_columns import Encoding
from pgwire_codec.log.segment import Extent, RelationCount, Segment, SegmentHeader, SegmentPart
from pgwire_codec.log.source import LogSource
from pgwire_codec.log.state import LogState
from pgwire_codec.log.state_json import (
    CarryJson,
    OpenedJson,
    ScopeJson,
    SummaryJson,
    VersionJson,
    carry_from_json,
    carry_to_json,
    opened_from_json,
    opened_to_json,
    scope_from_json,
    scope_to_json,
    summary_from_json,
    summary_to_json,
    version_from_json,
    version_to_json,
)
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn


class HeaderJson(msgspec.Struct, omit_defaults=True):
    """A :class:`SegmentHeader`; also in the metadata of the segment's Arrow schema."""

    log_id: str
    source: LogSource
    session: Count
    new_session: bool
    snapshot: bool
    first_ordinal: Count
    carry: CarryJson
    opened: list[OpenedJson]
    encoding: Encoding = "plain"
    end_ordinal: Count | None = None


class _PartJson(msgspec.Struct):
    extent: Extent
    first_ordinal: Count
    messages: Count
    message_bytes: Count
    summary: SummaryJson
    delivered_lsn: str
    undecodable: Count
    committed: Count
    commit_times: TimeRange | None = None


class _SegmentJson(msgspec.Struct):
    header: HeaderJson = msgspec.field(name="head")
    header_extent: Extent = msgspec.field(name="header")
    bytes: Count
    messages: Count
    message_bytes: Count
    commits: Count
    first_commit_lsn: str | None
    last_commit_lsn: str | None
    first_time: str | None
    last_time: str | None
    delivered_lsn: str
    parts: list[_PartJson]
    tables: tuple[RelationCount, ...]
    versions: list[VersionJson]
    opened: list[OpenedJson]
    known: ScopeJson | None = None


def segment_to_bytes(segment: Segment) -> bytes:
    """Return the sidecar of a sealed segment."""
    return dump(
        converted(
            segment,
            _SegmentJson,
            header=header_to_json(segment.header),
            first_commit_lsn=optional(format_lsn, segment.first_commit_lsn),
            last_commit_lsn=optional(format_lsn, segment.last_commit_lsn),
            first_time=optional(str, segment.first_time),
            last_time=optional(str, segment.last_time),
            delivered_lsn=format_lsn(segment.delivered_lsn),
            parts=[_part_to_json(part) for part in segment.parts],
            versions=[version_to_json(version) for version in segment.versions],
            opened=opened_to_json(segment.opened),
            known=optional(scope_to_json, segment.known),
        )
    )


def segment_from_bytes(data: bytes, file: str) -> Segment:
    """Read a sidecar; ``file`` is its name in errors. Raise ``LogError`` for a damaged one."""
    value = load(data, _SegmentJson, file)
    try:
        segment = converted(
            value,
            Segment,
            header=header_from_json(value.header),
            sealed=True,
            first_commit_lsn=optional(parse_lsn, value.first_commit_lsn),
            last_commit_lsn=optional(parse_lsn, value.last_commit_lsn),
            first_time=optional(_time, value.first_time),
            last_time=optional(_time, value.last_time),
            delivered_lsn=parse_lsn(value.delivered_lsn),
            parts=tuple(map(_part_from_json, value.parts)),
            versions=tuple(map(version_from_json, value.versions)),
            opened=opened_from_json(value.opened),
            known=optional(scope_from_json, value.known or value.header.carry.scope),
        )
        _check_parts(segment)
    except ValueError as error:
        raise invalid(file, error) from error
    return segment


def header_to_json(header: SegmentHeader) -> HeaderJson:
    """Return the JSON form of a segment's header."""
    carry, opened = carry_to_json(header.before.carry), opened_to_json(header.before.opened)
    return converted(header, HeaderJson, carry=carry, opened=opened)


def header_from_json(value: HeaderJson) -> SegmentHeader:
    """Return the header; raise ``ValueError`` for invalid content."""
    before = LogState(carry_from_json(value.carry), opened_from_json(value.opened))
    return converted(value, SegmentHeader, before=before)


def _check_parts(segment: Segment) -> None:
    """Raise ``ValueError`` unless the parts follow one another and make up the segment."""
    offset, ordinal = segment.header_extent.stop, segment.first_ordinal
    for number, part in enumerate(segment.parts):
        if (part.extent.offset, part.first_ordinal) != (offset, ordinal):
            raise ValueError(f"part {number} does not begin where the one before it ends")
        if not (part.extent.length and part.messages):
            raise ValueError(f"part {number} is empty")
        begins_session = segment.header.new_session
        if number:  # a joined segment can have several sessions
            is_joined = segment.header.end_ordinal is not None
            begins_session = part.summary.new_session and is_joined
        if (part.summary.messages, part.summary.new_session) != (part.messages, begins_session):
            raise ValueError(f"part {number} has the summary of another one")
        offset = part.extent.stop
        ordinal += part.messages
    is_whole = segment.header.end_ordinal in (None, ordinal)
    if ordinal != segment.end_ordinal or offset > segment.bytes or not is_whole:
        raise ValueError("the parts do not have the segment's messages and bytes")


def _part_to_json(part: SegmentPart) -> _PartJson:
    summary, lsn = summary_to_json(part.summary), format_lsn(part.delivered_lsn)
    return converted(part, _PartJson, summary=summary, delivered_lsn=lsn)


def _part_from_json(value: _PartJson) -> SegmentPart:
    summary, lsn = summary_from_json(value.summary), parse_lsn(value.delivered_lsn)
    return converted(value, SegmentPart, summary=summary, delivered_lsn=lsn)


def _time(text: str) -> np.datetime64:
    return np.datetime64(text, "us")
