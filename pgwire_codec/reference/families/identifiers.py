"""tid and snapshots: identifiers of row versions and of running transactions."""

from __future__ import annotations

from typing import Final

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import ValueReader


def _render_tid(raw: bytes) -> bytes:
    """Return ``(block,offset)``."""
    reader = ValueReader(raw)
    block, offset = reader.number("I", "tid block"), reader.number("H", "tid offset")
    reader.finish()
    return b"(%d,%d)" % (block, offset)


def _render_snapshot(raw: bytes) -> bytes:
    """Return ``xmin:xmax:xid,xid``."""
    reader = ValueReader(raw)
    start = reader.at
    count = reader.number("i", "running transactions")
    low, high = reader.number("Q", "xmin"), reader.number("Q", "xmax")
    if count < 0 or count * 8 != len(raw) - reader.at:
        raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"{count} running transactions")
    running = [b"%d" % reader.number("Q", "xid") for _ in range(count)]
    return b"%d:%d:%b" % (low, high, b",".join(running))


FAMILIES: Final = {
    "tid": Family(render=_render_tid),
    "snapshot": Family(render=_render_snapshot),
}
