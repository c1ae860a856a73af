"""Planning of the decoding of a range of commit LSNs.

Transactions are delivered in the order of commit LSNs, so those of a range commit in consecutive
parts. Changes of a transaction that was streamed, prepared or cut may be in earlier parts; the
sidecars contain where it began. Of the earlier parts, only those with such changes are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log.partition import LogPartition, LogPlan, LogPosition
from pgwire_codec.log.segment import Segment, SegmentPart
from pgwire_codec.log.state import StateTracker
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.transactions.carry import Carry, Scope
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.plan import Outcome, PartPlan, plan_parts
from pgwire_codec.transactions.resolver import Key

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class SegmentSequence(Protocol):
    """The segments of a log, each of which is read when it is needed."""

    uri: str

    @property
    def begin(self) -> LogPosition:
        """Position of the first message."""

    @property
    def end(self) -> LogPosition:
        """Position after the last message."""

    def __len__(self) -> int: ...

    def segment(self, number: int) -> Segment:
        """Return a segment by its number, from 0 on."""

    def number_of(self, ordinal: int) -> int:
        """Return the number of the segment that has a message."""

    def scope_before(self, number: int) -> Scope:
        """Return the relations known before a segment, or after the last one."""


@dataclass(frozen=True, slots=True)
class _OrdinalRange:
    """Ordinals between which the transactions of a range are.

    Attributes
    ----------
    first : int
        They have no changes before this ordinal.
    commits, end : int
        They commit from this ordinal on, and before that one.
    """

    first: int
    commits: int
    end: int


@dataclass(frozen=True, slots=True)
class _PartRun:
    """Consecutive parts of one segment, which are decoded as one."""

    segment: Segment
    parts: list[SegmentPart]

    @property
    def first_ordinal(self) -> int:
        """Ordinal of its first message."""
        return self.parts[0].first_ordinal

    @property
    def length(self) -> int:
        """Number of bytes in the file."""
        return sum(part.extent.length for part in self.parts)


def plan_range(
    log: SegmentSequence,
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
    ordinals = _find(log, after, until, to_end)
    carry, runs = _runs(log, ordinals, max_partition_bytes)
    partitions = []
    delivered = carry.delivered_lsn
    known = [version for _, version in carry.scope.relations.values()]
    plans, resolver = plan_parts(
        [[part.summary for part in run.parts] for run in runs], carry, on_error=on_error
    )
    versions = tuple(dict.fromkeys([*known, *resolver.versions]))
    for run, part_plan in zip(runs, plans, strict=True):
        outcomes = _in_range(part_plan, after, until)
        before, delivered = delivered, run.parts[-1].delivered_lsn
        commits = delivered > max(before, after)
        # The decoder raises the error of a message that does not decode.
        fails = run.first_ordinal >= ordinals.commits and any(p.undecodable for p in run.parts)
        if not (outcomes or commits or fails):
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
    return LogPlan(partitions, versions, after, until)


def _bounds(log: SegmentSequence, after: int | None, until: int | None) -> tuple[int, int]:
    begin, end = log.begin, log.end
    after = begin.lsn if after is None else after
    until = end.lsn if until is None else min(until, end.lsn)
    for name, lsn in (("after", after), ("until", until)):
        if lsn < 0:
            raise OptionError(f"{name} must be a commit LSN of 0 or more, not {lsn}")
    if after < begin.lsn:
        raise LogError(
            f"cannot read transactions that commit after {format_lsn(after)}: {log.uri} was pruned "
            f"up to {format_lsn(begin.lsn)}"
        )
    return after, until


def _find(log: SegmentSequence, after: int, until: int, to_end: bool) -> _OrdinalRange:
    """Find the ordinals at which the transactions of a range begin and commit.

    With ``to_end``, the range includes everything to the end of the log.
    """
    numbers = range(len(log))
    # The segment in which the transaction before the range commits, or the last one.
    start = bisect_left(numbers, after, key=lambda number: log.segment(number).delivered_lsn)
    start = min(start, len(log) - 1)
    first = commits = None

    def on_commit(committed: Committed, opened: int) -> None:
        nonlocal first
        if after < committed.commit_lsn <= until:
            first = opened if first is None else min(first, opened)

    tracker = StateTracker(log.segment(start).header.before, on_commit=on_commit)
    end = log.segment(start).first_ordinal
    for _, part in _parts(log, start):
        before = tracker.carry.delivered_lsn
        if before >= until and not to_end:
            break
        is_inside = part.delivered_lsn > after or before >= after
        if commits is None and is_inside and (after < until or to_end):
            commits = part.first_ordinal
        tracker.apply(part.summary, part.first_ordinal)
        end = part.end_ordinal
    if commits is None:
        commits = end
    return _OrdinalRange(commits if first is None else min(first, commits), commits, end)


def _runs(
    log: SegmentSequence, ordinals: _OrdinalRange, max_bytes: int
) -> tuple[Carry, list[_PartRun]]:
    """Return the parts of the range in runs, and the carry before the first.

    Each part before the first commit is a run of its own, because most of them will not be read.
    """
    start = log.number_of(ordinals.first)
    if start < 0:
        raise LogError(
            f"cannot read a transaction that began at ordinal {ordinals.first}: {log.uri} was "
            f"pruned up to ordinal {log.begin.ordinal}"
        )
    tracker = StateTracker(log.segment(start).header.before, log.scope_before(start))
    runs: list[_PartRun] = []
    for segment, part in _parts(log, start):
        if part.first_ordinal >= ordinals.end:
            break
        if part.first_ordinal < ordinals.first:
            tracker.apply(part.summary, part.first_ordinal)
            continue
        last = runs[-1] if runs else None
        if (
            last is not None
            and last.segment.name == segment.name
            and last.first_ordinal >= ordinals.commits
            and last.length + part.extent.length <= max_bytes
        ):
            last.parts.append(part)
        else:
            runs.append(_PartRun(segment, [part]))
    return tracker.carry.copy(), runs


def _parts(log: SegmentSequence, start: int) -> Iterator[tuple[Segment, SegmentPart]]:
    """Yield the parts from a segment on."""
    for number in range(start, len(log)):
        segment = log.segment(number)
        for part in segment.parts:
            yield segment, part


def _in_range(part: PartPlan, after: int, until: int) -> dict[Key, Outcome]:
    """Return the outcomes of the transactions that commit in the range."""
    return {
        key: outcome
        for key, outcome in part.outcomes.items()
        if outcome.committed is not None and after < outcome.committed.commit_lsn <= until
    }
