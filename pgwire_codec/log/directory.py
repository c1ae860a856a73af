"""Classification of the files in a log's directory."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeVar

from pgwire_codec.errors import LogError
from pgwire_codec.log.bounds import (
    MANIFEST,
    WATERMARK,
    Manifest,
    Watermark,
    manifest_from_bytes,
    manifest_to_bytes,
    watermark_from_bytes,
)
from pgwire_codec.log.checked_json import RESTORE
from pgwire_codec.log.index_file import INDEX
from pgwire_codec.log.joined_segments import JoinedSegments
from pgwire_codec.log.local_store import LOCK, LocalStore
from pgwire_codec.log.object_store import REQUESTS
from pgwire_codec.log.segment import (
    SEGMENT,
    SIDECAR,
    Segment,
    end_ordinal_of,
    first_ordinal_of,
    segment_name,
)
from pgwire_codec.log.sidecar import segment_from_bytes
from pgwire_codec.log.snapshot_record import PLAN, ROWS
from pgwire_codec.log.store import Store
from pgwire_codec.log.store_errors import MissingFileError
from pgwire_codec.log.type_record import TYPES

_OF_SEGMENT: Final = re.compile(r"([0-9]{20}(?:-[0-9]{20})?)(\.arrow|\.json)")
_OF_INDEX: Final = re.compile(r"([0-9]{20})\.index")
_TEMPORARY: Final = re.compile(
    r"([0-9]{20}\.(arrow|index)|([0-9]{20}|watermark|manifest|types|snapshot-plan|snapshot-rows)"
    r"\.json)\.[0-9a-f]{32}\.tmp"
)
_TEMPORARY_OF_JOINED: Final = re.compile(r"[0-9]{20}-[0-9]{20}\.json\.[0-9a-f]{32}\.tmp")

_File = TypeVar("_File")


@dataclass(slots=True)
class Directory:
    """The files of a log at one time.

    Attributes
    ----------
    manifest : Manifest or None
        None if nothing was ever flushed.
    watermark : Watermark or None
        None if nothing was ever flushed.
    sealed : list of str
        Segments that have a sidecar, by ordinal; names without suffix.
    growing : str or None
        The segment that may be read up to the watermark.
    unacknowledged : str or None
        The segment that a writer began after the watermark's end and did not flush.
    indexes : list of str
        Files of the index, by the first segment of each; names without suffix.
    leftover : list of str
        Files that do not belong to the log: those of pruned segments, temporary ones, and the
        record of a snapshot that is complete.
    replaced : list of str
        Files that only a compaction removes: those of segments that were joined, and of a joined
        segment that is not complete.
    problems : dict of str to LogError
        Errors, by the name of the file that is missing or damaged.
    """

    manifest: Manifest | None
    watermark: Watermark | None
    sealed: list[str] = field(default_factory=list)
    growing: str | None = None
    unacknowledged: str | None = None
    indexes: list[str] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    problems: dict[str, LogError] = field(default_factory=dict)

    @property
    def is_log(self) -> bool:
        """True if the directory contains any part of a log."""
        return bool(self.manifest or self.watermark or self.sealed or self.problems)

    @property
    def first_ordinal(self) -> int:
        """Ordinal of the first message that belongs to the log."""
        return 0 if self.manifest is None else self.manifest.first_ordinal

    @property
    def end_ordinal(self) -> int:
        """Ordinal after the last one that the log is known to have had; it may have more."""
        return 0 if self.watermark is None else self.watermark.end_ordinal


def read_directory(store: Store, known: Directory | None = None) -> Directory:
    """Classify the files of a log; raise ``LogError`` for the first missing or damaged one.

    With ``known``, the result of an earlier call, the files are listed only if some were added or
    removed meanwhile that a reader needs. The other lists of the result are those of ``known``.
    """
    found = classify_files(store, known)
    for problem in found.problems.values():
        raise problem
    return found


def classify_files(store: Store, known: Directory | None = None) -> Directory:
    """Classify the files of a log, and collect the errors of missing and damaged ones.

    ``known`` is as for :func:`read_directory`.
    """
    if known is None or known.manifest is None:
        before = _read(store, MANIFEST, manifest_from_bytes, {})
    else:
        before = known.manifest
    while True:
        found = _classify_files(store, known)
        after = found.manifest
        if before is None or after is None or before.compactions == after.compactions:
            return found
        before = after  # the list may lack a joined segment, and some that it has replaced
        known = None


def _classify_files(store: Store, known: Directory | None) -> Directory:
    problems: dict[str, LogError] = {}
    # This order matters. The segment that the watermark names is in the list, growing or already
    # sealed, and a segment that was pruned before the listing is before the manifest's beginning.
    watermark = _read(store, WATERMARK, watermark_from_bytes, problems)
    if known is not None and watermark is not None and _has_same_segments(known, watermark):
        if _read(store, MANIFEST, manifest_from_bytes, problems) == known.manifest:
            return replace(known, watermark=watermark)
        problems.pop(MANIFEST, None)  # it is read again
    names = store.names()
    manifest = _read(store, MANIFEST, manifest_from_bytes, problems)
    found = Directory(manifest, watermark, problems=problems)
    suffixes: dict[str, set[str]] = defaultdict(set)
    for name in names:
        is_confirmed = watermark is not None and watermark.confirm_lsn > 0
        if _TEMPORARY.fullmatch(name) or (is_confirmed and name in (PLAN, ROWS)):
            found.leftover.append(name)
        elif _TEMPORARY_OF_JOINED.fullmatch(name):
            found.replaced.append(name)
        elif match := _OF_INDEX.fullmatch(name):
            found.indexes.append(match[1])
        elif match := _OF_SEGMENT.fullmatch(name):
            suffixes[match[1]].add(match[2])
    if problems:  # then the set of segments is not known
        found.sealed = [each for each in sorted(suffixes) if len(suffixes[each]) == 2]
        return found
    _check_identity(store, found, has_segments=bool(suffixes))
    _classify_indexes(found)
    joined = JoinedSegments([each for each in suffixes if len(suffixes[each]) == 2])
    for segment in sorted(suffixes):
        _classify(store, found, segment, suffixes[segment], joined)
    last = None if watermark is None else watermark.segment
    if last is not None and not _is_sealed(found, last, joined):
        found.growing = last
        if SEGMENT not in suffixes[last]:
            _miss(store, found, last + SEGMENT)
    readable = [*found.sealed, *([found.growing] if found.growing else [])]
    is_empty = not readable and found.end_ordinal == found.first_ordinal
    first = segment_name(found.first_ordinal)
    if not is_empty and not "".join(readable[:1]).startswith(first):
        _miss(store, found, first + SEGMENT)
    return found


def folders_in_place_of_files(store: Store) -> list[str]:
    """Return the folders that have the name of a log's file, which cannot be written then."""
    if not isinstance(store, LocalStore):
        return []  # an object store has no folders
    return [
        name
        for name in store.folders()
        if _OF_SEGMENT.fullmatch(name)
        or _OF_INDEX.fullmatch(name)
        or name in (MANIFEST, WATERMARK, TYPES, PLAN, ROWS)
    ]


