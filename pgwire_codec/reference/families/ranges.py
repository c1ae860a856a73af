"""Ranges and multiranges."""

from __future__ import annotations

from functools import partial
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import ValueReader, bad_value, read_part
from pgwire_codec.types import ColumnType

# Flags of a range, from utils/rangetypes.h.
_EMPTY, _LOWER_INCLUSIVE, _UPPER_INCLUSIVE, _NO_LOWER, _NO_UPPER = 0x01, 0x02, 0x04, 0x08, 0x10
_NULL_BOUNDS: Final = 0x20 | 0x40


def _render_range(bound: Family, raw: bytes) -> bytes:
    reader = ValueReader(raw)
    flags = reader.number("B", "range flags")
    if flags & _NULL_BOUNDS or flags > 0x7F:
        raise bad_value(0, "a range's flags")
    if flags & _EMPTY:
        reader.finish()
        return b"empty"
    lower = b"" if flags & _NO_LOWER else _render_bound(bound, reader)
    upper = b"" if flags & _NO_UPPER else _render_bound(bound, reader)
    reader.finish()
    opening = b"[" if flags & _LOWER_INCLUSIVE else b"("
    closing = b"]" if flags & _UPPER_INCLUSIVE else b")"
    return opening + lower + b"," + upper + closing


def _render_bound(bound: Family, reader: ValueReader) -> bytes:
    text = _render_part(bound, reader, "range bound")
    if text and not any(byte in b'"\\()[], \t\n\r\v\f' for byte in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


def _render_multirange(member: Family, raw: bytes) -> bytes:
    reader = ValueReader(raw)
    ranges = [_render_part(member, reader, "range") for _ in range(reader.count("i", 5, "ranges"))]
    reader.finish()
    return b"{" + b",".join(ranges) + b"}"


def _render_part(part: Family, reader: ValueReader, what: str) -> bytes:
    """Render what follows its length: a bound or a range."""
    length = reader.number("i", f"{what} length")
    at = reader.at
    return read_part(part.render, reader.take(length, what), at)


def _range(column: ColumnType, bound: Family) -> Family:
    return Family(render=partial(_render_range, bound))


def _multirange(column: ColumnType, member: Family) -> Family:
    return Family(render=partial(_render_multirange, member))


CONTAINERS: Final = {"range": _range, "multirange": _multirange}
