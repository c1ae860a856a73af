"""Bring a log into the state in which a writer may go on: all segments sealed, nothing else there.

Whatever a writer that died left behind the watermark was never acknowledged, and goes. What stands
before it stays; where that is damaged nothing is changed at all.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from pgwire_codec.errors import LogError
from pgwire_codec.log.digest import Digest
from pgwire_codec.log.directory import Directory, check_end, look, read_sidecar
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, segment_to_bytes
from pgwire_codec.log.store import Store
from pgwire_codec.log.stream import END, read_batches, read_header
from pgwire_codec.log.watermark import WATERMARK, Watermark, watermark_to_bytes


def recover(store: Store, part_bytes: int) -> tuple[Watermark | None, Segment | None]:
    """Seal what is durable, remove what is not; give the watermark and the last segment.

    The caller holds the log's lock. Raises ``LogError`` where something durable is damaged or
    missing.
    """
    found = look(store)
    leftover = _leftover(store, found)
    last = read_sidecar(store, found.sealed[-1]) if found.sealed else None
    if found.growing is None:
        check_end(store, found.watermark, 0 if last is None else last.end_ordinal)
    watermark = found.watermark
    growing = None
    if watermark is not None and found.growing is not None:
        growing = read_growing(store, watermark, part_bytes)
    for name in leftover:
        store.remove(name)
    if growing is not None:
        last = growing.segment(sealed=True)
        store.finish(last.name + SEGMENT, last.bytes, END)
        last = replace(last, bytes=last.bytes + len(END))
        store.write(last.name + SIDECAR, segment_to_bytes(last))
    if watermark is not None and watermark.segment is not None:
        watermark = replace(watermark, segment=None, bytes=0, messages=0, crc32=0)
        store.write(WATERMARK, watermark_to_bytes(watermark))
    return watermark, last


def read_growing(
    store: Store, watermark: Watermark, part_bytes: int, digest: Digest | None = None
) -> Digest:
    """Read the growing segment as far as the watermark says: on from where a digest of it ends.

    Raises ``LogError`` where that much is not there, or damaged.
    """
    file = f"{watermark.segment}{SEGMENT}"
    path = f"{store.name}/{file}"
    size = store.size(file)
    if size < watermark.bytes:
        raise LogError(
            f"{path} has {size} bytes, and {watermark.bytes} of it were acknowledged: restore it "
            "from a copy of the log"
        )
    data = store.read_buffer(file, 0, watermark.bytes)
    known, crc32 = (0, 0) if digest is None else (digest.bytes, digest.crc32)
    if zlib.crc32(data[known:], crc32) != watermark.crc32:
        raise LogError(
            f"{path} is damaged: its first {watermark.bytes} bytes do not have the checksum that "
            "the watermark tells; restore it from a copy of the log"
        )
    if digest is None:
        head, header = read_header(data, path)
        digest = Digest(head, data[:header], part_bytes)
    for batch in read_batches(data[digest.bytes :], digest.bytes, path):
        digest.add(batch.records, data[batch.start : batch.stop])
    if digest.messages != watermark.messages:
        raise LogError(
            f"{path} has {digest.messages} messages in its first {watermark.bytes} bytes, and the "
            f"watermark tells of {watermark.messages}: restore the log from a copy"
        )
    return digest


def _leftover(store: Store, found: Directory) -> list[str]:
    """Name the files to remove; ``LogError`` for one that may hold what was acknowledged."""
    leftover = []
    for name in found.unsealed:
        if name == found.growing:
            continue
        # Before the first sealed segment: pruned. Behind the last: never acknowledged.
        is_between = bool(found.sealed) and found.sealed[0] < name < found.sealed[-1]
        if is_between or (store.grows and found.sealed and found.watermark is None):
            raise LogError(
                f"{store.name}/{name}{SIDECAR} is missing, and the messages of the segment may be "
                "needed: restore it from a copy of the log"
            )
        leftover.append(name + SEGMENT)
    return [*leftover, *found.temporary]