def _has_same_segments(known: Directory, watermark: Watermark) -> bool:
    """Return whether a log with this watermark has the segments that are known.

    Unless the manifest has changed, too: pruning and compactions change it.
    """
    before = known.watermark
    if before is None or known.manifest is None or watermark.log_id != before.log_id:
        return False
    # A segment is sealed before the watermark names the next one; it can be read as before.
    same = watermark.segment == before.segment
    return same and (watermark.segment is not None or watermark.end_ordinal == before.end_ordinal)


def read_sidecar(store: Store, name: str, manifest: Manifest | None) -> Segment:
    """Read the sidecar of a sealed segment of the log with this manifest."""
    file = f"{store.name}/{name}{SIDECAR}"
    data = store.read(name + SIDECAR)
    if data is None:
        raise MissingFileError(
            f"{file} is missing",
            hint="If the log was pruned or compacted meanwhile, open it again. Else "
            + _lower(RESTORE),
        )
    segment = segment_from_bytes(data, file)
    if segment.name != name:
        raise LogError(f"{file} is the sidecar of segment {segment.name}", hint=RESTORE)
    if manifest is not None and segment.header.log_id != manifest.log_id:
        raise _other_log(store, name + SIDECAR)
    return segment


def read_sidecars(store: Store, names: Sequence[str], manifest: Manifest | None) -> list[Segment]:
    """Read the sidecars of several segments, many at once if that is faster."""
    if store.grows or len(names) < 2:
        return [read_sidecar(store, name, manifest) for name in names]
    with ThreadPoolExecutor(REQUESTS) as threads:
        return list(threads.map(lambda name: read_sidecar(store, name, manifest), names))


def read_manifest(store: Store) -> Manifest:
    """Read the manifest of an existing log."""
    data = store.read(MANIFEST)
    if data is None:
        raise missing(store, MANIFEST)
    return manifest_from_bytes(data, f"{store.name}/{MANIFEST}")


