"""How far a log may be read, and what may be confirmed to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgwire_codec.log.checked_json import dump, load
from pgwire_codec.log.segment import FORMAT, check_format
from pgwire_codec.log.source import Source, source_from_json, source_to_json
from pgwire_codec.lsn import format_lsn, parse_lsn

WATERMARK: Final = "watermark.json"


@dataclass(frozen=True, slots=True)
class Watermark:
    """What ``watermark.json`` says.

    Attributes
    ----------
    source : Source
        Of the last session.
    segment : str or None
        The growing segment's name, without suffix; None when all are sealed.
    bytes, messages : int
        Of the growing segment: how much of it is durable.
    crc32 : int
        Of these bytes.
    end_ordinal : int
        One past the last durable message's ordinal.
    delivered_lsn : int
        Commit LSN of the last transaction delivered up to there.
    confirm_lsn : int
        What may be confirmed: all that ends up to there is durable.
    received_lsn : int
        The last position that the server told.
    time : str
        When this was written: UTC, ISO 8601.
    """

    source: Source
    segment: str | None
    bytes: int
    messages: int
    crc32: int
    end_ordinal: int
    delivered_lsn: int
    confirm_lsn: int
    received_lsn: int
    time: str


def watermark_to_bytes(watermark: Watermark) -> bytes:
    return dump(
        {
            "format": FORMAT,
            "source": source_to_json(watermark.source),
            "segment": watermark.segment,
            "bytes": watermark.bytes,
            "messages": watermark.messages,
            "crc32": watermark.crc32,
            "last_ordinal": watermark.end_ordinal - 1,
            "delivered_lsn": format_lsn(watermark.delivered_lsn),
            "confirm_lsn": format_lsn(watermark.confirm_lsn),
            "received_lsn": format_lsn(watermark.received_lsn),
            "time": watermark.time,
        }
    )


def watermark_from_bytes(data: bytes, file: str) -> Watermark:
    """Read a watermark; ``LogError`` for one that is damaged. ``file`` is its name, for people."""
    value = load(data, file)
    check_format(value["format"], file)
    return Watermark(
        source=source_from_json(value["source"]),
        segment=value["segment"],
        bytes=value["bytes"],
        messages=value["messages"],
        crc32=value["crc32"],
        end_ordinal=value["last_ordinal"] + 1,
        delivered_lsn=parse_lsn(value["delivered_lsn"]),
        confirm_lsn=parse_lsn(value["confirm_lsn"]),
        received_lsn=parse_lsn(value["received_lsn"]),
        time=value["time"],
    )
