"""SealedSegments: descriptions of a log's complete segments, and the relations before each."""

from __future__ import annotations

from collections.abc import Sequence

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import RESTORE
from pgwire_codec.log.directory import Directory, missing, read_sidecar
from pgwire_codec.log.segment import SEGMENT, Segment, segment_name
from pgwire_codec.log.state import StateTracker
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope


class SealedSegments(Sequence[Segment]):
    """The complete segments of a log, in order. A sidecar is read when it is needed.

    Parameters
    ----------
    store : Store
        Store of the log.
    found : Directory
        The log's files.
    """

    def __init__(self, store: Store, found: Directory) -> None:
        self._store = store
        self._directory = found
        self.names = found.sealed
        self._found: dict[str, Segment] = {}
        self._number = 0  # of the segment that the scope is known before
        self._scope: Scope | None = None

    def update(self, found: Directory) -> None:
        """Take note of segments that were sealed or pruned meanwhile."""
        names = found.sealed
        self._found = {name: self._found[name] for name in names if name in self._found}
        if names[:1] != self.names[:1]:
            self._scope = None
        self._directory = found
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> Segment:  # type: ignore[override]
        """Return the description of a segment.

        Raises ``LogError`` when it is damaged, or does not precede the next one.
        """
        name = self.names[number]
        if name not in self._found:
            self._found[name] = read_sidecar(self._store, name, self._directory.manifest)
        found = self._found[name]
        end = segment_name(found.end_ordinal)
        is_last = number in (-1, len(self) - 1)
        if (self._directory.growing if is_last else self.names[number + 1]) not in (None, end):
            raise missing(self._store, end + SEGMENT)
        return found

    def scope_before(self, number: int) -> Scope:
        """Return the relations known before a segment, or after the last one: a copy.

        Raises ``LogError`` when a sidecar that declares some is damaged.
        """
        if number < len(self) and (known := self[number].known) is not None:
            return known.copy()
        if self._scope is None or self._number > number:
            self._number, self._scope = 0, self._first_scope()
        while self._number < number:
            segment = self[self._number]
            tracker = StateTracker(segment.header.before, self._scope)
            for part in segment.parts:
                tracker.apply(part.summary, part.first_ordinal)
            self._scope.update(tracker.declared)
            self._number += 1
        return self._scope.copy()

    def _first_scope(self) -> Scope:
        if not len(self) or self.names[0] == segment_name(0):
            return Scope()
        known = self[0].known
        if known is None:
            raise LogError(
                f"the sidecar of {self._store.name}/{self.names[0]}{SEGMENT} does not contain the "
                "relations known before it",
                hint=RESTORE,
            )
        return known.copy()