def remove_replaced(store: Store, manifest: Manifest, replaced: Sequence[str]) -> Manifest:
    """Remove files of :attr:`Directory.replaced`; return the manifest that was written before.

    The caller is the only one that writes the manifest meanwhile.
    """
    # Readers that list the files now find the new number, and list them again.
    manifest = replace(manifest, compactions=manifest.compactions + 1)
    store.write(MANIFEST, manifest_to_bytes(manifest))
    store.remove(*replaced)
    return manifest


def check_end(store: Store, found: Directory, end_ordinal: int) -> None:
    """Raise ``LogError`` when the sealed segments end before the log does."""
    if end_ordinal < found.end_ordinal:
        raise LogError(
            f"{segment_name(end_ordinal)}{SEGMENT} is missing: {store.name} ends before ordinal "
            f"{end_ordinal}, but had messages up to ordinal {found.end_ordinal - 1}",
            hint=RESTORE,
        )


def _read(
    store: Store,
    name: str,
    read: Callable[[bytes, str], _File],
    problems: dict[str, LogError],
) -> _File | None:
    try:
        data = store.read(name)
        while data is not None:
            try:
                return read(data, f"{store.name}/{name}")
            except LogError:
                before, data = data, store.read(name)
                if data == before:
                    raise
                # The writer overwrote it while it was read.
    except LogError as error:
        problems[name] = error
    return None


def _check_identity(store: Store, found: Directory, *, has_segments: bool) -> None:
    """Record a manifest or watermark that is missing or belongs to another log."""
    manifest, watermark = found.manifest, found.watermark
    if manifest is None:
        # A new log gets its watermark first.
        if has_segments or (watermark is not None and watermark.end_ordinal > 0):
            _miss(store, found, MANIFEST)
    elif watermark is None:
        _miss(store, found, WATERMARK)
    elif watermark.log_id != manifest.log_id:
        found.problems[WATERMARK] = _other_log(store, WATERMARK)


def _is_sealed(found: Directory, segment: str, joined: JoinedSegments) -> bool:
    """Return whether a segment is complete, alone or in a joined one."""
    if _OF_SEGMENT.fullmatch(segment + SEGMENT) is None:
        return False
    return segment in found.sealed or joined.replace(first_ordinal_of(segment), None)


def _classify(
    store: Store,
    found: Directory,
    segment: str,
    suffixes: set[str],
    joined: JoinedSegments,
) -> None:
    """Classify the files of one segment."""
    ordinal, end_ordinal = first_ordinal_of(segment), end_ordinal_of(segment)
    watermark = found.watermark
    files = [segment + suffix for suffix in sorted(suffixes, reverse=True)]
    if ordinal < found.first_ordinal:
        found.leftover += files
    elif joined.replace(ordinal, end_ordinal):
        found.replaced += files
    elif len(suffixes) == 2:
        found.sealed.append(segment)
    elif watermark is not None and segment == watermark.segment:
        pass  # it grows
    elif suffixes == {SIDECAR}:
        _miss(store, found, segment + SEGMENT)
    elif end_ordinal is not None and ordinal in joined.first_ordinals:
        found.replaced += files  # it is being joined, or a compaction was interrupted
    elif (
        watermark is not None
        and (watermark.segment is None or _is_sealed(found, watermark.segment, joined))
        and ordinal >= watermark.end_ordinal
        and found.unacknowledged is None
    ):
        found.unacknowledged = segment
    else:
        _miss(store, found, segment + SIDECAR)


def _classify_indexes(found: Directory) -> None:
    """Separate the files of the index that have segments of the log from others."""
    first = segment_name(found.first_ordinal)
    pruned = [each for each, following in pairwise(found.indexes) if following <= first]
    found.leftover += [each + INDEX for each in pruned]
    found.indexes = found.indexes[len(pruned) :]


def not_a_log(store: Store) -> LogError:
    """Return the error for a directory without a log, which is transient if one can still begin."""
    return LogError(
        f"{store.name} is not a log: it has neither {MANIFEST} nor segments",
        hint="Capture into it first, with pgwire-codec capture --log.",
        is_transient=set(store.names()) <= {LOCK},
    )


def missing(store: Store, file: str) -> LogError:
    """Return the error for a missing file of the log."""
    return LogError(f"{store.name}/{file} is missing", hint=RESTORE)


def _miss(store: Store, found: Directory, file: str) -> None:
    found.problems[file] = missing(store, file)


def _other_log(store: Store, file: str) -> LogError:
    return LogError(f"{store.name}/{file} belongs to another log", hint=RESTORE)


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
