"""The server's text of geometric types: float8 coordinates between brackets."""

from __future__ import annotations

from pgwire_codec.reference.binary import Parts
from pgwire_codec.reference.render_float import render_float8


def render_point(raw: bytes) -> bytes:
    """Give ``(x,y)``."""
    return _fixed(raw, b"(%b,%b)")


def render_lseg(raw: bytes) -> bytes:
    """Give ``[(x1,y1),(x2,y2)]``."""
    return _fixed(raw, b"[(%b,%b),(%b,%b)]")


def render_box(raw: bytes) -> bytes:
    """Give ``(x1,y1),(x2,y2)``, the upper right corner first."""
    return _fixed(raw, b"(%b,%b),(%b,%b)")


def render_line(raw: bytes) -> bytes:
    """Give ``{A,B,C}``."""
    return _fixed(raw, b"{%b,%b,%b}")


def render_circle(raw: bytes) -> bytes:
    """Give ``<(x,y),r>``."""
    return _fixed(raw, b"<(%b,%b),%b>")


def render_path(raw: bytes) -> bytes:
    """Give ``((x,y),…)`` of a closed path and ``[(x,y),…]`` of an open one."""
    parts = Parts(raw)
    closed = parts.number("B", "path flag")
    if closed > 1:
        raise parts.refuse(0, "a path's flag: 0 for open, 1 for closed")
    points = _points(parts)
    return b"(%b)" % points if closed else b"[%b]" % points


def render_polygon(raw: bytes) -> bytes:
    """Give ``((x,y),…)``."""
    return b"(%b)" % _points(Parts(raw))


def _points(parts: Parts) -> bytes:
    start = parts.at
    count = parts.count("i", 16, "points")
    if not count:
        raise parts.refuse(start, "one point or more")
    points = [b"(%b,%b)" % (_coordinate(parts), _coordinate(parts)) for _ in range(count)]
    parts.finish()
    return b",".join(points)


def _fixed(raw: bytes, layout: bytes) -> bytes:
    parts = Parts(raw)
    numbers = tuple(_coordinate(parts) for _ in range(layout.count(b"%b")))
    parts.finish()
    return layout % numbers


def _coordinate(parts: Parts) -> bytes:
    return render_float8(parts.number("Q", "coordinate"))
