"""Messages as JSON lines for programs, one object a message, with whole values.

A column is a string (the value's text), null (NULL), or an object: ``{"binary": hex}`` for a value
in binary form, ``{"bytes": hex}`` for text that is not UTF-8, ``{"state": "unchanged"}`` for
unchanged TOAST, ``{"state": "not_sent"}`` for a column outside the key.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from pgwire_codec.cli.message_line import column_names, format_time
from pgwire_codec.cli.relation_tracker import RelationTracker, qualified_name
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol import messages as m
from pgwire_codec.protocol.lsn import format_lsn


def to_json(
    index: int, lsn: int | None, message: m.LogicalMessage, tracker: RelationTracker
) -> str:
    """Return a message as one line."""
    relation = None
    head: dict[str, Any] = {"index": index, "lsn": _lsn(lsn), "type": type(message).__name__}
    if isinstance(message, m.Insert | m.Update | m.Delete):
        relation = tracker.relation(message.relation_oid)
        head["table"] = qualified_name(relation) if relation else None
    elif isinstance(message, m.Truncate):
        relations = map(tracker.relation, message.relation_oids)
        head["tables"] = [qualified_name(each) if each else None for each in relations]
    body = {}
    for field in fields(message):
        # The message's own LSN, beside that of its position in the WAL.
        name = "message_lsn" if field.name == "lsn" else field.name
        body[name] = _field(field.name, getattr(message, field.name), relation)
    return json.dumps(head | body)


def problem_to_json(
    index: int, lsn: int | None, place: str, data: bytes | None, reason: DecodeError | str
) -> str:
    """Return the line for a message that cannot be decoded."""
    error: dict[str, Any]
    if isinstance(reason, DecodeError):
        error = {"code": reason.code, "offset": reason.offset, "expected": reason.expected}
        if reason.hint is not None:
            error["hint"] = reason.hint
    else:
        error = {"code": "bad_entry", "expected": reason}
    problem = {"index": index, "lsn": _lsn(lsn), "place": place, "error": error}
    return json.dumps(problem if data is None else problem | {"data": data.hex()})


def _lsn(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _field(name: str, value: Any, relation: m.Relation | None) -> Any:
    if value is None:
        return None
    if isinstance(value, m.TupleData):
        return _tuple(value, relation, is_key=name == "key")
    if isinstance(value, bytes):
        return _text(value)
    if name == "columns":
        return [asdict(column) for column in value]
    if name == "lsn" or name.endswith("_lsn"):
        return format_lsn(value)
    if name.endswith("_time"):
        return format_time(value)
    return value


def _tuple(data: m.TupleData, relation: m.Relation | None, is_key: bool) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    names = column_names(data, relation)
    for name, kind, value in zip(names, data.kinds, data.values, strict=True):
        if kind == ord("u"):
            columns[name] = {"state": "unchanged"}
        elif value is None:
            columns[name] = {"state": "not_sent"} if is_key else None
        elif kind == ord("b"):
            columns[name] = {"binary": value.hex()}
        else:
            columns[name] = _text(value)
    return columns


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"bytes": value.hex()}
