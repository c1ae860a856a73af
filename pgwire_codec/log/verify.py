"""Read all of a log, and say where it is not what it should be."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pgwire_codec._impl import Decoder
from pgwire_codec.decoder import PartDecoder
from pgwire_codec.errors import DecodeError, LogError
from pgwire_codec.log.checked_json import checksum
from pgwire_codec.log.digest import Digest
from pgwire_codec.log.directory import (
    Directory,
    check_end,
    list_files,
    not_a_log,
    read_sidecar,
)
from pgwire_codec.log.recovery import read_growing
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Head, Segment, segment_name
from pgwire_codec.log.state import State
from pgwire_codec.log.store import Store, open_store
from pgwire_codec.log.stream import END, Batch, read_batches, read_header
from pgwire_codec.log.watermark import WATERMARK, Watermark
from pgwire_codec.transactions.plan import PartPlan

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a file.

    Attributes
    ----------
    file : str
        Its name in the log.
    offset : int or None
        Of the first byte of what is wrong; None where only the whole file can be told wrong.
    reason : str
        What was found, and what was wanted.
    """

    file: str
    offset: int | None
    reason: str

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file}, byte {self.offset}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`verify` found.

    Attributes
    ----------
    segments, messages, bytes : int
        How much was read.
    damage : tuple of Damage
        The first of each file, in the order of the log; empty when the log is sound.
    """

    segments: int
    messages: int
    bytes: int
    damage: tuple[Damage, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


def verify(
    uri: str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Read a log, all of it, and check it against itself.

    Checked are the checksums of all bytes, that messages are numbered without gaps, that they
    decode and follow one another as the protocol wants, and that each sidecar says what its
    messages say. Values are not decoded.

    Parameters
    ----------
    uri : str or path
        The log.
    filesystem : pyarrow.fs.FileSystem, optional
        Then ``uri`` is a path in it.
    progress : callable, optional
        Is told after each segment how many of them were read, and how many there are.

    Raises
    ------
    LogError
        When there is no log.
    """
    store = open_store(uri, filesystem)
    found = list_files(store)
    if not found.is_log:
        raise not_a_log(store)
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
    return Report(checker.segments, checker.messages, checker.bytes, tuple(checker.damage))


class _Wrong(Exception):
    """The first damage of a file."""

    def __init__(self, file: str, offset: int | None, reason: str) -> None:
        super().__init__(file, offset, reason)
        self.damage = Damage(file, offset, reason)


