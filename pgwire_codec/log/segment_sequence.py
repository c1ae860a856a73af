"""SegmentSequence: the segments of a log, as of when its directory was read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from pgwire_codec.log.bounds import Manifest, Watermark
from pgwire_codec.log.directory import Directory, check_end, not_a_log, read_directory
from pgwire_codec.log.growing_reader import GrowingReader
from pgwire_codec.log.index import LogIndex
from pgwire_codec.log.part_states import PartState, PartStates
from pgwire_codec.log.partition import LogPosition
from pgwire_codec.log.sealed_segments import SealedSegments
from pgwire_codec.log.segment import Segment, first_ordinal_of
from pgwire_codec.log.source import LogSource
from pgwire_codec.log.state import StateTracker
from pgwire_codec.log.store import open_store
from pgwire_codec.log.store_errors import MissingFileError
from pgwire_codec.log.type_record import TypeRecord
from pgwire_codec.transactions.carry import RelationVersion, Scope, unique_versions
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.types import TypeRegistry, UserType, default_registry, registry_with

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_Result = TypeVar("_Result")

#: Sealed segments whose parts stay as they were read while these grew.
_READERS: Final = 2


class SegmentSequence:
    """The segments of a log, in order. Sidecars are read when they are needed.

    Parameters
    ----------
    uri : str
        Location of the log: an absolute path, or a URI.
    filesystem : pyarrow.fs.FileSystem or None
        File system in which ``uri`` is a path.
    """

    _names: list[str]  # of the segments, in order

    def __init__(self, uri: str, filesystem: FileSystem | None) -> None:
        self.uri = uri
        self._filesystem = filesystem
        self._store = open_store(uri, filesystem)
        self._directory = Directory(None, None)
        self._sealed = SealedSegments(self._store, self._directory)
        self._reader: GrowingReader | None = None
        self._sealed_readers: dict[str, GrowingReader] = {}
        self._begin: LogPosition | None = None
        self._states = PartStates()
        self._versions: tuple[object, object, tuple[RelationVersion, ...]] = (None, None, ())
        self._versions_by_oid: dict[int, list[RelationVersion]] | None = None
        self._watermark: Watermark
        self._user_types: tuple[UserType, ...] | None
        self.refresh()

    def refresh(self) -> None:
        """Read the log's directory again, for what was flushed, pruned or joined meanwhile."""
        found = read_directory(self._store, self._directory)
        if found.sealed is not self._directory.sealed:
            self._take_segments(found)
        self._directory = found
        assert found.watermark is not None, "a log has one"
        self._watermark = found.watermark
        self._user_types = None

    def _take_segments(self, found: Directory) -> None:
        """Take note of segments that were begun, sealed, pruned or joined meanwhile."""
        if not found.is_log:
            raise not_a_log(self._store)
        names = [*found.sealed, *([] if found.growing is None else [found.growing])]
        self._sealed.update(found)
        if self._reader is not None and self._reader.name != found.growing:
            self._sealed_readers[self._reader.name] = self._reader
            for name in list(self._sealed_readers)[:-_READERS]:
                del self._sealed_readers[name]
            self._reader = None
        if self._begin is not None and names[:1] != self._names[:1]:
            self._begin = None
        self._names = names
        self.manifest = found.manifest or Manifest(found.watermark.log_id, 0)  # type: ignore[union-attr]
        self._growing = found.growing

    @property
    def source(self) -> LogSource:
        """The replication slot and its server, at the start of the last session."""
        return self._watermark.source

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._names)

    def segment(self, number: int) -> Segment:
        """Return one of the segments, by its number from 0 on.

        Raises ``LogError`` when it is damaged, or does not follow the one before it.
        """
        if number >= len(self._sealed):
            return self._grow()
        segment = self._sealed[number]
        reader = self._sealed_readers.get(segment.name)
        return segment if reader is None else reader.complete(segment)

    def scope_before(self, number: int) -> Scope:
        """Return the relations known before a segment, or after the last one.

        The scope must not be changed. Raises ``LogError`` when a sidecar that declares some is
        damaged.
        """
        scope = self._sealed.index.scope_before(min(number, len(self._sealed)))
        if number <= len(self._sealed):
            return scope
        self._grow()
        assert self._reader is not None
        return scope.with_changes(self._reader.declared)

    def state_before(self, number: int, place: int) -> PartState:
        """Return the state before one of a segment's parts, or after the last one."""
        segment = self.segment(number)
        return self._states.before(segment, place, lambda: self.scope_before(number))

    @property
    def segments(self) -> list[Segment]:
        """All segments, in order; the last may still grow."""
        return self._unless_compacted(lambda: [self.segment(number) for number in range(len(self))])

    @property
    def user_types(self) -> tuple[UserType, ...]:
        """Facts about the user-defined types of the log's columns, as the capture read them."""
        if self._user_types is None:
            self._user_types = TypeRecord(self._store).read()
        return self._user_types

    @property
    def registry(self) -> TypeRegistry:
        """Registry of the types that this process has registered, and then of the log's own."""
        return registry_with(self.user_types, default_registry)

    @property
    def confirm_lsn(self) -> int:
        """LSN that may be confirmed: everything that ends at or before it is in the log."""
        return self._watermark.confirm_lsn

    @property
    def growing_bytes(self) -> int:
        """Size of the growing segment's file, as far as it may be read; 0 without one."""
        return 0 if self._growing is None else self._watermark.bytes

    @property
    def delivered_lsn(self) -> int:
        """Commit LSN of the last transaction that can be read."""
        return self.end.lsn

    @property
    def begin(self) -> LogPosition:
        """Position from which transactions are whole. It is above zero after pruning."""
        if self._begin is None:
            self._begin = self._unless_compacted(
                lambda: LogPosition() if self._is_unpruned else _begin(self)
            )
        return self._begin

    @property
    def end(self) -> LogPosition:
        """Position after the last message that can be read."""
        if self._growing is not None:
            return LogPosition(self._watermark.end_ordinal, self._watermark.delivered_lsn)
        if not self._names:
            found = LogPosition(self._directory.first_ordinal)
        else:
            last = self._unless_compacted(lambda: self.segment(len(self) - 1))
            found = LogPosition(last.end_ordinal, last.delivered_lsn)
        check_end(self._store, self._directory, found.ordinal)
        return found

    @property
    def versions(self) -> tuple[RelationVersion, ...]:
        """All versions of relations that the log contains, in order."""
        sealed = self._unless_compacted(lambda: self._sealed.index.versions)
        growing = () if self._growing is None else self._grow().versions
        known, grown, found = self._versions
        if known is not sealed or grown is not growing:
            found = unique_versions([*sealed, *growing])
            self._versions = sealed, growing, found
            self._versions_by_oid = None
        return found

    def versions_of(self, oid: int) -> Sequence[RelationVersion]:
        """Return the versions of one relation, in order; none of an unknown one."""
        versions = self.versions
        if self._versions_by_oid is None:
            self._versions_by_oid = {}
            for version in versions:
                self._versions_by_oid.setdefault(version.relation.oid, []).append(version)
        return self._versions_by_oid.get(oid, ())

    def number_of(self, ordinal: int) -> int:
        """Return the number of the segment for an ordinal; -1 before all segments."""
        return bisect_right(self._names, ordinal, key=first_ordinal_of) - 1

    def number_at(self, lsn: int) -> int:
        """Return the number of the segment in which the last transaction up to an LSN commits.

        It may also be in an earlier one, if the segment has no commit up to the LSN.
        """
        delivered = self._sealed.index.delivered_lsn
        return min(bisect_left(delivered, lsn), len(self) - 1)

    @property
    def index(self) -> LogIndex:
        """Index of the complete segments."""
        return self._sealed.index

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Read the sidecars of segments, many at once, if that is faster."""
        self._sealed.prefetch(number for number in numbers if number < len(self._sealed))

    @property
    def pruned_lsn(self) -> int:
        """Commit LSN of the last transaction that was delivered before the first segment."""
        return 0 if self._is_unpruned else self.segment(0).header.before.carry.delivered_lsn

    @property
    def _is_unpruned(self) -> bool:
        return not self._names or first_ordinal_of(self._names[0]) == 0

    def _unless_compacted(self, read: Callable[[], _Result]) -> _Result:
        """Return the result of a function that reads sidecars; refresh the log if it must be."""
        while True:
            try:
                return read()
            except MissingFileError:
                if not self._was_compacted():
                    raise

    def _was_compacted(self) -> bool:
        """Refresh the log; return whether a compaction has removed files since it was read."""
        before = self.manifest.compactions
        self.refresh()
        return self.manifest.compactions != before

    def _grow(self) -> Segment:
        """Return the growing segment, as far as it may be read."""
        assert self._growing is not None
        if self._reader is None:
            scope = self.scope_before(len(self._sealed))
            self._reader = GrowingReader(self._store, self._growing, scope)
        return self._reader.read(self._watermark)


def _begin(log: SegmentSequence) -> LogPosition:
    """Return the position: the first message, and the last transaction that is not whole.

    A pruned log has lost changes of transactions that were open before its first segment.
    """
    first = log.segment(0)
    lost = first.header.before.carry.delivered_lsn

    def on_commit(committed: Committed, opened: int) -> None:
        nonlocal lost
        if opened < first.first_ordinal:
            lost = committed.commit_lsn

    tracker = StateTracker(first.header.before, on_commit=on_commit)
    for number in range(len(log)):
        for part in log.segment(number).parts:
            if min(tracker.opened.values(), default=part.end_ordinal) >= first.first_ordinal:
                return LogPosition(first.first_ordinal, lost)
            tracker.apply(part.summary, part.first_ordinal)
    return LogPosition(first.first_ordinal, lost)
