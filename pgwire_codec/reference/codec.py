"""Decode and encode one message, by the tables of :mod:`pgwire_codec.protocol.spec`.

Plain and complete: the oracle that faster implementations are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pgwire_codec.errors import EncodeError, ErrorCode
from pgwire_codec.protocol import messages, spec
from pgwire_codec.protocol.messages import Frame, LogicalMessage, RelationColumn, TupleData
from pgwire_codec.protocol.spec import Field, MessageSpec, Presence, Wire
from pgwire_codec.reference.cursor import Cursor, write_bytes, write_int, write_string

_INTEGERS = {
    Wire.INT8: "UInt8",  # flags: bits, not a number
    Wire.INT16: "Int16",
    Wire.INT32: "Int32",
    Wire.UINT32: "UInt32",
    Wire.UINT64: "UInt64",
    Wire.INT64: "Int64",
}
_COUNTS = {Wire.COUNT16: "Int16", Wire.COUNT32: "Int32"}

_BY_TAG = {message.tag: message for message in spec.MESSAGES}
_FRAMES_BY_TAG = {frame.tag: frame for frame in spec.FRAMES}
_BY_CLASS: dict[type, MessageSpec] = {
    getattr(messages, message.name): message for message in spec.MESSAGES + spec.FRAMES
}


def decode_message(
    data: bytes | bytearray | memoryview, *, streaming: bool = False
) -> LogicalMessage:
    """Decode one pgoutput message.

    Parameters
    ----------
    data : bytes-like
        The message, from its tag byte to its end.
    streaming : bool
        Whether it came inside Stream Start ... Stream Stop: there, changes, Relation, Type and
        Message carry the ID of their (sub)transaction.

    Raises
    ------
    DecodeError
        When the bytes are not one whole message and nothing else; with code and byte offset.
    TypeError
        When ``data`` is not bytes-like.

    Notes
    -----
    PostgreSQL documentation, "Logical Replication Message Formats".
    """
    return cast(LogicalMessage, _decode(_as_bytes(data), _BY_TAG, "a message's", streaming))


def decode_frame(data: bytes | bytearray | memoryview) -> Frame:
    """Decode one frame of the streaming replication protocol (the payload of CopyData).

    Raises ``DecodeError`` and ``TypeError`` as :func:`decode_message` does. The tags of frames
    and messages overlap, so that a caller has to say which it has.

    Notes
    -----
    PostgreSQL documentation, "Streaming Replication Protocol", START_REPLICATION.
    """
    return cast(Frame, _decode(_as_bytes(data), _FRAMES_BY_TAG, "a frame's", False))


def encode_message(message: LogicalMessage | Frame) -> bytes:
    """Write a message or a frame as bytes: the exact inverse of decoding.

    Raises
    ------
    EncodeError
        When a field holds what the wire cannot carry: a NUL in a name, a number out of range, a
        value of another type, an old tuple and a key at once.
    TypeError
        When ``message`` is not one of the classes of :mod:`pgwire_codec.protocol.messages`.
    """
    layout = _BY_CLASS.get(type(message))
    if layout is None:
        raise TypeError(
            f"message must be a message or frame of pgwire_codec, not {type(message).__name__}"
        )
    parts = [layout.tag]
    for field in layout.fields:
        if field.of:
            what = f"{layout.name}.{field.of}"
            content = getattr(message, field.of)
            if not isinstance(content, (tuple, list, bytes, bytearray)):
                raise EncodeError(f"{what} must be a tuple or bytes, not {type(content).__name__}")
            parts.append(write_int(_COUNTS[field.wire], len(content), f"{what}'s length"))
            continue
        value = getattr(message, field.name)
        what = f"{layout.name}.{field.name}"
        if _is_absent(field, value, message, what):
            continue
        parts.append(field.marker)
        parts.append(_WRITERS[field.wire](field, value, what))
    return b"".join(parts)


def _as_bytes(data: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
    return bytes(data)


def _decode(data: bytes, layouts: dict[bytes, MessageSpec], whose: str, streaming: bool) -> object:
    cursor = Cursor(data)
    tag = cursor.read_bytes(1, f"{whose} tag byte")
    layout = layouts.get(tag)
    if layout is None:
        tags = b"".join(layouts).decode()
        raise cursor.error(
            ErrorCode.UNKNOWN_TAG, f"{whose} tag byte, one of {tags}, not {tag!r}", offset=0
        )
    values: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for field in layout.fields:
        what = f"{layout.name}.{field.name}"
        if field.of:
            counts[field.of] = cursor.read_count(_COUNTS[field.wire], what)
        elif _read_presence(cursor, field, values, streaming, what):
            values[field.name] = _READERS[field.wire](cursor, field, counts, what)
        else:
            values[field.name] = None
    if cursor.remaining:
        raise cursor.error(
            ErrorCode.TRAILING_BYTES,
            f"the end of {layout.name}, {cursor.remaining} bytes remain",
        )
    return getattr(messages, layout.name)(**values)


def _read_presence(
    cursor: Cursor, field: Field, values: dict[str, Any], streaming: bool, what: str
) -> bool:
    """Return True if the field is there, and read its marker."""
    if field.alternative_to and values[field.alternative_to] is not None:
        return False
    if field.together_with:
        return values[field.together_with] is not None
    if field.presence is Presence.STREAMED:
        return streaming
    if field.presence is Presence.REMAINING:
        return cursor.remaining > 0
    if not field.marker:
        return True
    if field.presence is Presence.MARKED:
        if cursor.data[cursor.pos : cursor.pos + 1] != field.marker:
            return False
        cursor.pos += 1
        return True
    start = cursor.pos
    marker = cursor.read_bytes(1, f"{what}'s marker {field.marker.decode()}")
    if marker != field.marker:
        raise cursor.error(
            ErrorCode.BAD_VALUE,
            f"{what}'s marker {field.marker.decode()}, not {marker!r}",
            offset=start,
        )
    return True


def _is_absent(field: Field, value: object, message: object, what: str) -> bool:
    """Return True if the message object lacks the field; raise if it must not."""
    other = getattr(message, field.alternative_to) if field.alternative_to else None
    if other is not None and value is not None:
        raise EncodeError(f"{what} and {field.alternative_to} cannot both be there")
    if field.together_with:
        other = getattr(message, field.together_with)
        if (other is None) != (value is None):
            raise EncodeError(f"{what} and {field.together_with} must be there together, or None")
    if value is not None:
        return False
    if field.presence is Presence.ALWAYS and other is None:
        raise EncodeError(f"{what} must not be None")
    return True


# Readers: each reads one field at the cursor.


def read_int(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> int:
    return cursor.read_int(_INTEGERS[field.wire], what)


def read_bool(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> bool:
    value = cursor.read_int("UInt8", what)
    if value > 1:
        raise cursor.error(
            ErrorCode.BAD_VALUE, f"{what} of 0 or 1, not {value}", offset=cursor.pos - 1
        )
    return value == 1


def read_char(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> str:
    value = cursor.read_bytes(1, what)
    if value not in [field.choices[i : i + 1] for i in range(len(field.choices))]:
        raise cursor.error(
            ErrorCode.BAD_VALUE,
            f"{what}, one of {field.choices.decode()}, not {value!r}",
            offset=cursor.pos - 1,
        )
    return value.decode("ascii")


def read_string(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> str:
    return cursor.read_string(what)


def read_bytes(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> bytes:
    return cursor.read_bytes(counts[field.name], what)


def read_rest(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> bytes:
    return cursor.read_bytes(cursor.remaining, what)


def read_oids(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> tuple[int, ...]:
    count = counts[field.name]
    if count * 4 > cursor.remaining:
        raise cursor.error(
            ErrorCode.TRUNCATED, f"{what}: {count} OIDs, {cursor.remaining} bytes remain"
        )
    return tuple(cursor.read_int("UInt32", what) for _ in range(count))


def read_attrs(
    cursor: Cursor, field: Field, counts: dict[str, int], what: str
) -> tuple[RelationColumn, ...]:
    columns = []
    for number in range(counts[field.name]):
        values: dict[str, Any] = {
            part.name: _READERS[part.wire](cursor, part, {}, f"{what}[{number}].{part.name}")
            for part in spec.RELATION_COLUMN
        }
        columns.append(RelationColumn(**values))
    return tuple(columns)


def read_tuple(cursor: Cursor, field: Field, counts: dict[str, int], what: str) -> TupleData:
    """Read TupleData: as many columns as the count says, each ``n``, ``u``, ``t`` or ``b``."""
    count = cursor.read_count("Int16", f"{what}'s number of columns")
    if count > cursor.remaining:  # every column takes a byte at least
        raise cursor.error(
            ErrorCode.TRUNCATED, f"{what}: {count} columns, {cursor.remaining} bytes remain"
        )
    kinds = bytearray()
    values: list[bytes | None] = []
    for number in range(count):
        kind = cursor.read_bytes(1, f"{what}[{number}]'s kind")
        if kind not in spec.TUPLE_KINDS:
            raise cursor.error(
                ErrorCode.BAD_VALUE,
                f"{what}[{number}]'s kind, one of nutb, not {kind!r}",
                offset=cursor.pos - 1,
            )
        kinds += kind
        if kind in b"tb":
            length = cursor.read_count("Int32", f"{what}[{number}]'s length")
            values.append(cursor.read_bytes(length, f"{what}[{number}]"))
        else:
            values.append(None)
    return TupleData(bytes(kinds), tuple(values))


_READERS: dict[Wire, Callable[[Cursor, Field, dict[str, int], str], Any]] = {
    **dict.fromkeys(_INTEGERS, read_int),
    Wire.BOOL: read_bool,
    Wire.CHAR: read_char,
    Wire.STRING: read_string,
    Wire.BYTES: read_bytes,
    Wire.REST: read_rest,
    Wire.OIDS: read_oids,
    Wire.COLUMNS: read_attrs,
    Wire.TUPLE: read_tuple,
}


# Writers: each gives one field's bytes.


def _write_bool(field: Field, value: Any, what: str) -> bytes:
    if not isinstance(value, bool):
        raise EncodeError(f"{what} must be a bool, not {type(value).__name__}")
    return b"\1" if value else b"\0"


def _write_char(field: Field, value: Any, what: str) -> bytes:
    if not isinstance(value, str) or len(value) != 1 or value not in field.choices.decode():
        raise EncodeError(f"{what} must be one of {field.choices.decode()}, not {value!r}")
    return value.encode("ascii")


def _write_oids(field: Field, value: Any, what: str) -> bytes:
    if not isinstance(value, (tuple, list)):
        raise EncodeError(f"{what} must be a tuple of OIDs, not {type(value).__name__}")
    return b"".join(write_int("UInt32", oid, what) for oid in value)


def _write_attrs(field: Field, value: Any, what: str) -> bytes:
    if not isinstance(value, (tuple, list)):
        raise EncodeError(f"{what} must be a tuple of RelationColumn, not {type(value).__name__}")
    for number, column in enumerate(value):
        if not isinstance(column, RelationColumn):
            raise EncodeError(
                f"{what}[{number}] must be a RelationColumn, not {type(column).__name__}"
            )
    return b"".join(
        _WRITERS[part.wire](part, getattr(column, part.name), f"{what}[{number}].{part.name}")
        for number, column in enumerate(value)
        for part in spec.RELATION_COLUMN
    )


def _write_tuple(field: Field, value: Any, what: str) -> bytes:
    if not isinstance(value, TupleData):
        raise EncodeError(f"{what} must be TupleData, not {type(value).__name__}")
    if not isinstance(value.kinds, bytes) or not isinstance(value.values, (tuple, list)):
        raise EncodeError(f"{what} must have its kinds as bytes and its values as a tuple")
    if len(value.kinds) != len(value.values):
        raise EncodeError(
            f"{what} has {len(value.kinds)} kinds and {len(value.values)} values: one each a column"
        )
    parts = [write_int("Int16", len(value.values), f"{what}'s number of columns")]
    for number, column in enumerate(value.values):
        kind = value.kinds[number : number + 1]
        parts.append(kind)
        if kind in (b"t", b"b"):
            if column is None:
                raise EncodeError(f"{what}[{number}] is of kind {kind.decode()} and has no value")
            content = write_bytes(column, f"{what}[{number}]")
            parts += (write_int("Int32", len(content), f"{what}[{number}]'s length"), content)
        elif kind not in spec.TUPLE_KINDS:
            raise EncodeError(f"{what}[{number}]'s kind must be one of nutb, not {kind!r}")
        elif column is not None:
            raise EncodeError(f"{what}[{number}] is of kind {kind.decode()} and has a value")
    return b"".join(parts)


_WRITERS: dict[Wire, Callable[[Field, Any, str], bytes]] = {
    **{
        wire: (lambda field, value, what: write_int(_INTEGERS[field.wire], value, what))
        for wire in _INTEGERS
    },
    Wire.BOOL: _write_bool,
    Wire.CHAR: _write_char,
    Wire.STRING: lambda field, value, what: write_string(value, what),
    Wire.BYTES: lambda field, value, what: write_bytes(value, what),
    Wire.REST: lambda field, value, what: write_bytes(value, what),
    Wire.OIDS: _write_oids,
    Wire.COLUMNS: _write_attrs,
    Wire.TUPLE: _write_tuple,
}
