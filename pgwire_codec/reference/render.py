"""Binary form to the server's own text, for columns that are strings.

The text is what the server writes under the settings that a capture pins: DateStyle ISO,
IntervalStyle postgres, TimeZone UTC, extra_float_digits 3, bytea_output hex. Three types have a
text that their bytes do not contain. money's depends on lc_monetary, and comes out as a plain
number with two digits, ``12.34``. A regclass's is the name in the server's catalog, and comes out
as its OID. A pg_lsn's has leading zeros since PostgreSQL 19, ``0/01782C38``, and comes out without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference import (
    binary,
    render_geometry,
    render_network,
    render_search,
    render_time,
)
from pgwire_codec.reference.binary import Parts, one
from pgwire_codec.reference.render_float import render_float4, render_float8
from pgwire_codec.reference.text import check_utf8
from pgwire_codec.reference.text_array import ArrayParts
from pgwire_codec.types import ColumnType

_FIRST_USER_OID: Final = 16384  # FirstNormalObjectId of PostgreSQL

# Flags of a range, from utils/rangetypes.h.
_EMPTY, _LOWER_INCLUSIVE, _UPPER_INCLUSIVE, _NO_LOWER, _NO_UPPER = 0x01, 0x02, 0x04, 0x08, 0x10
_NULL_BOUNDS: Final = 0x20 | 0x40


def render(column: ColumnType, raw: bytes) -> bytes:
    """Give the text of one value's binary form, as UTF-8.

    Raises
    ------
    ValueProblem
        If the bytes are not a value of the type.
    """
    container = _CONTAINERS.get(column.pg.family)
    if container is not None:
        return container(column, raw)
    return _SCALARS[column.pg.family](raw)


def element_oid(column: ColumnType) -> int | None:
    """Give the element type that a binary array must tell, None where it may tell another."""
    return column.pg.element if column.pg.oid < _FIRST_USER_OID else None


def _part(column: ColumnType, raw: bytes, offset: int) -> bytes:
    """Render an element or a bound, and place what is wrong with it in the whole."""
    assert column.child is not None
    try:
        return render(column.child, raw)
    except ValueProblem as problem:
        problem.offset += offset
        raise


def _render_array(column: ColumnType, raw: bytes) -> bytes:
    parts = binary.read_array(raw, element_oid(column))
    if not parts.elements:
        return b"{}"
    assert column.child is not None
    delimiter = column.pg.delimiter.encode()
    shown = [
        b"NULL" if element is None else _quote_element(_part(column, element, at), delimiter)
        for element, at in parts.elements
    ]
    for _, length in reversed(parts.bounds):
        shown = [
            b"{" + delimiter.join(shown[i : i + length]) + b"}"
            for i in range(0, len(shown), length)
        ]
    return _dimensions(parts) + shown[0]


def _dimensions(parts: ArrayParts) -> bytes:
    if all(first == 1 for first, _ in parts.bounds):
        return b""
    return b"".join(b"[%d:%d]" % (first, first + n - 1) for first, n in parts.bounds) + b"="


def _quote_element(text: bytes, delimiter: bytes) -> bytes:
    special = b'"\\{} \t\n\r\v\f' + delimiter
    if text and text.upper() != b"NULL" and not any(byte in special for byte in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _render_vector(column: ColumnType, raw: bytes) -> bytes:
    parts = binary.read_array(raw, column.pg.subtype)
    if len(parts.bounds) > 1 or any(element is None for element, _ in parts.elements):
        raise ValueProblem(ErrorCode.BAD_VALUE, 0, "one dimension without NULLs")
    return b" ".join(_part(column, element or b"", at) for element, at in parts.elements)


def _render_range(column: ColumnType, raw: bytes) -> bytes:
    parts = Parts(raw)
    flags = parts.number("B", "range flags")
    if flags & _NULL_BOUNDS or flags > 0x7F:
        raise parts.refuse(0, "a range's flags")
    if flags & _EMPTY:
        parts.finish()
        return b"empty"
    lower = b"" if flags & _NO_LOWER else _bound(column, parts)
    upper = b"" if flags & _NO_UPPER else _bound(column, parts)
    parts.finish()
    opening = b"[" if flags & _LOWER_INCLUSIVE else b"("
    closing = b"]" if flags & _UPPER_INCLUSIVE else b")"
    return opening + lower + b"," + upper + closing


def _bound(column: ColumnType, parts: Parts) -> bytes:
    length = parts.number("i", "range bound length")
    at = parts.at
    text = _part(column, parts.take(length, "range bound"), at)
    if text and not any(byte in b'"\\()[], \t\n\r\v\f' for byte in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


def _render_multirange(column: ColumnType, raw: bytes) -> bytes:
    parts = Parts(raw)
    ranges = []
    for _ in range(parts.count("i", 5, "ranges")):
        length = parts.number("i", "range length")
        at = parts.at
        ranges.append(_part(column, parts.take(length, "range"), at))
    parts.finish()
    return b"{" + b",".join(ranges) + b"}"


def _render_versioned(raw: bytes) -> bytes:
    """Give jsonb's or jsonpath's text, which the version byte 1 precedes."""
    if raw[:1] != b"\x01":
        raise ValueProblem(ErrorCode.BAD_VALUE, 0, "version 1 of the binary form")
    try:
        return check_utf8(raw[1:])
    except ValueProblem as problem:
        problem.offset += 1
        raise


def _render_bits(raw: bytes) -> bytes:
    parts = Parts(raw)
    length = parts.number("i", "bit count")
    if length < 0:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, "a bit count of 0 or more")
    packed = parts.take((length + 7) // 8, "bits")
    parts.finish()
    return "".join(f"{byte:08b}" for byte in packed)[:length].encode()


def _render_char(raw: bytes) -> bytes:
    r"""Give the one byte of a "char": nothing for zero, ``\377`` above ASCII (16 on)."""
    byte = one("B", raw, '"char"')
    if byte >= 0x80:
        return b"\\%03o" % byte
    return bytes([byte]) if byte else b""


def _render_money(raw: bytes) -> bytes:
    cents = one("q", raw, "money")
    return b"%b%d.%02d" % (b"-" if cents < 0 else b"", abs(cents) // 100, abs(cents) % 100)


def _render_lsn(raw: bytes) -> bytes:
    lsn = one("Q", raw, "pg_lsn")
    return b"%X/%X" % (lsn >> 32, lsn & 0xFFFF_FFFF)


def _render_tid(raw: bytes) -> bytes:
    parts = Parts(raw)
    block, offset = parts.number("I", "tid block"), parts.number("H", "tid offset")
    parts.finish()
    return b"(%d,%d)" % (block, offset)


def _render_snapshot(raw: bytes) -> bytes:
    parts = Parts(raw)
    start = parts.at
    count = parts.number("i", "running transactions")
    low, high = parts.number("Q", "xmin"), parts.number("Q", "xmax")
    if count < 0 or count * 8 != len(raw) - parts.at:
        raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"{count} running transactions")
    running = [b"%d" % parts.number("Q", "xid") for _ in range(count)]
    return b"%d:%d:%b" % (low, high, b",".join(running))


def _render_uuid(raw: bytes) -> bytes:
    digits = binary.read_uuid(raw).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def _decimal(family: str) -> Callable[[bytes], bytes]:
    return lambda raw: b"%d" % binary.BINARY[family](raw)


_CONTAINERS: Final[dict[str, Callable[[ColumnType, bytes], bytes]]] = {
    "array": _render_array,
    "vector": _render_vector,
    "range": _render_range,
    "multirange": _render_multirange,
}
_SCALARS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "text": check_utf8,
    "bool": lambda raw: b"t" if binary.read_bool(raw) else b"f",
    "int2": _decimal("int2"),
    "int4": _decimal("int4"),
    "int8": _decimal("int8"),
    "uint4": _decimal("uint4"),
    "uint8": _decimal("uint8"),
    "reg": _decimal("uint4"),
    "pg_lsn": _render_lsn,
    "float4": lambda raw: render_float4(one("I", raw, "float4")),
    "float8": lambda raw: render_float8(one("Q", raw, "float8")),
    "numeric": binary.read_numeric,
    "money": _render_money,
    "char": _render_char,
    "bytea": lambda raw: b"\\x" + raw.hex().encode(),
    # What its bytes mean is not known: shown as a bytea would be.
    "unknown": lambda raw: b"\\x" + raw.hex().encode(),
    "jsonb": _render_versioned,
    "jsonpath": _render_versioned,
    "uuid": _render_uuid,
    "date": render_time.render_date,
    "time": render_time.render_time,
    "timetz": render_time.render_timetz,
    "timestamp": render_time.render_timestamp,
    "timestamptz": render_time.render_timestamptz,
    "interval": render_time.render_interval,
    "inet": render_network.render_inet,
    "cidr": render_network.render_inet,
    "macaddr": render_network.render_macaddr,
    "macaddr8": render_network.render_macaddr8,
    "bit": _render_bits,
    "tid": _render_tid,
    "snapshot": _render_snapshot,
    "point": render_geometry.render_point,
    "lseg": render_geometry.render_lseg,
    "line": render_geometry.render_line,
    "box": render_geometry.render_box,
    "path": render_geometry.render_path,
    "polygon": render_geometry.render_polygon,
    "circle": render_geometry.render_circle,
    "tsvector": render_search.render_tsvector,
    "tsquery": render_search.render_tsquery,
}
