"""LogCounts: which tables a log has new changes of, by the counts of its segments."""

from __future__ import annotations

from dataclasses import dataclass

from pgwire_codec.log import Log
from pgwire_codec.log.segment import Segment


@dataclass(frozen=True, slots=True)
class LogCounts:
    """Number of messages with changes of each table in a log's last segment.

    No transaction is open there: changes before it would be committed after it.
    """

    segment: int  # first ordinal of the segment
    counts: dict[str, int]  # changes, committed or not, by the table's name

    @classmethod
    def of(cls, log: Log) -> LogCounts | None:
        """Return the counts at a log's end; None if a transaction is open there, or it is empty."""
        if not len(log):
            return None
        last = log.segment(len(log) - 1)
        return None if last.opened else cls(last.first_ordinal, _counts(last))

    def changed(self, log: Log) -> set[str] | None:
        """Return the tables with later changes, committed or not; None: maybe all.

        Reads new segments.
        """
        first = log.number_of(self.segment)
        if first < 0:
            return None
        found = set()
        for number in range(first, len(log)):
            segment = log.segment(number)
            earlier = self.counts if segment.first_ordinal == self.segment else {}
            counts = _counts(segment).items()
            found |= {name for name, count in counts if count > earlier.get(name, 0)}
        return found


def _counts(segment: Segment) -> dict[str, int]:
    return {
        each.table: each.inserts + each.updates + each.deletes + each.truncates
        for each in segment.tables
    }
