"""JoinedSegments: segments that compactions joined, and those that they have replaced."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from functools import cached_property

from pgwire_codec.log.segment import end_ordinal_of, first_ordinal_of


class JoinedSegments:
    """Ranges of ordinals whose messages joined segments have.

    The name of a joined segment contains its range, so that a list of files shows which segments
    it has replaced.

    Parameters
    ----------
    names : collection of str
        Names of complete segments. If a joined one is inside of another, the larger counts.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._starts: list[int] = []
        self._ends: list[int] = []
        ranges = [
            (first_ordinal_of(each), end)
            for each in names
            if (end := end_ordinal_of(each)) is not None
        ]
        for start, end in sorted(ranges, key=lambda each: (each[0], -each[1])):
            if end > max(self._ends[-1:], default=0):
                self._starts.append(start)
                self._ends.append(end)

    @cached_property
    def first_ordinals(self) -> frozenset[int]:
        """First ordinals of the complete segments."""
        return frozenset(map(first_ordinal_of, self._names))

    def replace(self, first_ordinal: int, end_ordinal: int | None) -> bool:
        """Return whether one of them has the messages of another segment.

        Parameters
        ----------
        first_ordinal : int
            First ordinal of the other segment.
        end_ordinal : int or None
            Ordinal after its last message; None for a segment that a writer wrote, if it is not
            known.
        """
        number = bisect_right(self._starts, first_ordinal) - 1
        if number < 0 or self._ends[number] <= first_ordinal:
            return False
        start, end = self._starts[number], self._ends[number]
        return end_ordinal is None or (
            end_ordinal <= end and (first_ordinal, end_ordinal) != (start, end)
        )
