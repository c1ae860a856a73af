"""Messages as lines for people.

A line is a list of (text, style) parts. Styles are names of :mod:`rich`, used on a terminal only.
Text from the server is escaped, so that no value can move the cursor or break a line.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from pgwire_codec.cli.relation_tracker import RelationTracker, schema_of
from pgwire_codec.format import printable
from pgwire_codec.protocol import messages as m
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.spec import REPLICA_IDENTITIES
from pgwire_codec.types import default_registry

Line = list[tuple[str, str]]

_MAX_CHARACTERS = 60  # of one value
_VERB = "bold"
_TABLE = "cyan"
_NAME = "blue"
_VALUE = "green"
_STATE = "dim italic"  # shown in place of a value
_ERROR = "bold red"
_VERBS = {m.Insert: "INSERT", m.Update: "UPDATE", m.Delete: "DELETE"}
_SIMPLE_NAME = re.compile(r"[a-z_][a-z0-9_$]*", re.ASCII)
_EPOCH = datetime(2000, 1, 1)


def format_message(message: m.LogicalMessage, tracker: RelationTracker) -> Line:
    """Return a message as parts of one line."""
    subxid = tracker.subtransaction(message)
    return [(f"(subxid {subxid}) " if subxid else "", _STATE), *_format(message, tracker)]


def format_problem(reason: str) -> Line:
    """Return the line for a message that cannot be decoded."""
    return [(printable(reason), _ERROR)]


def table_name(oid: int, tracker: RelationTracker) -> str:
    """Return the table's quoted name, or its OID if no Relation declared it."""
    relation = tracker.relation(oid)
    if relation is None:
        return f"(unknown relation {oid})"
    return _qualified(relation)


