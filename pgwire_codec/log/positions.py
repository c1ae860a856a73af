"""Positions in a log by commit LSN, and by the bytes of messages."""

from __future__ import annotations

from bisect import bisect_right

from pgwire_codec.log.partition import LogPosition
from pgwire_codec.log.reader import Log


def position_of(log: Log, lsn: int) -> LogPosition:
    """Return the position after the last transaction that commits up to an LSN."""
    # In the first segment with a later commit, or else at the end.
    number = bisect_right(
        range(len(log)), lsn, key=lambda number: log.segment(number).delivered_lsn
    )
    if number == len(log):
        return LogPosition(log.end.ordinal, lsn)
    segment = log.segment(number)
    later = next(part for part in segment.parts if part.delivered_lsn > lsn)
    return LogPosition(later.first_ordinal, lsn)


def position_within(log: Log, begin: LogPosition, end: LogPosition, most: int) -> LogPosition:
    """Return the end of the last part before which there are at most ``most`` message bytes.

    The result is after at least one part, and after the end of at least one transaction.
    """
    taken = 0
    found = begin
    for number in range(max(0, log.number_of(begin.ordinal)), len(log)):
        for part in log.segment(number).parts:
            if part.end_ordinal <= begin.ordinal or part.first_ordinal >= end.ordinal:
                continue
            taken += part.message_bytes
            if taken > most and found.lsn > begin.lsn:
                return found
            found = LogPosition(part.end_ordinal, part.delivered_lsn)
            if part.end_ordinal >= end.ordinal:
                return end
    return found
