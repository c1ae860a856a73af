"""How far a log may be read, and what may be confirmed to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from pgwire_codec.log.checked_json import Count, dump, invalid, load
from pgwire_codec.log.source import Source
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

WATERMARK: Final = "watermark.json"


@dataclass(frozen=True, slots=True)
class Watermark:
    """Content of ``watermark.json``.

    Attributes
    ----------
    log_id : str
        The log's, as in its manifest.
    source : Source
        Of the last session.
    segment : str or None
        The growing segment's name, without suffix; None when all are sealed.
    bytes, messages : int
        Of the growing segment: how much of it is durable.
    checksum : str
        Of these bytes.
    end_ordinal : int
        One past the last durable message's ordinal.
    delivered_lsn : int
        Commit LSN of the last transaction delivered up to there.
    confirm_lsn : int
        LSN that may be confirmed: all that ends up to there is durable.
    received_lsn : int
        The last position that the server reported.
    time : str
        When this was written: UTC, ISO 8601.
    """

    log_id: str
    source: Source
    segment: str | None
    bytes: int
    messages: int
    checksum: str
    end_ordinal: int
    delivered_lsn: int
    confirm_lsn: int
    received_lsn: int
    time: str


class _File(msgspec.Struct):
    log_id: str
    source: Source
    segment: str | None
    bytes: Count
    messages: Count
    checksum_of_bytes: str
    end_ordinal: Count
    delivered_lsn: str
    confirm_lsn: str
    received_lsn: str
    time: str


def watermark_to_bytes(watermark: Watermark) -> bytes:
    return dump(
        _File(
            log_id=watermark.log_id,
            source=watermark.source,
            segment=watermark.segment,
            bytes=watermark.bytes,
            messages=watermark.messages,
            checksum_of_bytes=watermark.checksum,
            end_ordinal=watermark.end_ordinal,
            delivered_lsn=format_lsn(watermark.delivered_lsn),
            confirm_lsn=format_lsn(watermark.confirm_lsn),
            received_lsn=format_lsn(watermark.received_lsn),
            time=watermark.time,
        )
    )


def watermark_from_bytes(data: bytes, file: str) -> Watermark:
    """Read a watermark; ``LogError`` for one that is damaged. ``file`` is its name for messages."""
    value = load(data, _File, file)
    try:
        return Watermark(
            log_id=value.log_id,
            source=value.source,
            segment=value.segment,
            bytes=value.bytes,
            messages=value.messages,
            checksum=value.checksum_of_bytes,
            end_ordinal=value.end_ordinal,
            delivered_lsn=parse_lsn(value.delivered_lsn),
            confirm_lsn=parse_lsn(value.confirm_lsn),
            received_lsn=parse_lsn(value.received_lsn),
            time=value.time,
        )
    except ValueError as error:
        raise invalid(file, error) from error
