"""Recovery of a log before a writer appends to it: all segments sealed, no other files.

Bytes after the watermark's end were never acknowledged, and are removed. Bytes before it are kept.
If a file is damaged or missing, nothing is changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.bounds import (
    NOTHING_GROWS,
    WATERMARK,
    Manifest,
    Watermark,
    watermark_to_bytes,
)
from pgwire_codec.log.checked_json import RESTORE, checksum
from pgwire_codec.log.directory import (
    Directory,
    check_end,
    missing,
    read_directory,
    read_manifest,
)
from pgwire_codec.log.index_file import index_batch, index_row
from pgwire_codec.log.ipc_file import END, read_combined, read_header
from pgwire_codec.log.sealed_segments import SealedSegments
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, segment_name
from pgwire_codec.log.segment_builder import SegmentBuilder
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.state import LogState
from pgwire_codec.log.store import Store
from pgwire_codec.log.store_errors import MissingFileError
from pgwire_codec.transactions.carry import Scope


class RecoveredLog(NamedTuple):
    """A log whose segments are all sealed.

    Attributes
    ----------
    manifest : Manifest or None
    watermark : Watermark or None
    last : Segment or None
        The last segment.
    state : LogState
        State after it.
    scope : Scope
        The relations known after it.
    rows : list of pyarrow.RecordBatch
        Rows of the index that no file has, of the last segments, one a batch.
    """

    manifest: Manifest | None
    watermark: Watermark | None
    last: Segment | None
    state: LogState
    scope: Scope
    rows: list[pa.RecordBatch]


def recover(store: Store, part_bytes: int) -> RecoveredLog:
    """Seal what is durable, and remove what is not.

    The caller holds the log's lock. Raises ``LogError`` when something durable is damaged or
    missing.
    """
    found, last, scope, rows = _read(store)
    watermark = found.watermark
    end = found.first_ordinal if last is None else last.end_ordinal
    state = LogState() if last is None else last.state()
    growing = None
    if watermark is None or found.growing is None:
        check_end(store, found, end)
    elif found.growing == segment_name(end):
        growing = read_growing(store, watermark, part_bytes, scope)
        growing.end_part()
        state = growing.state()
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
        rows.append(index_batch([index_row(last, scope, growing.declared)]))
        scope.update(growing.declared)
    if watermark is not None and watermark.segment is not None:
        watermark = replace(watermark, **NOTHING_GROWS._asdict())
        store.write(WATERMARK, watermark_to_bytes(watermark))
    return RecoveredLog(found.manifest, watermark, last, state, scope, rows)


def _read(store: Store) -> tuple[Directory, Segment | None, Scope, list[pa.RecordBatch]]:
    """Return the log's files, the last complete segment, the relations known after it, and rows.

    The rows are those of the index that no file has.
    """
    while True:
        found = read_directory(store)
        sealed = SealedSegments(store, found)
        try:
            last = sealed[-1] if len(sealed) else None
            scope = sealed.index.scope_before(len(sealed)).copy()
            return found, last, scope, sealed.rows_without_file()
        except MissingFileError:
            was = found.manifest
            if was is None or read_manifest(store).compactions == was.compactions:
                raise


def read_growing(
    store: Store, watermark: Watermark, part_bytes: int, begun: SegmentBuilder | Scope
) -> SegmentBuilder:
    """Read the growing segment up to the watermark.

    ``begun`` is the builder that read a part of it, to go on, or the relations known before the
    segment. Raises ``LogError`` when bytes before the watermark are missing or damaged.
    """
    file = f"{watermark.segment}{SEGMENT}"
    path = f"{store.name}/{file}"
    data = store.read_buffer(file, 0, watermark.bytes)
    if isinstance(begun, Scope):
        found = checksum(data)
    else:
        file_hash = begun.file_hash.copy()
        file_hash.update(data[begun.bytes :])
        found = file_hash.hexdigest()
    if found != watermark.checksum:
        raise LogError(
            f"{path} is damaged: its first {watermark.bytes} bytes do not have the checksum in the "
            "watermark",
            hint=RESTORE,
        )
    if isinstance(begun, Scope):
        header, length = read_header(data, path)
        if header.log_id != watermark.log_id or header.name != watermark.segment:
            raise LogError(f"{path} is segment {header.name} of log {header.log_id}", hint=RESTORE)
        builder = SegmentBuilder(header, begun, data[:length], part_bytes)
    else:
        builder = begun
    add_messages(builder, data[builder.bytes :], path, part_bytes)
    if builder.messages != watermark.messages:
        raise LogError(
            f"{path} has {builder.messages} messages in its first {watermark.bytes} bytes, and the "
            f"watermark counts {watermark.messages}",
            hint=RESTORE,
        )
    return builder


def add_messages(builder: SegmentBuilder, data: pa.Buffer, file: str, part_bytes: int) -> None:
    """Add the record batches that follow in a segment's file to its description."""
    offset, encoding = builder.bytes, builder.header.encoding

    # A part ends where it would with each batch by itself.
    def capacity() -> int:
        return part_bytes - builder.part_message_bytes

    for batch in read_combined(data, offset, file, encoding, capacity=capacity):
        builder.add(batch.records, data[batch.start - offset : batch.stop - offset])


def _unacknowledged(store: Store, found: Directory, end: int) -> list[str]:
    """Return the file that a dead writer left after the end; raise ``LogError`` for any other."""
    if found.unacknowledged is None:
        return []
    if found.unacknowledged != segment_name(end):
        raise missing(store, found.unacknowledged + SIDECAR)
    return [found.unacknowledged + SEGMENT]
