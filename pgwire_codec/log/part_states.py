"""PartStates: states of a log before parts of its segments, computed from one another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pgwire_codec.log.segment import Segment, SegmentPart
from pgwire_codec.log.state import LogState, StateTracker
from pgwire_codec.transactions.carry import Scope

#: States that are kept: readers ask for those at the ends of their last ranges.
_KEPT: Final = 16


class PartState(NamedTuple):
    """State before a part. It must not be changed.

    Attributes
    ----------
    log : LogState
        The carry, and where open transactions began.
    scope : Scope
        The relations known there.
    """

    log: LogState
    scope: Scope

    def after(self, parts: Sequence[SegmentPart]) -> PartState:
        """Return the state after consecutive parts. The scope is the same if they declare none."""
        tracker = StateTracker(self.log, self.scope)
        for part in parts:
            tracker.apply(part.summary, part.first_ordinal)
        return PartState(tracker.state, self.scope.with_changes(tracker.declared))


class PartStates:
    """States before parts, by the names of their segments and by ordinals."""

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, int], PartState] = OrderedDict()

    def before(self, segment: Segment, place: int, scope: Callable[[], Scope]) -> PartState:
        """Return the state before one of a segment's parts, or after the last one.

        ``scope`` returns the relations known before the segment.
        """
        parts = segment.parts[:place]
        for number in range(len(parts), -1, -1):
            ordinal = parts[number].first_ordinal if number < len(parts) else _end(segment, parts)
            found = self._states.get((segment.name, ordinal))
            if found is not None:
                break
        else:
            number, found = 0, PartState(segment.header.before, scope())
        if number < len(parts):
            found = found.after(parts[number:])
        key = segment.name, _end(segment, parts)
        self._states[key] = found
        self._states.move_to_end(key)
        if len(self._states) > _KEPT:
            self._states.popitem(last=False)
        return found


def _end(segment: Segment, parts: Sequence[SegmentPart]) -> int:
    return parts[-1].end_ordinal if parts else segment.first_ordinal
