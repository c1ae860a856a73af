"""Bring a log into the state in which a writer may go on: all segments sealed, nothing else there.

Whatever a writer that died left after the watermark's end was never acknowledged, and is removed.
What is before it stays. Where a file is damaged or missing nothing is changed at all.
"""

from __future__ import annotations

from dataclasses import replace

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import RESTORE, checksum
from pgwire_codec.log.digest import Digest
from pgwire_codec.log.directory import Directory, check_end, look, missing, read_sidecar
from pgwire_codec.log.manifest import Manifest
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, segment_name
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.store import Store
from pgwire_codec.log.stream import END, read_batches, read_header
from pgwire_codec.log.watermark import WATERMARK, Watermark, watermark_to_bytes


def recover(
    store: Store, part_bytes: int
) -> tuple[Manifest | None, Watermark | None, Segment | None]:
    """Seal what is durable and remove what is not; return manifest, watermark and last segment.

    The caller holds the log's lock. Raises ``LogError`` where something durable is damaged or
    missing, and for a copy.
    """
    found = look(store)
    if found.manifest is not None and found.manifest.end_ordinal is not None:
        raise LogError(
            f"{store.name} is a copy of a log, which is not written to",
            hint="Write to the log itself, or to another, empty directory.",
        )
    watermark = found.watermark
    last = None
    if found.sealed:
        last = read_sidecar(store, found.sealed[-1], found.manifest)
    end = found.first_ordinal if last is None else last.end_ordinal
    growing = None
    if watermark is None or found.growing is None:
        check_end(store, found, end)
    elif found.growing == segment_name(end):
        growing = read_growing(store, watermark, part_bytes)
    else:
        raise missing(store, segment_name(end) + SEGMENT)
    leftover = [*found.leftover, *_unacknowledged(store, found, end)]
    for name in leftover:
        store.remove(name)
    if growing is not None:
        last = growing.segment(sealed=True)
        store.finish(last.name + SEGMENT, last.bytes, END)
        last = replace(last, bytes=last.bytes + len(END))
        store.write(last.name + SIDECAR, segment_to_bytes(last))
    if watermark is not None and watermark.segment is not None:
        watermark = replace(watermark, segment=None, bytes=0, messages=0, checksum=checksum(b""))
        store.write(WATERMARK, watermark_to_bytes(watermark))
    return found.manifest, watermark, last


def read_growing(
    store: Store, watermark: Watermark, part_bytes: int, digest: Digest | None = None
) -> Digest:
    """Read the growing segment as far as the watermark says: on from where a digest of it ends.

    Raises ``LogError`` where that much is not there, or damaged.
    """
    file = f"{watermark.segment}{SEGMENT}"
    path = f"{store.name}/{file}"
    data = store.read_buffer(file, 0, watermark.bytes)
    if digest is None:
        found = checksum(data)
    else:
        file_hash = digest.file_hash.copy()
        file_hash.update(data[digest.bytes :])
        found = file_hash.hexdigest()
    if found != watermark.checksum:
        raise LogError(
            f"{path} is damaged: its first {watermark.bytes} bytes do not have the checksum in the "
            "watermark",
            hint=RESTORE,
        )
    if digest is None:
        head, header = read_header(data, path)
        if head.log_id != watermark.log_id or head.name != watermark.segment:
            raise LogError(f"{path} is segment {head.name} of log {head.log_id}", hint=RESTORE)
        digest = Digest(head, data[:header], part_bytes)
    for batch in read_batches(data[digest.bytes :], digest.bytes, path):
        digest.add(batch.records, data[batch.start : batch.stop])
    if digest.messages != watermark.messages:
        raise LogError(
            f"{path} has {digest.messages} messages in its first {watermark.bytes} bytes, and the "
            f"watermark counts {watermark.messages}",
            hint=RESTORE,
        )
    return digest


def _unacknowledged(store: Store, found: Directory, end: int) -> list[str]:
    """Return the file that a dead writer left after the end; ``LogError`` for any other."""
    if found.unacknowledged is None:
        return []
    if found.unacknowledged != segment_name(end):
        raise missing(store, found.unacknowledged + SIDECAR)
    return [found.unacknowledged + SEGMENT]