class _Checker:
    """Checks the segments, one after the other."""

    def __init__(self, store: Store, found: Directory) -> None:
        self._store = store
        self._manifest = found.manifest
        self._behind: State | None = None  # behind the last segment; None: not known
        self._decoder: PartDecoder | None = None  # None: to begin with the next segment
        self.damage = [Damage(file, None, str(error)) for file, error in found.problems.items()]
        self.segments = self.messages = self.bytes = 0
        self.end = found.first_ordinal

    def check_sealed(self, name: str) -> None:
        """Check a segment and its sidecar."""
        try:
            segment = read_sidecar(self._store, name, self._manifest)
        except LogError as error:
            self.damage.append(Damage(name + SIDECAR, None, str(error)))
            self._behind = self._decoder = None
            return
        try:
            self._begin(segment.head, name + SIDECAR)
            self._compare(segment, self._read(segment))
        except _Wrong as wrong:
            self.damage.append(wrong.damage)
            self._decoder = None
        except LogError as error:
            self.damage.append(Damage(name + SEGMENT, None, str(error)))
            self._decoder = None
        self._behind = segment.state()
        self.end = segment.end_ordinal

    def check_growing(self, watermark: Watermark) -> None:
        """Check the segment that grows, as far as it may be read."""
        file = f"{watermark.segment}{SEGMENT}"
        try:
            digest = read_growing(self._store, watermark, 1)
            self._begin(digest.head, file)
            data = self._store.read_buffer(file, 0, watermark.bytes)
            self.bytes += data.size
            head, header = read_header(data, file)
            checked = Digest(head, data[:header], None)
            self._read_part(file, data, watermark.bytes, checked)
        except _Wrong as wrong:
            self.damage.append(wrong.damage)
            return
        except LogError as error:
            self.damage.append(Damage(file, None, str(error)))
            return
        told = (watermark.end_ordinal, watermark.delivered_lsn)
        given = (self.end, checked.segment(sealed=False).delivered_lsn)
        if told != given:
            reason = f"end and delivered LSN are {told}, and the messages give {given}"
            self.damage.append(Damage(WATERMARK, None, reason))

    def _begin(self, head: Head, file: str) -> None:
        """Check that a segment follows the one before it."""
        if head.first_ordinal != self.end:
            self.end, wanted = head.first_ordinal, self.end
            last = head.first_ordinal - 1
            raise _Wrong(file, None, f"messages from ordinal {wanted} to {last} are missing")
        if self._behind is not None and head.before != self._behind:
            raise _Wrong(file, None, "what it says of the messages before it is not what they say")
        self.segments += 1
        self.end = head.first_ordinal
        if self._decoder is None:
            self._decoder = Decoder().for_part(PartPlan(head.before.carry, {}))
        if head.new_session:
            self._decoder.new_session()

    def _read(self, segment: Segment) -> Digest:
        """Read a sealed segment by what its sidecar says of it."""
        file = segment.name + SEGMENT
        data = self._store.read_buffer(file, 0, self._store.size(file))
        self.bytes += data.size
        if checksum(data[: segment.header.stop]) != segment.header.checksum:
            raise _Wrong(
                file, 0, f"the first {segment.header.stop} bytes do not have their checksum"
            )
        head, header = read_header(data, file)
        if (head, header) != (segment.head, segment.header.stop):
            raise _Wrong(file, 0, "segment header does not match its sidecar")
        digest = Digest(head, data[:header], None)
        for part in segment.parts:
            offset, length, expected = part.extent
            if checksum(data[offset : part.extent.stop]) != expected:
                reason = f"the {length} bytes from here on do not have their checksum"
                raise _Wrong(file, offset, reason)
            self._read_part(file, data, part.extent.stop, digest)
        rest = data[digest.bytes :].to_pybytes()
        if rest != END:
            reason = f"behind the last part there are {len(rest)} bytes, not the end of a stream"
            raise _Wrong(file, digest.bytes, reason)
        return digest

    def _read_part(self, file: str, data: pa.Buffer, stop: int, digest: Digest) -> None:
        """Read the record batches from where a digest ends, and add them to it."""
        start = digest.bytes
        for batch in read_batches(data[start:stop], start, f"{self._store.name}/{file}"):
            ordinals = batch.records.column("ordinal").to_numpy()
            wanted = np.arange(self.end, self.end + len(ordinals))
            if not np.array_equal(ordinals, wanted):
                found = f"{ordinals[0]} to {ordinals[-1]}"
                reason = f"ordinals are {found}, not {wanted[0]} to {wanted[-1]}"
                raise _Wrong(file, batch.start, reason)
            self.end += len(ordinals)
            self.messages += len(ordinals)
            digest.add(batch.records, data[batch.start : batch.stop])
            self._decode(file, batch)
        digest.end_part()

    def _decode(self, file: str, batch: Batch) -> None:
        if self._decoder is None:
            return
        try:
            self._decoder.decode(batch.records.column("data"))
        except DecodeError as error:
            first = batch.records.column("ordinal")[0].as_py()
            ordinal = first + (error.message_index or 0)
            self.damage.append(Damage(file, batch.start, f"the message {ordinal}: {error}"))
            self._decoder = None

    def _compare(self, segment: Segment, digest: Digest) -> None:
        """Check what the sidecar says of the messages."""
        given = digest.segment(sealed=True)
        given = replace(given, bytes=given.bytes + len(END))
        for each in fields(Segment):
            told, found = getattr(segment, each.name), getattr(given, each.name)
            if told != found:
                words = f": {told}, not {found}" if isinstance(told, int) else ""
                reason = f"{each.name} is not what the messages give{words}"
                raise _Wrong(segment.name + SIDECAR, None, reason)
