"""Verification of a whole log: checksums, order, decoding, and the content of sidecars."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pgwire_codec._impl import Decoder
from pgwire_codec.decoder import PartDecoder
from pgwire_codec.errors import DecodeError, LogError
from pgwire_codec.log.bounds import (
    WATERMARK,
    Watermark,
    watermark_before,
    watermark_to_bytes,
)
from pgwire_codec.log.checked_json import checksum
from pgwire_codec.log.directory import (
    Directory,
    check_end,
    classify_files,
    folders_in_place_of_files,
    not_a_log,
    read_sidecar,
)
from pgwire_codec.log.index_check import Damage, IndexChecker
from pgwire_codec.log.ipc_file import END, SegmentBatch, read_batches, read_header
from pgwire_codec.log.numbers import numbers
from pgwire_codec.log.recovery import read_growing
from pgwire_codec.log.segment import (
    SEGMENT,
    SIDECAR,
    RelationCount,
    Segment,
    SegmentHeader,
    SegmentPart,
    segment_name,
)
from pgwire_codec.log.segment_builder import SegmentBuilder
from pgwire_codec.log.state import LogState
from pgwire_codec.log.store import Store, open_store
from pgwire_codec.log.table_counts import counts_by_name
from pgwire_codec.log.type_record import TYPES, TypeRecord
from pgwire_codec.transactions.carry import Scope
from pgwire_codec.transactions.plan import PartPlan

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of :func:`verify`.

    Attributes
    ----------
    segments, messages, bytes : int
        Numbers of segments, messages and bytes that were read.
    damage : tuple of Damage
        First damage of each file, in the order of the log; empty when the log is sound.
    repaired : tuple of str
        Files of the index that were written again, and the watermark if it was.
    """

    segments: int
    messages: int
    bytes: int
    damage: tuple[Damage, ...]
    repaired: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """True if no file is damaged."""
        return not self.damage


