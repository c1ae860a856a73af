"""Position from which the transactions of a log are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgwire_codec.log.partition import LogPosition
from pgwire_codec.log.state import StateTracker
from pgwire_codec.transactions.committed import Committed

if TYPE_CHECKING:
    from pgwire_codec.log.planner import SegmentSequence


def find_begin(log: SegmentSequence) -> LogPosition:
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
