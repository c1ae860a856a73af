"""Write pgwire_codec/_core/protocol.pxd from the wire format of pgwire_codec/protocol.

Run after a change of the wire format, then compile again::

    python tools/update_protocol.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgwire_codec.codec import tables
from pgwire_codec.protocol import epoch, spec, tags
from pgwire_codec.protocol.spec import MessageSpec, Presence, Wire

TARGET = Path(__file__).resolve().parent.parent / "pgwire_codec" / "_core" / "protocol.pxd"

TEMPLATE = '''\
"""The wire format as constants. Written by tools/update_protocol.py: do not edit."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #define PGWIRE_EPOCH INT64_C({epoch})
    """
    const int64_t EPOCH "PGWIRE_EPOCH"  # microseconds from 1970-01-01 to 2000-01-01

cdef enum:
    EPOCH_DAYS = {epoch_days}  # from 1970-01-01 to 2000-01-01

cdef enum:
    # States of a value.
    {states}

cdef enum:
    # Markers of tuples.
    {markers}

cdef enum:
    # Kinds of the fields of a tuple.
    {kinds}

cdef enum:
    # Tags of messages.
    {messages}

cdef enum:
    # Tags of frames.
    {frames}

cdef enum:
    # Offsets of the fields of messages of a fixed size, and that size; XLogData without data.
    {offsets}


cdef inline bint in_stream_block(uint8_t tag, bint before) noexcept nogil:
    """Return whether the message after one with this tag is inside a stream block."""
    if {enters}:
        return True
    if {leaves}:
        return False
    return before


cdef inline bint may_reach_position(uint8_t tag) noexcept nogil:
    """Return whether a message with this tag may be the last one before a position."""
    return {reaches}
'''

SIZES = {
    Wire.INT8: 1,
    Wire.BOOL: 1,
    Wire.CHAR: 1,
    Wire.INT16: 2,
    Wire.INT32: 4,
    Wire.UINT32: 4,
    Wire.INT64: 8,
    Wire.UINT64: 8,
}
STATES = ("NULL", "VALUE", "UNCHANGED", "NOT_SENT")
KINDS = {b"n": "NULL", b"u": "UNCHANGED", b"t": "TEXT", b"b": "BINARY"}
TAGS = [message.tag for message in spec.MESSAGES]


def protocol() -> str:
    """Return what the file contains."""
    fields = [field for message in spec.MESSAGES for field in message.fields]
    markers = {field.marker: field.name for field in fields if field.marker}
    assert KINDS.keys() == spec.TUPLE_KINDS.keys()
    lines = {
        "states": [f"STATE_{name} = {getattr(tables, name)}" for name in STATES],
        "markers": [_byte(f"MARKER_{name.upper()}", tag) for tag, name in markers.items()],
        "kinds": [_byte(f"KIND_{name}", kind) for kind, name in KINDS.items()],
        "messages": [_byte(_name(each), each.tag) for each in spec.MESSAGES],
        "frames": [_byte(_name(each), each.tag) for each in spec.FRAMES],
        "offsets": [line for each in spec.MESSAGES + spec.FRAMES for line in _offsets(each)],
    }
    return TEMPLATE.format(
        epoch=epoch.EPOCH_MICROSECONDS,
        epoch_days=epoch.EPOCH_DAYS,
        enters=_is_one_of(tag for tag in TAGS if tags.in_stream_block(tag, False)),
        leaves=_is_one_of(tag for tag in TAGS if not tags.in_stream_block(tag, True)),
        reaches=_is_one_of(tag for tag in TAGS if tag in tags.POSITIONS),
        **{name: "\n    ".join(each) for name, each in lines.items()},
    )


def _name(message: MessageSpec) -> str:
    """Return a message's name as that of a constant: STREAM_START, XLOG_DATA."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", message.name.replace("XLog", "Xlog")).upper()


def _byte(name: str, byte: bytes) -> str:
    return f"{name} = 0x{byte.hex().upper()}  # {byte.decode()}"


def _offsets(message: MessageSpec) -> Iterator[str]:
    """Yield the constants of a message, none if its size varies."""
    fields = [field for field in message.fields if field.wire is not Wire.REST]
    if not all(field.wire in SIZES for field in fields):
        return
    name, size = _name(message), 1
    always = [field for field in fields if field.presence is Presence.ALWAYS]
    for field in always:
        yield f"{name}_{field.name.upper()} = {size}"
        size += SIZES[field.wire]
    yield f"{name}_SIZE = {size}"
    if fields != always:
        yield f"{name}_LONG_SIZE = {1 + sum(SIZES[field.wire] for field in fields)}"


def _is_one_of(tags: Iterable[bytes]) -> str:
    names = [_name(message) for tag in tags for message in spec.MESSAGES if message.tag == tag]
    if len(names) == 1:
        return f"tag == {names[0]}"
    return f"tag in (\n        {_wrapped(names)}\n    )"


def _wrapped(names: list[str], width: int = 92) -> str:
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) + 2 > width:
            lines.append("")
        lines[-1] += f"{name}, "
    return "\n        ".join(line.rstrip() for line in lines)


def main() -> None:
    TARGET.write_text(protocol(), encoding="utf-8")


if __name__ == "__main__":
    main()
