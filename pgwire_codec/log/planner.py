"""Plan the decoding of a range of commit LSNs: which parts of the log it takes, and what they need.

Transactions are delivered in the order of commit LSNs, so those of a range commit in consecutive
parts. Changes of a transaction that was streamed, prepared or cut may stand in parts before these;
where it began is told by the sidecars. Of such earlier parts only those that hold some of it are
read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log.partition import LogPartition, LogPlan
from pgwire_codec.log.position import Position
from pgwire_codec.log.segment import Part, Segment
from pgwire_codec.log.state import Follower, State
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.plan import Outcome, PartPlan, plan
from pgwire_codec.transactions.resolver import Key

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class Segments(Protocol):
    """What of a log is to be known: its segments, each read when it is asked for."""

    uri: str

    @property
    def begin(self) -> Position:
        """Where the log begins."""

    @property
    def end(self) -> Position:
        """Where it ends."""

    def __len__(self) -> int: ...

    def segment(self, number: int) -> Segment:
        """Give a segment by its place."""

    def number_of(self, ordinal: int) -> int:
        """Give the place of the segment that has a message."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Where the transactions of a range are.

    Attributes
    ----------
    first : int
        From this ordinal on they have changes.
    commits, end : int
        They commit from this ordinal on, and before that one.
    behind : State
        What the messages before ``end`` leave behind.
    """

    first: int
    commits: int
    end: int
    behind: State


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive parts of one segment, which are decoded as one."""

    segment: Segment
    parts: list[Part]

    @property
    def first_ordinal(self) -> int:
        """Of its first message."""
        return self.parts[0].first_ordinal

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return sum(part.extent.length for part in self.parts)


def plan_range(
    log: Segments,
    filesystem: FileSystem | None,
    after: int | None,
    until: int | None,
    *,
    max_partition_bytes: int,
    on_error: str,
) -> LogPlan:
    """Plan the decoding of a range; see :meth:`pgwire_codec.log.Log.plan`."""
    to_end = until is None
    after, until = _bounds(log, after, until)
    if not len(log):
        return LogPlan([], (), after, until)
    place = _find(log, after, until, to_end)
    state, runs = _runs(log, place, max_partition_bytes)
    planned = plan(
        [[part.summary for part in run.parts] for run in runs], state.carry, on_error=on_error
    )
    partitions = []
    delivered = state.carry.delivered_lsn
    for run, part_plan in zip(runs, planned.parts, strict=True):
        outcomes = _in_range(part_plan, after, until)
        before, delivered = delivered, run.parts[-1].delivered_lsn
        commits = delivered > max(before, after)
        # What does not decode is for the decoder to say.
        wrong = run.first_ordinal >= place.commits and any(each.undecodable for each in run.parts)
        if not (outcomes or commits or wrong):
            continue
        partitions.append(
            LogPartition(
                uri=log.uri,
                filesystem=filesystem,
                segment=run.segment.name,
                extents=tuple(part.extent for part in run.parts),
                first_ordinal=run.first_ordinal,
                messages=sum(part.messages for part in run.parts),
                plan=replace(part_plan, outcomes=outcomes),
                after=after,
                until=until,
            )
        )
    return LogPlan(partitions, planned.versions, after, until)


def _bounds(log: Segments, after: int | None, until: int | None) -> tuple[int, int]:
    begin, end = log.begin, log.end
    after = begin.lsn if after is None else after
    until = end.lsn if until is None else min(until, end.lsn)
    for name, lsn in (("after", after), ("until", until)):
        if lsn < 0:
            raise OptionError(f"{name} must be a commit LSN, from 0 on, not {lsn}")
    if after < begin.lsn:
        raise LogError(
            f"transactions that commit after {format_lsn(after)} were asked for, but {log.uri} was "
            f"pruned: it has those after {format_lsn(begin.lsn)}"
        )
    return after, until


def _find(log: Segments, after: int, until: int, to_end: bool) -> _Range:
    """Find out where the transactions of a range commit, and where they begin.

    ``to_end``: all that is in the log belongs to the range.
    """
    numbers = range(len(log))
    # The segment in which the transaction before the range commits; behind them all, the last.
    start = bisect_left(numbers, after, key=lambda number: log.segment(number).delivered_lsn)
    start = min(start, len(log) - 1)
    first = commits = None

    def on_commit(committed: Committed, opened: int) -> None:
        nonlocal first
        if after < committed.commit_lsn <= until:
            first = opened if first is None else min(first, opened)

    follower = Follower(log.segment(start).head.before, on_commit)
    end = log.segment(start).first_ordinal
    for _, part in _parts(log, start):
        before = follower.carry.delivered_lsn
        if before >= until and not to_end:
            break
        is_inside = part.delivered_lsn > after or before >= after
        if commits is None and is_inside and (after < until or to_end):
            commits = part.first_ordinal
        follower.follow(part.summary, part.first_ordinal)
        end = part.end_ordinal
    if commits is None:
        commits = end
    return _Range(commits if first is None else min(first, commits), commits, end, follower.state)


def _runs(log: Segments, place: _Range, max_bytes: int) -> tuple[State, list[_Run]]:
    """Give the parts from where the range begins, in runs, and the state before the first.

    Before the first commit each part is a run of its own: most of them will not be read.
    """
    if place.first == place.end:
        return place.behind, []
    start = log.number_of(place.first)
    if start < 0:
        raise LogError(
            f"{log.uri} has no messages before ordinal {log.begin.ordinal}, and a transaction of "
            f"the range began at {place.first}: it was pruned"
        )
    follower = Follower(log.segment(start).head.before)
    state = None
    runs: list[_Run] = []
    for segment, part in _parts(log, start):
        if part.first_ordinal >= place.end:
            break
        if part.first_ordinal < place.first:
            follower.follow(part.summary, part.first_ordinal)
            continue
        if state is None:
            state = follower.state
        last = runs[-1] if runs else None
        if (
            last is not None
            and last.segment.name == segment.name
            and last.first_ordinal >= place.commits
            and last.length + part.extent.length <= max_bytes
        ):
            last.parts.append(part)
        else:
            runs.append(_Run(segment, [part]))
    assert state is not None
    return state, runs


def _parts(log: Segments, start: int) -> Iterator[tuple[Segment, Part]]:
    """Give the parts from a segment on."""
    for number in range(start, len(log)):
        segment = log.segment(number)
        for part in segment.parts:
            yield segment, part


def _in_range(part: PartPlan, after: int, until: int) -> dict[Key, Outcome]:
    """Give the outcomes of the transactions that commit in the range."""
    return {
        key: outcome
        for key, outcome in part.outcomes.items()
        if outcome.committed is not None and after < outcome.committed.commit_lsn <= until
    }
