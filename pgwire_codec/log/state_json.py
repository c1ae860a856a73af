"""Carries and summaries as JSON: what a reader needs to know of messages that it does not read.

Wire messages in them are base64 of their bytes; everything else is plain numbers, words and lists.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeAlias

from pgwire_codec._impl import decode_message, encode_message
from pgwire_codec.carry import Carry, OpenTransaction, Position, RelationVersion, Scope
from pgwire_codec.errors import DecodeError
from pgwire_codec.messages import LogicalMessage, Relation, Type
from pgwire_codec.summary import Changes, Event, Summary
from pgwire_codec.transactions import Advance

Json: TypeAlias = Any


def message_to_json(message: LogicalMessage) -> str:
    return base64.b64encode(encode_message(message)).decode("ascii")


def message_from_json(text: str, *, streaming: bool = False) -> Any:
    return decode_message(base64.b64decode(text, validate=True), streaming=streaming)


def version_to_json(version: RelationVersion) -> Json:
    types = [message_to_json(each) for each in version.types]
    return {"relation": message_to_json(version.relation), "types": types}


def version_from_json(value: Json) -> RelationVersion:
    relation: Relation = message_from_json(value["relation"])
    types: tuple[Type, ...] = tuple(map(message_from_json, value["types"]))
    return RelationVersion(relation, types)


def carry_to_json(carry: Carry) -> Json:
    return {
        "scope": _scope_to_json(carry.scope),
        "plain": None if carry.plain is None else _open_to_json(carry.plain),
        "streams": [_open_to_json(each) for each in carry.streams.values()],
        "prepared": [_open_to_json(each) for each in carry.prepared.values()],
        "in_block": carry.in_block,
        "in_stream": carry.in_stream,
        "delivered_lsn": carry.delivered_lsn,
        "cut_off": list(carry.cut_off),
        "clock": carry.clock,
    }


def carry_from_json(value: Json) -> Carry:
    streams = map(_open_from_json, value["streams"])
    prepared = map(_open_from_json, value["prepared"])
    final_lsn, changes = value["cut_off"]
    return Carry(
        scope=_scope_from_json(value["scope"]),
        plain=None if value["plain"] is None else _open_from_json(value["plain"]),
        streams={each.xid: each for each in streams},
        prepared={each.gid: each for each in prepared if each.gid is not None},
        in_block=value["in_block"],
        in_stream=value["in_stream"],
        delivered_lsn=value["delivered_lsn"],
        cut_off=(final_lsn, changes),
        clock=value["clock"],
    )


def summary_to_json(summary: Summary) -> Json:
    return {
        "messages": summary.messages,
        "outside": _reading_to_json(summary.outside),
        "inside": _reading_to_json(summary.inside),
        "ends_in_block": summary.ends_in_block,
        "new_session": summary.new_session,
    }


def summary_from_json(value: Json) -> Summary:
    return Summary(
        messages=value["messages"],
        outside=_reading_from_json(value["outside"]),
        inside=_reading_from_json(value["inside"]),
        ends_in_block=value["ends_in_block"],
        new_session=value["new_session"],
    )


def _scope_to_json(scope: Scope) -> Json:
    # A relation has its OID and a type has its own in the message.
    return {
        "relations": [
            {"clock": clock, **version_to_json(version)}
            for clock, version in scope.relations.values()
        ],
        "types": [message_to_json(each) for each in scope.types.values()],
    }


def _scope_from_json(value: Json) -> Scope:
    relations = {}
    for each in value["relations"]:
        version = version_from_json(each)
        relations[version.relation.oid] = (each["clock"], version)
    types: list[Type] = [message_from_json(each) for each in value["types"]]
    return Scope(relations, {each.oid: each for each in types})


def _open_to_json(open_: OpenTransaction) -> Json:
    return {
        "xid": open_.xid,
        "final_lsn": open_.final_lsn,
        "commit_time": open_.commit_time,
        "gid": open_.gid,
        "origin": open_.origin,
        "position": list(open_.position),
        "first": _places_to_json(open_.first),
        "scope": _scope_to_json(open_.scope),
        "told": open_.told,
    }


def _open_from_json(value: Json) -> OpenTransaction:
    return OpenTransaction(
        xid=value["xid"],
        final_lsn=value["final_lsn"],
        commit_time=value["commit_time"],
        gid=value["gid"],
        origin=value["origin"],
        position=Position(*value["position"]),
        first=_places_from_json(value["first"]),
        scope=_scope_from_json(value["scope"]),
        told=value["told"],
    )


def _places_to_json(places: Mapping[int, Position]) -> Json:
    return [[xid, *place] for xid, place in places.items()]


def _places_from_json(value: Json) -> dict[int, Position]:
    return {xid: Position(*place) for xid, *place in value}


def _reading_to_json(reading: tuple[Event, ...] | DecodeError | None) -> Json:
    if reading is None:
        return None
    if isinstance(reading, DecodeError):
        return {
            "code": reading.code,
            "offset": reading.offset,
            "expected": reading.expected,
            "message_index": reading.message_index,
            "context": reading.context,
        }
    return [_event_to_json(event) for event in reading]


def _reading_from_json(value: Json) -> tuple[Event, ...] | DecodeError | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return DecodeError(
            value["code"],
            offset=value["offset"],
            expected=value["expected"],
            message_index=value["message_index"],
            context=value["context"],
        )
    return tuple(map(_event_from_json, value))


def _event_to_json(event: Event) -> Json:
    if isinstance(event, Advance):
        return {"advance": event.commit_lsn}
    if isinstance(event, Changes):
        return {
            "changes": list(event.position),
            "first": _places_to_json(event.first),
            "xid": event.xid,
            "first_segment": event.first_segment,
        }
    # Inside a stream block R, Y and M carry an xid: they read differently there.
    streamed = isinstance(event, (Relation, Type)) and event.xid is not None
    return {"streamed" if streamed else "message": message_to_json(event)}


def _event_from_json(value: Json) -> Event:
    if "advance" in value:
        return Advance(value["advance"])
    if "changes" in value:
        return Changes(
            position=Position(*value["changes"]),
            first=_places_from_json(value["first"]),
            xid=value["xid"],
            first_segment=value["first_segment"],
        )
    if "streamed" in value:
        streamed: LogicalMessage = message_from_json(value["streamed"], streaming=True)
        return streamed
    message: LogicalMessage = message_from_json(value["message"])
    return message
