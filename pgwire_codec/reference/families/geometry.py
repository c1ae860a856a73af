"""Geometric types: float8 coordinates between brackets."""

from __future__ import annotations

from functools import partial
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.floats import float8_text
from pgwire_codec.reference.families.forms import ValueReader, bad_value


def _render_path(raw: bytes) -> bytes:
    """Return ``((x,y),…)`` of a closed path and ``[(x,y),…]`` of an open one."""
    reader = ValueReader(raw)
    closed = reader.number("B", "path flag")
    if closed > 1:
        raise bad_value(0, "a path's flag: 0 for open, 1 for closed")
    points = _points(reader)
    return b"(%b)" % points if closed else b"[%b]" % points


def _render_polygon(raw: bytes) -> bytes:
    """Return ``((x,y),…)``."""
    return b"(%b)" % _points(ValueReader(raw))


def _points(reader: ValueReader) -> bytes:
    start = reader.at
    count = reader.count("i", 16, "points")
    if not count:
        raise bad_value(start, "one point or more")
    points = [b"(%b,%b)" % (_coordinate(reader), _coordinate(reader)) for _ in range(count)]
    reader.finish()
    return b",".join(points)


def _render_fixed(layout: bytes, raw: bytes) -> bytes:
    """Return a fixed number of coordinates, laid out as the server writes them."""
    reader = ValueReader(raw)
    numbers = tuple(_coordinate(reader) for _ in range(layout.count(b"%b")))
    reader.finish()
    return layout % numbers


def _coordinate(reader: ValueReader) -> bytes:
    return float8_text(reader.number("Q", "coordinate"))


FAMILIES: Final = {
    "point": Family(render=partial(_render_fixed, b"(%b,%b)")),
    "lseg": Family(render=partial(_render_fixed, b"[(%b,%b),(%b,%b)]")),
    # The upper right corner is first.
    "box": Family(render=partial(_render_fixed, b"(%b,%b),(%b,%b)")),
    "line": Family(render=partial(_render_fixed, b"{%b,%b,%b}")),
    "circle": Family(render=partial(_render_fixed, b"<(%b,%b),%b>")),
    "path": Family(render=_render_path),
    "polygon": Family(render=_render_polygon),
}