def verify(
    uri: str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    repair: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Read a whole log and check its consistency.

    Checked are the checksums of all bytes, the numbering of the messages, their decoding and their
    order according to the protocol, and each sidecar and the index against the messages. Values are
    not decoded.

    Parameters
    ----------
    uri : str or path
        The log.
    filesystem : pyarrow.fs.FileSystem, optional
        File system in which ``uri`` is a path.
    repair : bool
        Whether to write a damaged or incomplete index again, if nothing else is damaged. A
        watermark of which a write was cut short gets the value before: the log then ends with the
        flush before. The log must not be written meanwhile.
    progress : callable, optional
        Called after each segment, with the number of segments that were read and that there are.

    Raises
    ------
    LogError
        When ``uri`` has no log, or with ``repair`` when another process writes it.
    """
    store = open_store(uri, filesystem)
    if not classify_files(store).is_log:
        raise not_a_log(store)
    with store.lock() if repair else nullcontext():
        repaired = [WATERMARK] if repair and _repair_watermark(store) else []
        report = _verify(store, repair, progress)
        return replace(report, repaired=(*repaired, *report.repaired))


def _repair_watermark(store: Store) -> bool:
    """Write a watermark with one torn sector again, from the other one; return whether it was."""
    data = store.read(WATERMARK)
    before = None if data is None else watermark_before(data, WATERMARK)
    if before is not None:
        store.write(WATERMARK, watermark_to_bytes(before))
    return before is not None


def _verify(
    store: Store, repair: bool, progress: Callable[[int, int], None] | None
) -> Verification:
    while True:
        found = classify_files(store)
        report = _verify_files(store, found, repair, progress)
        was, now = found.manifest, classify_files(store).manifest
        # A segment that was joined meanwhile is not missing.
        if report.is_sound or was is None or now is None or now.compactions == was.compactions:
            return report


def _verify_files(
    store: Store, found: Directory, repair: bool, progress: Callable[[int, int], None] | None
) -> Verification:
    checker = _Checker(store, found)
    count = len(found.sealed) + (found.growing is not None)
    for number, name in enumerate(found.sealed, 1):
        checker.check_sealed(name)
        if progress is not None:
            progress(number, count)
    if found.watermark is not None and found.growing is not None:
        checker.check_growing(found.watermark)
    elif not checker.damage:
        try:
            check_end(store, found, checker.end)
        except LogError as error:
            checker.damage.append(Damage(segment_name(checker.end) + SEGMENT, None, str(error)))
    damaged = {each.file for each in checker.damage}
    folders = folders_in_place_of_files(store)
    checker.damage += [
        Damage(name, None, "a folder, not a file") for name in folders if name not in damaged
    ]
    try:
        if TYPES not in folders:
            TypeRecord(store).read()
    except LogError as error:
        checker.damage.append(Damage(TYPES, None, str(error)))
    repaired: list[str] = []
    if repair and not checker.damage:
        repaired = checker.index.repair()
    else:
        checker.damage += checker.index.damage()
    return Verification(
        checker.segments,
        checker.messages,
        checker.bytes,
        tuple(checker.damage),
        tuple(repaired),
    )


class _DamageFound(Exception):
    """Raised at the first damage of a file."""

    def __init__(self, file: str, offset: int | None, reason: str) -> None:
        super().__init__(file, offset, reason)
        self.damage = Damage(file, offset, reason)


class _Checker:
    """Checks the segments, one after the other."""

    def __init__(self, store: Store, found: Directory) -> None:
        self._store = store
        self._manifest = found.manifest
        self._state: LogState | None = None  # after the last segment; None: unknown
        #: The relations known there; None after a damaged sidecar, until one that contains them.
        self._scope: Scope | None = Scope() if found.first_ordinal == 0 else None
        self._decoder: PartDecoder | None = None  # None: created for the next segment
        self.damage = [Damage(file, None, str(error)) for file, error in found.problems.items()]
        self.index = IndexChecker(store, found)
        self.segments = self.messages = self.bytes = 0
        self.end = found.first_ordinal

    def check_sealed(self, name: str) -> None:
        """Check a segment and its sidecar."""
        try:
            segment = read_sidecar(self._store, name, self._manifest)
        except LogError as error:
            self.damage.append(Damage(name + SIDECAR, None, str(error)))
            self._state = self._scope = self._decoder = None
            return
        scope = self._scope if self._scope is not None else segment.known
        try:
            self._begin(segment.header, scope, name + SIDECAR)
            if segment.known not in (None, scope):
                reason = "its known relations are not those of the segments before it"
                raise _DamageFound(name + SIDECAR, None, reason)
            self._compare(segment, self._read(segment, scope))
        except _DamageFound as found:
            self.damage.append(found.damage)
            self._decoder = None
        except LogError as error:
            self.damage.append(Damage(name + SEGMENT, None, str(error)))
            self._decoder = None
        self._advance(segment, scope)
        self.end = segment.end_ordinal

    def check_growing(self, watermark: Watermark) -> None:
        """Check the growing segment, as far as it may be read."""
        file = f"{watermark.segment}{SEGMENT}"
        try:
            scope = Scope() if self._scope is None else self._scope
            builder = read_growing(self._store, watermark, 1, scope)
            self._begin(builder.header, self._scope, file)
            data = self._store.read_buffer(file, 0, watermark.bytes)
            self.bytes += data.size
            header, length = read_header(data, file)
            checked = SegmentBuilder(header, scope, data[:length], None)
            self._read_part(file, data, watermark.bytes, checked)
        except _DamageFound as found:
            self.damage.append(found.damage)
            return
        except LogError as error:
            self.damage.append(Damage(file, None, str(error)))
            return
        recorded = (watermark.end_ordinal, watermark.delivered_lsn)
        actual = (self.end, checked.segment(sealed=False).delivered_lsn)
        if recorded != actual:
            reason = f"end and delivered LSN are {recorded}, but {actual} in the messages"
            self.damage.append(Damage(WATERMARK, None, reason))

    def _advance(self, segment: Segment, scope: Scope | None) -> None:
        """Set the state and the relations to those after a segment."""
        self._state = segment.state()
        if scope is not None:
            declared = segment.declared(scope)
            self.index.add(segment, scope, declared)
            scope.update(declared)
        self._scope = scope

    def _begin(self, header: SegmentHeader, scope: Scope | None, file: str) -> None:
        """Check that a segment follows the one before it."""
        if header.first_ordinal != self.end:
            self.end, wanted = header.first_ordinal, self.end
            last = header.first_ordinal - 1
            raise _DamageFound(file, None, f"messages from ordinal {wanted} to {last} are missing")
        if self._state is not None and header.before != self._state:
            raise _DamageFound(
                file,
                None,
                "its state before the first message does not match the segment before it",
            )
        self.segments += 1
        self.end = header.first_ordinal
        if self._decoder is None and scope is not None:
            carry = header.before.carry.with_scope(scope)
            self._decoder = Decoder().for_part(PartPlan(carry, {}))
        if self._decoder is not None and header.new_session:
            self._decoder.new_session()

    def _read(self, segment: Segment, scope: Scope | None) -> SegmentBuilder | None:
        """Read a sealed segment that its sidecar describes.

        Return its description, or None if that cannot be found because relations are not known.
        """
        file = segment.name + SEGMENT
        data = self._store.read_buffer(file, 0, self._store.size(file))
        self.bytes += data.size
        if checksum(data[: segment.header_extent.stop]) != segment.header_extent.checksum:
            raise _DamageFound(
                file, 0, f"the first {segment.header_extent.stop} bytes do not have their checksum"
            )
        header, length = read_header(data, file)
        if (header, length) != (segment.header, segment.header_extent.stop):
            raise _DamageFound(file, 0, "segment header does not match its sidecar")
        known = Scope() if scope is None else scope
        builder = SegmentBuilder(header, known, data[:length], None)
        for part in segment.parts:
            offset, length, expected = part.extent
            if checksum(data[offset : part.extent.stop]) != expected:
                reason = f"the {length} bytes from here on do not have their checksum"
                raise _DamageFound(file, offset, reason)
            if part.summary.new_session and part.first_ordinal > segment.first_ordinal:
                builder.begin_session()
                if self._decoder is not None:
                    self._decoder.new_session()
            self._read_part(file, data, part.extent.stop, builder)
        rest = data[builder.bytes :].to_pybytes()
        if rest != END:
            reason = f"{len(rest)} bytes after the last part, not the end of an IPC file"
            raise _DamageFound(file, builder.bytes, reason)
        return None if scope is None else builder

    def _read_part(self, file: str, data: pa.Buffer, stop: int, builder: SegmentBuilder) -> None:
        """Read the record batches after a builder's last one, and add them to it."""
        start = builder.bytes
        path, encoding = f"{self._store.name}/{file}", builder.header.encoding
        for batch in read_batches(data[start:stop], start, path, encoding):
            ordinals = numbers(batch.records.column("ordinal"))
            wanted = np.arange(self.end, self.end + len(ordinals))
            if not np.array_equal(ordinals, wanted):
                found = f"{ordinals[0]} to {ordinals[-1]}"
                reason = f"ordinals are {found}, not {wanted[0]} to {wanted[-1]}"
                raise _DamageFound(file, batch.start, reason)
            self.end += len(ordinals)
            self.messages += len(ordinals)
            builder.add(batch.records, data[batch.start : batch.stop])
            self._decode(file, batch)
        builder.end_part()

    def _decode(self, file: str, batch: SegmentBatch) -> None:
        if self._decoder is None:
            return
        try:
            self._decoder.decode(batch.records.column("data"))
        except DecodeError as error:
            first = batch.records.column("ordinal")[0].as_py()
            ordinal = first + (error.message_index or 0)
            self.damage.append(Damage(file, batch.start, f"message {ordinal}: {error}"))
            self._decoder = None

    def _compare(self, segment: Segment, builder: SegmentBuilder | None) -> None:
        """Compare a sidecar with the segment's messages."""
        if builder is None:
            return
        actual = builder.segment(sealed=True)
        actual = replace(actual, bytes=actual.bytes + len(END), known=segment.known)
        if segment.commit_times is None:  # of a segment that an earlier release sealed
            parts = tuple(replace(part, commit_times=None) for part in actual.parts)
            actual = replace(actual, parts=parts)
        if any(part.summary.relations is None for part in segment.parts):  # in format 2
            tables = tuple(RelationCount(**asdict(each)) for each in counts_by_name(actual.tables))
            parts = tuple(map(_without_relations, actual.parts))
            actual = replace(actual, parts=parts, tables=tables)
        for each in fields(Segment):
            recorded, found = getattr(segment, each.name), getattr(actual, each.name)
            if recorded != found:
                values = f": {recorded}, not {found}" if isinstance(recorded, int) else ""
                reason = f"{each.name} does not match the messages{values}"
                raise _DamageFound(segment.name + SIDECAR, None, reason)


def _without_relations(part: SegmentPart) -> SegmentPart:
    return replace(part, summary=replace(part.summary, relations=None))
