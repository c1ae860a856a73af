"""Carries and summaries as JSON.

They replace messages that a reader does not read. Wire messages in them are base64 of their bytes,
and LSNs are text. The structs are the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from pgwire_codec._impl import decode_message, encode_message
from pgwire_codec.errors import DecodeError
from pgwire_codec.log.checked_json import Count, converted, optional
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.protocol.messages import Relation, Type
from pgwire_codec.transactions.carry import Carry, OpenTransaction, Position, RelationVersion, Scope
from pgwire_codec.transactions.resolver import Advance, Key
from pgwire_codec.transactions.summary import ChangeCount, Event, Summary

_Message = TypeVar("_Message", Relation, Type)

Xid: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
#: xid, changes, messages: the position at which a subtransaction began
_FirstPosition: TypeAlias = tuple[Xid, Count, Count]


class VersionJson(msgspec.Struct):
    """A :class:`RelationVersion`."""

    relation: bytes
    types: list[bytes]
    clock: Count = 0  # in a scope: the time at which the Relation came


class ScopeJson(msgspec.Struct):
    """A :class:`Scope`. A relation has its OID, and a type its own, in the message."""

    relations: list[VersionJson]
    types: list[bytes]
    #: Names whose last relation has another name now: clock and OID. Other names are derived.
    given_away: dict[str, tuple[Count, Xid]]


class OpenJson(msgspec.Struct):
    """An :class:`OpenTransaction`."""

    xid: Xid
    final_lsn: str
    commit_time: Time
    gid: str | None
    origin: str | None
    position: tuple[Count, Count]
    first: list[_FirstPosition]
    scope: ScopeJson
    delivered: Count = msgspec.field(name="told")


class CarryJson(msgspec.Struct, omit_defaults=True):
    """A :class:`Carry` without the Relations and Types that hold for everyone."""

    plain: OpenJson | None
    streams: list[OpenJson]
    prepared: list[OpenJson]
    in_block: bool
    in_stream: Xid | None
    delivered_lsn: str
    cut_off: tuple[str, Count]
    clock: Count
    scope: ScopeJson | None = None  # those Relations and Types, in files of format 2


class AdvanceJson(msgspec.Struct, tag="advance"):
    """An :class:`Advance`."""

    commit_lsn: str


class ChangesJson(msgspec.Struct, tag="changes"):
    """A :class:`ChangeCount`."""

    position: tuple[Count, Count]
    first: list[_FirstPosition]
    xid: Xid | None
    first_segment: bool


class MessageJson(msgspec.Struct, tag="message"):
    """A message. Inside a stream block R, Y and M contain an xid, so that their layout differs."""

    data: bytes
    streaming: bool = False


class ErrorJson(msgspec.Struct, omit_defaults=True):
    """A :class:`DecodeError`."""

    code: str
    offset: Count
    expected: str
    message_index: Count | None
    context: str
    hint: str | None = None


_ReadingJson: TypeAlias = list[AdvanceJson | ChangesJson | MessageJson] | ErrorJson | None


class SummaryJson(msgspec.Struct):
    """A :class:`Summary`."""

    messages: Count
    outside: _ReadingJson
    inside: _ReadingJson
    ends_in_block: bool | None
    new_session: bool
    relations: tuple[Xid, ...] | None = None


class OpenedJson(msgspec.Struct):
    """The first ordinal that an open transaction needs."""

    kind: Literal["plain", "stream", "prepared"]
    name: int | str
    first_ordinal: Count


def version_to_json(version: RelationVersion, clock: int = 0) -> VersionJson:
    """Return the JSON form of a version of a relation."""
    return VersionJson(
        encode_message(version.relation), list(map(encode_message, version.types)), clock
    )


def version_from_json(value: VersionJson) -> RelationVersion:
    """Return the version; raise ``ValueError`` for invalid content."""
    return RelationVersion(_decode(value.relation, Relation), tuple(map(_type, value.types)))


def carry_to_json(carry: Carry) -> CarryJson:
    """Return the JSON form of a carry, without its scope."""
    final_lsn, changes = carry.cut_off
    return converted(
        carry,
        CarryJson,
        scope=None,
        plain=optional(_open_to_json, carry.plain),
        streams=list(map(_open_to_json, carry.streams.values())),
        prepared=list(map(_open_to_json, carry.prepared.values())),
        delivered_lsn=format_lsn(carry.delivered_lsn),
        cut_off=(format_lsn(final_lsn), changes),
    )


def carry_from_json(value: CarryJson) -> Carry:
    """Return the carry, without a scope; raise ``ValueError`` for invalid content."""
    streams = map(_open_from_json, value.streams)
    prepared = map(_open_from_json, value.prepared)
    final_lsn, changes = value.cut_off
    return converted(
        value,
        Carry,
        scope=Scope(),
        plain=optional(_open_from_json, value.plain),
        streams={each.xid: each for each in streams},
        prepared={each.gid: each for each in prepared if each.gid is not None},
        delivered_lsn=parse_lsn(value.delivered_lsn),
        cut_off=(parse_lsn(final_lsn), changes),
    )


def summary_to_json(summary: Summary) -> SummaryJson:
    """Return the JSON form of a summary."""
    outside, inside = _reading_to_json(summary.outside), _reading_to_json(summary.inside)
    return SummaryJson(
        summary.messages,
        outside,
        inside,
        summary.ends_in_block,
        summary.new_session,
        summary.relations,
    )


def summary_from_json(value: SummaryJson) -> Summary:
    """Return the summary; raise ``ValueError`` for invalid content."""
    outside, inside = _reading_from_json(value.outside), _reading_from_json(value.inside)
    return Summary(
        value.messages, outside, inside, value.ends_in_block, value.new_session, value.relations
    )


def opened_to_json(opened: Mapping[Key, int]) -> list[OpenedJson]:
    """Return the JSON form of :attr:`LogState.opened`."""
    return [OpenedJson(kind, name, ordinal) for (kind, name), ordinal in opened.items()]  # type: ignore[arg-type]


def opened_from_json(value: list[OpenedJson]) -> dict[Key, int]:
    """Return :attr:`LogState.opened`."""
    return {(each.kind, each.name): each.first_ordinal for each in value}


def scope_to_json(scope: Scope) -> ScopeJson:
    """Return the JSON form of a scope."""
    return ScopeJson(
        relations=[version_to_json(version, clock) for clock, version in scope.relations.values()],
        types=list(map(encode_message, scope.types.values())),
        given_away={name: last for name, last in scope.names.items() if scope.named(name) is None},
    )


def scope_from_json(value: ScopeJson) -> Scope:
    """Return the scope; raise ``ValueError`` for invalid content."""
    scope = Scope(types={each.oid: each for each in map(_type, value.types)})
    # In the order of their clocks, so that a name belongs to the last relation.
    for each in sorted(value.relations, key=lambda relation: relation.clock):
        scope.add(each.clock, version_from_json(each))
    for name, (clock, oid) in value.given_away.items():
        if oid not in scope.relations:
            raise ValueError(f"a name of relation {oid}, which is not known")
        scope.names[name] = clock, oid
    return scope


def _open_to_json(open_: OpenTransaction) -> OpenJson:
    return converted(
        open_,
        OpenJson,
        final_lsn=format_lsn(open_.final_lsn),
        first=_positions_to_json(open_.first),
        scope=scope_to_json(open_.scope),
    )


def _open_from_json(value: OpenJson) -> OpenTransaction:
    return converted(
        value,
        OpenTransaction,
        final_lsn=parse_lsn(value.final_lsn),
        position=Position(*value.position),
        first=_positions_from_json(value.first),
        scope=scope_from_json(value.scope),
    )


def _positions_to_json(positions: Mapping[int, Position]) -> list[_FirstPosition]:
    return [(xid, *position) for xid, position in positions.items()]


def _positions_from_json(value: list[_FirstPosition]) -> dict[int, Position]:
    return {xid: Position(*position) for xid, *position in value}


def _reading_to_json(reading: tuple[Event, ...] | DecodeError | None) -> _ReadingJson:
    if reading is None:
        return None
    if isinstance(reading, DecodeError):
        return converted(reading, ErrorJson)
    return list(map(_event_to_json, reading))


def _reading_from_json(value: _ReadingJson) -> tuple[Event, ...] | DecodeError | None:
    if value is None:
        return None
    if isinstance(value, ErrorJson):
        return DecodeError(**msgspec.structs.asdict(value))
    return tuple(map(_event_from_json, value))


def _event_to_json(event: Event) -> AdvanceJson | ChangesJson | MessageJson:
    if isinstance(event, Advance):
        return AdvanceJson(format_lsn(event.commit_lsn))
    if isinstance(event, ChangeCount):
        first = _positions_to_json(event.first)
        return ChangesJson(event.position, first, event.xid, event.first_segment)
    streaming = isinstance(event, (Relation, Type)) and event.xid is not None
    return MessageJson(encode_message(event), streaming)


def _event_from_json(value: AdvanceJson | ChangesJson | MessageJson) -> Event:
    if isinstance(value, AdvanceJson):
        return Advance(parse_lsn(value.commit_lsn))
    if isinstance(value, ChangesJson):
        position, first = Position(*value.position), _positions_from_json(value.first)
        return ChangeCount(position, first, value.xid, value.first_segment)
    return decode_message(value.data, streaming=value.streaming)


def _type(data: bytes) -> Type:
    return _decode(data, Type)


def _decode(data: bytes, kind: type[_Message]) -> _Message:
    message = decode_message(data)
    if not isinstance(message, kind):
        raise ValueError(f"a {type(message).__name__} message in place of a {kind.__name__}")
    return message
