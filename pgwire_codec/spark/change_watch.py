"""ChangeWatch: whether a log has new changes of some tables, by the counts of its segments."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pgwire_codec.log import Log
from pgwire_codec.log.segment import Segment


@dataclass(frozen=True, slots=True)
class LogCounts:
    """Number of messages with changes of each table in a log's last segment."""

    #: First ordinal of the segment.
    segment: int
    #: Changes, committed or not, by the table's name.
    counts: dict[str, int]

    @classmethod
    def of(cls, log: Log) -> LogCounts | None:
        """Return the counts at a log's end; None if a transaction is open there, or it is empty."""
        if not len(log):
            return None
        last = log.segment(len(log) - 1)
        return None if last.opened else cls(last.first_ordinal, _counts(last))


class ChangeWatch:
    """Remembers up to where a log was searched for changes of tables.

    A place without open transactions is needed: changes before it would be committed after it.
    """

    def __init__(self) -> None:
        self._searched: LogCounts | None = None

    def searched(self, counts: LogCounts | None) -> None:
        """Take note that nothing before a place is searched for again."""
        if counts is not None:
            self._searched = counts

    def has_changes(self, log: Log, tables: Collection[str]) -> bool:
        """Return whether there may be changes of tables after that place. Reads new segments."""
        changed = self.changed(log)
        return changed is None or not changed.isdisjoint(tables)

    def changed(self, log: Log) -> set[str] | None:
        """Return the tables with changes after that place, committed or not; None: maybe all."""
        before = self._searched
        first = -1 if before is None else log.number_of(before.segment)
        if before is None or first < 0:
            return None
        found = set()
        for number in range(first, len(log)):
            segment = log.segment(number)
            earlier = before.counts if segment.first_ordinal == before.segment else {}
            counts = _counts(segment).items()
            found |= {name for name, count in counts if count > earlier.get(name, 0)}
        return found


def _counts(segment: Segment) -> dict[str, int]:
    return {
        each.table: each.inserts + each.updates + each.deletes + each.truncates
        for each in segment.tables
    }
