"""Offsets of a stream: positions in a log, as Spark stores them."""

from __future__ import annotations

from typing import Any

from pgwire_codec.log import LogPosition
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn


def to_offset(position: LogPosition) -> dict[str, Any]:
    """Return a position as Spark stores it in a checkpoint, and shows it in its progress."""
    return {"ordinal": position.ordinal, "lsn": format_lsn(position.lsn)}


def from_offset(offset: dict[str, Any]) -> LogPosition:
    """Return the position of an offset, as :func:`to_offset` returned it."""
    return LogPosition(offset["ordinal"], parse_lsn(offset["lsn"]))
