"""Compaction of a log: runs of small segments are joined into segments of the usual size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import LogError
from pgwire_codec.format import format_size
from pgwire_codec.log.bounds import MANIFEST
from pgwire_codec.log.directory import (
    Directory,
    not_a_log,
    read_directory,
    read_manifest,
    read_sidecar,
    read_sidecars,
    remove_replaced,
)
from pgwire_codec.log.index_renewal import index_is_current, renew_index
from pgwire_codec.log.joining import join
from pgwire_codec.log.sealed_segments import SealedSegments
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, first_ordinal_of
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.store import Store, open_existing, open_store
from pgwire_codec.log.store_errors import MissingFileError
from pgwire_codec.options import MIN_FREE_BYTES, Compression, SegmentOptions, check_min_free_bytes

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: Segments of which one is joined at once: their descriptions are in memory.
_MOST_SEGMENTS: Final = 1024
#: Largest part of a joined segment that one of the segments may be. A byte is therefore written
#: again only when its segment grows by a third, however often the log is compacted.
_LARGEST_PART: Final = 0.75


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """Segments that were joined into one.

    Attributes
    ----------
    file : str
        Name of the joined segment's file.
    replaced : tuple of str
        Names of the files that it replaces, in order.
    replaced_bytes : int
        Size of these files.
    bytes : int or None
        Size of the file; None if it was not written.
    """

    file: str
    replaced: tuple[str, ...]
    replaced_bytes: int
    bytes: int | None


def compact(
    uri: str | os.PathLike[str],
    *,
    segment_bytes: int = SegmentOptions.segment_bytes,
    compression: Compression | None = SegmentOptions.compression,
    min_free_bytes: int = MIN_FREE_BYTES,
    dry_run: bool = False,
    filesystem: FileSystem | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[JoinedFiles]:
    """Join runs of adjacent small segments.

    Ordinals, LSNs, times and messages stay the same, and so do the positions of readers. The log
    may be written, pruned and read meanwhile. A reader that planned partitions before reads them
    from the joined segments. An interrupted compaction leaves a whole log; the next one removes the
    files that are left over.

    Segments of a snapshot are not joined with others, nor are those of different sources, such as
    before and after a failover. A run is left as it is if one of its segments has more than three
    fourths of its bytes.

    Parameters
    ----------
    uri : str or path
        Location of the log.
    segment_bytes : int
        Size of a file, in bytes, up to which segments are joined.
    compression : {"lz4", "zstd"} or None
        Compression of the joined segments.
    min_free_bytes : int
        Bytes that stay free on a local disk. The files that are joined are removed only when the
        joined one is complete.
    dry_run : bool
        Whether to return the segments that would be joined first, and to change nothing.
    filesystem : pyarrow.fs.FileSystem, optional
        File system in which ``uri`` is a path. In an object store, only one process at a time may
        compact or prune a log. A segment is in memory there until it is written.
    progress : callable, optional
        Called with the bytes that were read, and those that will be.

    Returns
    -------
    list of JoinedFiles
        In the order of the log.

    Raises
    ------
    OptionError
        For an invalid option.
    LogError
        When another process compacts the log, a file is damaged or missing, or its disk has too
        little room. Segments that were joined before remain so.
    """
    SegmentOptions(compression, segment_bytes)  # which checks them
    check_min_free_bytes(min_free_bytes)
    store = open_store(uri, filesystem)
    if store.read(MANIFEST) is None:
        read_directory(store)  # which raises an error for a log that has lost it
        raise not_a_log(store)
    store = open_existing(uri, filesystem, MANIFEST)
    if dry_run:
        found = read_directory(store)
        sealed = SealedSegments(store, found)
        planned = _planned(sealed.index.bytes.tolist(), segment_bytes)
        return [_files(run) for each in planned for run in _alike(store, found, sealed, each)]
    with store.compaction_lock():
        return _Compaction(store, segment_bytes, compression, min_free_bytes, progress).run()


class _Compaction:
    """Joins segments until no run of small ones is left. Its caller holds the lock."""

    def __init__(
        self,
        store: Store,
        segment_bytes: int,
        compression: Compression | None,
        min_free_bytes: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._store = store
        self._segment_bytes = segment_bytes
        self._compression = compression
        self._min_free_bytes = min_free_bytes
        self._progress = progress
        self._read = self._to_read = 0  # bytes
        self._joined: dict[str, JoinedFiles] = {}  # by the segment's file

    def run(self) -> list[JoinedFiles]:
        """Join segments, and return the joined ones."""
        found = read_directory(self._store)
        if found.replaced:  # by a compaction that was interrupted
            with self._store.pruning_lock():
                remove_replaced(self._store, read_manifest(self._store), found.replaced)
            found = read_directory(self._store)
        while self._join_all(found):
            found = read_directory(self._store)
        return [self._joined[name] for name in sorted(self._joined)]

    def _join_all(self, found: Directory) -> bool:
        """Join the runs of a log's segments, and return whether there are any."""
        sealed = SealedSegments(self._store, found)
        planned = _planned(sealed.index.bytes.tolist(), self._segment_bytes)
        self._to_read = self._read + sum(int(sealed.index.bytes[each].sum()) for each in planned)
        is_changed = False
        for numbers in planned:
            try:
                for run in _alike(self._store, found, sealed, numbers):
                    is_changed |= self._join(sealed, run)
            except MissingFileError:
                first_ordinal = first_ordinal_of(sealed.names[numbers.start])
                if read_manifest(self._store).first_ordinal <= first_ordinal:
                    raise
                is_changed = True  # some were pruned meanwhile
        if is_changed or not index_is_current(found, sealed):
            with self._store.pruning_lock():
                found = read_directory(self._store)
                renew_index(self._store, found, SealedSegments(self._store, found))
                remove_replaced(self._store, read_manifest(self._store), [])
        return is_changed

    def _join(self, sealed: SealedSegments, run: Sequence[Segment]) -> bool:
        """Join segments; return False if they were pruned meanwhile."""
        self._check_room(run)
        scope = sealed.index.scope_before(sealed.names.index(run[0].name))
        segment = join(self._store, run, scope, self._compression, self._advance)
        return self._replace(run, segment)

    def _check_room(self, run: Sequence[Segment]) -> None:
        """Raise ``LogError`` if the disk has too little room for the joined file."""
        free = self._store.free_bytes()
        needed = sum(each.bytes for each in run)
        if self._compression is None:
            needed = max(needed, sum(each.message_bytes for each in run))
        if free is not None and free - needed < self._min_free_bytes:
            raise LogError(
                f"the disk of {self._store.name} is nearly full: {format_size(free)} are free, "
                f"joining {len(run)} segments may need {format_size(needed)}, and "
                f"{format_size(self._min_free_bytes)} are to stay free (`min_free_bytes`)",
                hint="Free some space, or prune the log first (pgwire-codec log prune).",
                is_transient=True,
            )

    def _replace(self, run: Sequence[Segment], segment: Segment) -> bool:
        """Have a joined segment replace others; return False if these were pruned meanwhile."""
        store, names = self._store, [each.name for each in run]
        with store.pruning_lock():
            manifest = read_manifest(store)
            if segment.first_ordinal < manifest.first_ordinal:
                store.remove(segment.name + SEGMENT)
                return False
            if 0 < segment.first_ordinal == manifest.first_ordinal:
                known = read_sidecar(store, names[0], manifest).known  # pruning has written it
                segment = replace(segment, known=known)
            # After this the others are not part of the log, even if their files are not removed.
            store.write(segment.name + SIDECAR, segment_to_bytes(segment))
            files = [name + suffix for name in names for suffix in (SIDECAR, SEGMENT)]
            remove_replaced(store, manifest, files)
        self._note(_files(run), segment)
        return True

    def _note(self, files: JoinedFiles, segment: Segment) -> None:
        """Take note of a joined segment, which may have joined ones among those it replaces."""
        replaced: list[str] = []
        replaced_bytes = files.replaced_bytes
        for name in files.replaced:
            earlier = self._joined.pop(name, None)
            if earlier is None:
                replaced.append(name)
            else:
                replaced += earlier.replaced
                replaced_bytes += earlier.replaced_bytes - (earlier.bytes or 0)
        self._joined[files.file] = JoinedFiles(
            files.file, tuple(replaced), replaced_bytes, segment.bytes
        )

    def _advance(self, read: int) -> None:
        self._read += read
        if self._progress is not None:
            self._progress(self._read, max(self._to_read, self._read))


