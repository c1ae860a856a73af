"""Watermark: the end of what may be read of a log, and of what may be confirmed to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from pgwire_codec.log.checked_json import Count, checksum, converted, dump, invalid, load
from pgwire_codec.log.source import LogSource
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

WATERMARK: Final = "watermark.json"
_LSNS: Final = ("delivered_lsn", "confirm_lsn", "received_lsn")


class DurableSegment(NamedTuple):
    """Durable beginning of the growing segment; the fields are those of :class:`Watermark`."""

    segment: str | None
    bytes: int
    messages: int
    checksum: str


#: For a log whose segments are all sealed.
NOTHING_GROWS: Final = DurableSegment(None, 0, 0, checksum(b""))


@dataclass(frozen=True, slots=True)
class Watermark:
    """Content of ``watermark.json``.

    Attributes
    ----------
    log_id : str
        Identifier of the log, as in its manifest.
    source : LogSource
        Source of the last session.
    segment : str or None
        Name of the growing segment, without suffix; None when all are sealed.
    bytes, messages : int
        Durable bytes and messages of the growing segment.
    checksum : str
        Checksum of these bytes.
    end_ordinal : int
        Ordinal after the last durable message.
    delivered_lsn : int
        Commit LSN of the last transaction delivered up to there.
    confirm_lsn : int
        LSN that may be confirmed: everything that ends at or before it is durable.
    received_lsn : int
        Last position that the server reported.
    time : str
        Time when this was written: UTC, ISO 8601.
    """

    log_id: str
    source: LogSource
    segment: str | None
    bytes: int
    messages: int
    checksum: str
    end_ordinal: int
    delivered_lsn: int
    confirm_lsn: int
    received_lsn: int
    time: str


class _WatermarkJson(msgspec.Struct):
    log_id: str
    source: LogSource
    segment: str | None
    bytes: Count
    messages: Count
    checksum: str = msgspec.field(name="checksum_of_bytes")
    end_ordinal: Count
    delivered_lsn: str
    confirm_lsn: str
    received_lsn: str
    time: str


def watermark_to_bytes(watermark: Watermark) -> bytes:
    """Return the file of a watermark."""
    lsns = {name: format_lsn(getattr(watermark, name)) for name in _LSNS}
    return dump(converted(watermark, _WatermarkJson, **lsns))


def watermark_from_bytes(data: bytes, file: str) -> Watermark:
    """Read a watermark; ``file`` is its name in errors. Raise ``LogError`` for a damaged one."""
    value = load(data, _WatermarkJson, file)
    try:
        lsns = {name: parse_lsn(getattr(value, name)) for name in _LSNS}
    except ValueError as error:
        raise invalid(file, error) from error
    return converted(value, Watermark, **lsns)