def format_time(microseconds: int) -> str:
    """Return microseconds since 2000 as ISO 8601 in UTC."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(sep=" ") + "Z"
    except OverflowError:
        return f"2000-01-01 {microseconds:+} us"


def column_names(tuple_data: m.TupleData, relation: m.Relation | None) -> list[str]:
    """Return the names of the columns; ``$3`` for the third, if no Relation declares it."""
    names = [column.name for column in relation.columns] if relation else []
    numbers = range(len(names) + 1, len(tuple_data.kinds) + 1)
    return names[: len(tuple_data.kinds)] + [f"${number}" for number in numbers]


def _format(message: m.LogicalMessage, tracker: RelationTracker) -> Line:
    if isinstance(message, m.Insert | m.Update | m.Delete):
        return _format_change(message, tracker)
    if isinstance(message, m.Relation):
        return _format_relation(message)
    if isinstance(message, m.Truncate):
        return _format_truncate(message, tracker)
    verb, detail = _describe(message)
    return [(verb, _VERB), (f" {detail}" if detail else "", "")]


def _describe(message: m.LogicalMessage) -> tuple[str, str]:
    match message:
        case m.Begin():
            at = _at(message.final_lsn, message.commit_time)
            return "BEGIN", f"xid {message.xid}, commits {at}"
        case m.Commit():
            return "COMMIT", _at(message.commit_lsn, message.commit_time)
        case m.Origin():
            return "ORIGIN", f"{_literal(message.name)} at {format_lsn(message.lsn)}"
        case m.Type():
            return "TYPE", f"{_qualified(message)} (oid {message.oid})"
        case m.Message():
            kind = "transactional" if message.flags & 1 else "not transactional"
            content = _shortened(message.content)
            return "MESSAGE", f"{_literal(message.prefix)} {content} ({kind})"
        case m.StreamStart():
            first = ", first block" if message.first_segment else ""
            return "STREAM START", f"xid {message.xid}{first}"
        case m.StreamStop():
            return "STREAM STOP", ""
        case m.StreamCommit():
            at = _at(message.commit_lsn, message.commit_time)
            return "STREAM COMMIT", f"xid {message.xid}, {at}"
        case m.StreamAbort():
            whole = message.subxid == message.xid
            part = "" if whole else f", from subxid {message.subxid} on"
            known = message.abort_lsn is not None and message.abort_time is not None
            at = f", {_at(message.abort_lsn or 0, message.abort_time or 0)}" if known else ""
            return "STREAM ABORT", f"xid {message.xid}{part}{at}"
        case m.RollbackPrepared():
            at = _at(message.rollback_end_lsn, message.rollback_time)
            return "ROLLBACK PREPARED", f"{_literal(message.gid)}, xid {message.xid}, {at}"
        case m.CommitPrepared():
            at = _at(message.commit_lsn, message.commit_time)
            return "COMMIT PREPARED", f"{_literal(message.gid)}, xid {message.xid}, {at}"
        case m.BeginPrepare() | m.Prepare() | m.StreamPrepare():
            verb = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(message).__name__).upper()
            at = _at(message.prepare_lsn, message.prepare_time)
            return verb, f"{_literal(message.gid)}, xid {message.xid}, {at}"
        case _:
            raise TypeError(f"no format for {type(message).__name__}")


def _format_relation(relation: m.Relation) -> Line:
    identity = REPLICA_IDENTITIES.get(
        relation.replica_identity, _escaped(relation.replica_identity)
    )
    line: Line = [("RELATION ", _VERB), (_qualified(relation), _TABLE)]
    line.append((f" (oid {relation.oid}, replica identity {identity}):", ""))
    for number, column in enumerate(relation.columns):
        line.append((", " if number else " ", ""))
        line.append((_identifier(column.name), _NAME))
        known = default_registry.lookup(column.type_oid)
        line.append((f" {known.name if known else f'type {column.type_oid}'}", ""))
        if column.flags & 1:
            line.append((" key", ""))
    return line


def _format_truncate(message: m.Truncate, tracker: RelationTracker) -> Line:
    tables = ", ".join(table_name(oid, tracker) for oid in message.relation_oids)
    options = (" cascade" if message.options & 1 else "") + (
        " restart identity" if message.options & 2 else ""
    )
    return [("TRUNCATE ", _VERB), (tables, _TABLE), (options, "")]


def _format_change(message: m.Insert | m.Update | m.Delete, tracker: RelationTracker) -> Line:
    relation = tracker.relation(message.relation_oid)
    line: Line = [(_VERBS[type(message)], _VERB), (" ", "")]
    line.append((table_name(message.relation_oid, tracker), _TABLE))
    for label in ("key", "old", "new"):
        # An Insert has no old tuples, a Delete no new one.
        tuple_data: m.TupleData | None = getattr(message, label, None)
        if tuple_data is not None:
            line.append((f" {label}:", _VERB))
            line += _format_tuple(tuple_data, relation, is_key=label == "key")
    return line


def _format_tuple(tuple_data: m.TupleData, relation: m.Relation | None, is_key: bool) -> Line:
    line: Line = []
    names = column_names(tuple_data, relation)
    for name, kind, value in zip(names, tuple_data.kinds, tuple_data.values, strict=True):
        line += [(" ", ""), (_identifier(name), _NAME), ("=", "")]
        if kind == ord("u"):
            line.append(("(unchanged)", _STATE))
        elif value is None:
            line.append(("(not sent)" if is_key else "NULL", _STATE))
        elif kind == ord("b"):
            line.append((_shortened_hex(value), _VALUE))
        else:
            line.append((_shortened(value), _VALUE))
    return line


def _at(lsn: int, microseconds: int) -> str:
    return f"at {format_lsn(lsn)}, {format_time(microseconds)}"


def _shortened(value: bytes) -> str:
    # A character has at most four bytes, so these show whether the text is too long.
    text = value[: 4 * _MAX_CHARACTERS + 4].decode("utf-8", "surrogateescape")
    if len(text) <= _MAX_CHARACTERS:
        return _literal(text)
    return f"{_literal(text[:_MAX_CHARACTERS])}... ({len(value)} bytes)"


def _shortened_hex(value: bytes) -> str:
    if len(value) <= _MAX_CHARACTERS // 2:
        return f"x'{value.hex()}'"
    return f"x'{value[: _MAX_CHARACTERS // 2].hex()}'... ({len(value)} bytes)"


def _literal(text: str) -> str:
    """Return an SQL literal: ``'plain'``, or ``E'...'`` if a character is escaped."""
    quoted = text.replace("'", "''")
    if text.isprintable():
        return f"'{quoted}'"
    return f"E'{_escaped(quoted)}'"


def _qualified(named: m.Relation | m.Type) -> str:
    return f"{_identifier(schema_of(named))}.{_identifier(named.name)}"


def _identifier(name: str) -> str:
    if _SIMPLE_NAME.fullmatch(name) or re.fullmatch(r"\$\d+", name):
        return name
    return '"' + _escaped(name.replace('"', '""')) + '"'


def _escaped(text: str) -> str:
    return printable(text.replace("\\", "\\\\"))