def _files(run: Sequence[Segment]) -> JoinedFiles:
    """Return the files of a run of segments that is not joined yet."""
    header = replace(run[0].header, end_ordinal=run[-1].end_ordinal)
    replaced = tuple(each.name + SEGMENT for each in run)
    return JoinedFiles(header.name + SEGMENT, replaced, sum(each.bytes for each in run), None)


def _alike(
    store: Store, found: Directory, sealed: SealedSegments, numbers: range
) -> Iterator[list[Segment]]:
    """Yield the runs of some segments that have one source, and are of a snapshot or not."""
    names = sealed.names[numbers.start : numbers.stop]
    segments = read_sidecars(store, names, found.manifest)
    for _, alike in groupby(segments, lambda each: (each.header.source, each.header.snapshot)):
        run = list(alike)
        for part in _balanced([each.bytes for each in run], range(len(run))):
            yield run[part.start : part.stop]


def _planned(sizes: Sequence[int], segment_bytes: int) -> list[range]:
    """Return runs of segments of these sizes, by their numbers, that are worth being joined."""
    found: list[range] = []
    start = total = 0
    for number, size in enumerate([*sizes, segment_bytes + 1]):
        if total + size > segment_bytes or number - start == _MOST_SEGMENTS:
            found += _balanced(sizes, range(start, number))
            start, total = number, 0
        total += size
    return found


def _balanced(sizes: Sequence[int], run: range) -> Iterator[range]:
    """Yield a run if no segment has nearly all of its bytes, or else the runs beside that one."""
    if len(run) < 2:
        return
    largest = max(run, key=sizes.__getitem__)
    if sizes[largest] <= _LARGEST_PART * sum(sizes[number] for number in run):
        yield run
    else:
        yield from _balanced(sizes, range(run.start, largest))
        yield from _balanced(sizes, range(largest + 1, run.stop))
