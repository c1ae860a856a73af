"""Bounds of a log: the manifest, with its beginning, and the watermark, with its durable end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

import msgspec

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import (
    Count,
    checksum,
    converted,
    damaged,
    dump,
    invalid,
    load,
)
from pgwire_codec.log.source import LogSource
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

MANIFEST: Final = "manifest.json"
WATERMARK: Final = "watermark.json"
_LSNS: Final = ("delivered_lsn", "confirm_lsn", "received_lsn")

#: Bytes that most disks write as a whole or not at all. The part of the watermark that changes with
#: each flush fits, so that it can be overwritten in place. Flushes overwrite two such sectors in
#: turns: one that is torn leaves the end of the flush before.
SECTOR: Final = 512
SECTORS: Final = 2

_HEAD_OF_IDENTITY: Final = 32
#: Orders the sectors of a file, which one writer has written since it wrote the whole file.
_WRITTEN: Final = count(1)
_TORN: Final = (
    "After a power cut or a full disk, repair it by pgwire-codec log verify --repair: the log ends "
    "with the flush before, and the capture gets the rest from the server. Otherwise, restore the "
    "file from a copy of the log."
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of ``manifest.json``.

    A log's segments follow one another without a gap. The manifest records the first ordinal, each
    sidecar the ordinal of the next segment, and the watermark the end. A missing segment is
    therefore always detected.

    Attributes
    ----------
    log_id : str
        Random identifier of the log, repeated in all its files.
    first_ordinal : int
        Ordinal of the first segment's first message. Pruning increases it.
    compactions : int
        Number that a compaction increases before it removes files. A reader that finds another
        number after it has listed the files lists them again.
    """

    log_id: str
    first_ordinal: Count
    compactions: Count = 0


def manifest_to_bytes(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    return dump(manifest)


def manifest_from_bytes(data: bytes, file: str) -> Manifest:
    """Read a manifest; ``file`` is its name in errors. Raise ``LogError`` for a damaged one."""
    return load(data, Manifest, file)


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


class _PositionsJson(msgspec.Struct, kw_only=True):
    """A line of the file, which is a sector with its line end."""

    segment: str | None
    bytes: Count
    messages: Count
    checksum: str = msgspec.field(name="checksum_of_bytes")
    end_ordinal: Count
    delivered_lsn: str
    confirm_lsn: str
    received_lsn: str
    time: str
    number: Count = 0


class _IdentityJson(msgspec.Struct):
    """The last line."""

    log_id: str
    source: LogSource


class _WatermarkJson(_PositionsJson, kw_only=True):
    """The only line of a file that an earlier release wrote."""

    log_id: str
    source: LogSource


def watermark_to_bytes(watermark: Watermark) -> bytes:
    """Return the file of a watermark."""
    return positions_to_bytes(watermark) * SECTORS + dump(converted(watermark, _IdentityJson))


def positions_to_bytes(watermark: Watermark) -> bytes:
    """Return a sector of the file: all that changes as long as one writer has it."""
    lsns = {name: format_lsn(getattr(watermark, name)) for name in _LSNS}
    line = dump(converted(watermark, _PositionsJson, number=next(_WRITTEN), **lsns))
    return line[:-1].ljust(SECTOR - 1) + b"\n"


def watermark_from_bytes(data: bytes, file: str) -> Watermark:
    """Read a watermark; ``file`` is its name in errors. Raise ``LogError`` for a damaged one."""
    if b"\n" not in data[:-1]:
        return _watermark(load(data, _WatermarkJson, file), file)
    # An earlier release wrote one sector, before the log's source.
    sectors = 1 if b',"log_id":' in data[SECTOR : SECTOR + _HEAD_OF_IDENTITY] else SECTORS
    found = [_positions(data, index, file) for index in range(sectors)]
    newest = max(found, key=lambda positions: positions.number)
    return _watermark(newest, file, load(data[sectors * SECTOR :], _IdentityJson, file))


def watermark_before(data: bytes, file: str) -> Watermark | None:
    """Return the watermark of the only sector that is not damaged, if the other one is."""
    found = []
    for index in range(SECTORS):
        with suppress(LogError):
            found.append(_positions(data, index, file))
    if len(found) != 1:
        return None
    try:
        return _watermark(found[0], file, load(data[SECTORS * SECTOR :], _IdentityJson, file))
    except LogError:
        return None


def _positions(data: bytes, index: int, file: str) -> _PositionsJson:
    sector = data[index * SECTOR : (index + 1) * SECTOR]
    line = sector.rstrip(b" \n") + b"\n"
    try:
        positions = load(line, _PositionsJson, file)
        if sector != line[:-1].ljust(SECTOR - 1) + b"\n":
            raise damaged(file)
    except LogError as error:
        error.hint = _TORN
        raise
    return positions


def _watermark(
    positions: _PositionsJson, file: str, identity: _IdentityJson | None = None
) -> Watermark:
    fields = msgspec.structs.asdict(positions)
    del fields["number"]
    if identity is not None:
        fields |= msgspec.structs.asdict(identity)
    try:
        lsns = {name: parse_lsn(fields[name]) for name in _LSNS}
    except ValueError as error:
        raise invalid(file, error) from error
    return Watermark(**{**fields, **lsns})
