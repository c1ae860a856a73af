"""Planning of the decoding of a range of commit LSNs.

Transactions are delivered in the order of commit LSNs, so those of a range commit in consecutive
parts. Changes of a transaction that was streamed, prepared or cut may be in earlier parts; the
sidecars contain where it began. Of the earlier parts, only those with such changes are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log.commit_times import ALL_TIMES, TimeRange
from pgwire_codec.log.part_states import PartState
from pgwire_codec.log.partition import LogPartition, LogPlan
from pgwire_codec.log.segment import Segment, SegmentPart
from pgwire_codec.log.segment_sequence import SegmentSequence
from pgwire_codec.log.state import StateTracker
from pgwire_codec.protocol.epoch import unix_microseconds
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.transactions.carry import RelationVersion, unique_versions
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.plan import Outcome, PartPlan, plan_parts
from pgwire_codec.transactions.resolver import Key
from pgwire_codec.types import UserType

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


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
    is_needed: bool  # whether they may have changes that are asked for
    may_commit: bool  # whether transactions may commit in them at the times that are asked for

    @property
    def first_ordinal(self) -> int:
        """Ordinal of its first message."""
        return self.parts[0].first_ordinal

    @property
    def message_bytes(self) -> int:
        """Bytes of its messages."""
        return sum(part.message_bytes for part in self.parts)

    @property
    def changed(self) -> frozenset[int] | None:
        """OIDs of the relations of which they may have changes; None: of any.

        A message that does not decode may be a change of any.
        """
        found = [None if part.undecodable else part.summary.relations for part in self.parts]
        known = [each for each in found if each is not None]
        return None if len(known) < len(found) else frozenset().union(*known)

    def partition(
        self,
        uri: str,
        filesystem: FileSystem | None,
        plan: PartPlan,
        after: int,
        until: int,
        times: TimeRange,
        types: tuple[UserType, ...],
    ) -> LogPartition:
        """Return the partition that decodes them by a plan."""
        return LogPartition(
            uri=uri,
            filesystem=filesystem,
            segment=self.segment.name,
            extents=tuple(part.extent for part in self.parts),
            encoding=self.segment.header.encoding,
            first_ordinal=self.first_ordinal,
            messages=sum(part.messages for part in self.parts),
            plan=plan,
            after=after,
            until=until,
            times=times,
            session_starts=frozenset(
                part.first_ordinal for part in self.parts[1:] if part.summary.new_session
            ),
            types=types,
        )


def plan_range(
    log: SegmentSequence,
    filesystem: FileSystem | None,
    after: int | None,
    until: int | None,
    relations: Collection[int] | None,
    times: TimeRange,
    *,
    max_partition_bytes: int,
    on_error: str,
    with_versions: bool = True,
) -> LogPlan:
    """Plan the decoding of a range; see :meth:`pgwire_codec.log.Log.plan`.

    ``relations`` are the OIDs of the relations whose changes are needed; None: those of all.
    ``times`` are the commit times of the transactions that are needed. The plan has no versions
    without ``with_versions``: there can be many.
    """
    to_end = until is None
    after, until = _bounds(log, after, until)
    if not len(log):
        return LogPlan([], [], (), after, until)
    planned = LogPlan([], [], (), after, until)
    versions: list[RelationVersion] = []
    for start, ordinals in _stretches(log, after, until, to_end, relations, times):
        state, runs = _runs(log, start, ordinals, relations, times, max_partition_bytes)
        if with_versions:
            versions += _known(state, relations)
        delivered = state.log.carry.delivered_lsn
        carry = state.log.carry.with_scope(state.scope.branch())
        plans, resolver = plan_parts(
            [[part.summary for part in run.parts] for run in runs], carry, on_error=on_error
        )
        versions += resolver.versions
        for run, part_plan in zip(runs, plans, strict=True):
            outcomes = _in_range(part_plan, after, until, times)
            before, delivered = delivered, run.parts[-1].delivered_lsn
            commits = run.may_commit and delivered > max(before, after)
            # The decoder raises the error of a message that does not decode, or rejects it.
            fails = run.first_ordinal >= ordinals.commits and (
                part_plan.rejects or any(part.undecodable for part in run.parts)
            )
            if run.is_needed and (outcomes or commits or fails):
                plan = replace(part_plan, outcomes=outcomes)
                partition = run.partition(
                    log.uri, filesystem, plan, after, until, times, log.user_types
                )
                planned.partitions.append(partition)
                planned.changed.append(run.changed)
    if not with_versions:
        return planned
    if relations is not None:
        versions = [version for version in versions if version.relation.oid in relations]
    return replace(planned, versions=unique_versions(versions))


def _known(state: PartState, relations: Collection[int] | None) -> list[RelationVersion]:
    """Return the versions of relations known in a state, for all or for open transactions."""
    opened = (*state.log.carry.prepared.values(), *state.log.carry.streams.values())
    found = []
    for known in (state.scope.relations, *(each.scope.relations for each in opened)):
        wanted = known if relations is None else relations
        found += [known[oid][1] for oid in wanted if oid in known]
    return found


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


def _stretches(
    log: SegmentSequence,
    after: int,
    until: int,
    to_end: bool,
    relations: Collection[int] | None,
    times: TimeRange,
) -> Iterator[tuple[int, _OrdinalRange]]:
    """Yield runs of segments to plan, each with the number of its first, and its ordinals.

    Of some relations, those are the segments with changes of them, each with the following ones
    until the transactions have ended that it leaves open. Of some commit times, those are the
    segments with such commits, each with the ones before it since their transactions began.
    """
    if relations is None and times == ALL_TIMES:
        ordinals = _find(log, log.number_at(after), len(log) - 1, after, until, to_end)
        start = log.number_of(ordinals.first)
        if start < 0:
            raise LogError(
                f"cannot read a transaction that began at ordinal {ordinals.first}: {log.uri} was "
                f"pruned up to ordinal {log.begin.ordinal}"
            )
        yield start, ordinals
        return
    for first, last in _segments_with(log, relations, times, after, None if to_end else until):
        log.prefetch(range(first, last + 1))
        ordinals = _find(log, first, last, after, until, to_end)
        begin = log.segment(first).first_ordinal
        yield first, replace(ordinals, first=max(ordinals.first, begin))


def _segments_with(
    log: SegmentSequence,
    relations: Collection[int] | None,
    times: TimeRange,
    after: int,
    until: int | None,
) -> list[tuple[int, int]]:
    """Return the first and the last of runs of segments to read, which :func:`_stretches` names.

    Transactions in them may commit after one LSN and not after the other.
    """
    index = log.index
    start = log.number_at(after)
    last = len(log) - 1 if until is None else log.number_at(until)
    needed = index.first_open
    if start:
        start = max(log.number_of(int(needed[start - 1])), 0)
    stop = min(last + 1, len(index))
    growing = log.segment(last).parts if last == len(index) else ()
    wanted = np.zeros(last + 1, np.bool_)
    wanted[start:] = True
    if relations is not None:
        changed = index.with_changes(relations, start, stop)
        if any(part.may_change(relations) for part in growing):
            changed.append(last)
        with_changes = np.zeros_like(wanted)
        for number in changed:
            end = number
            while end < last and needed[end] < index.end_ordinal[number]:
                end += 1
            with_changes[number : end + 1] = True
        wanted &= with_changes
    if times != ALL_TIMES:
        committing = index.with_commits(times, start, stop)
        if any(part.may_commit(times) for part in growing):
            committing.append(last)
        with_commits = np.zeros_like(wanted)
        for number in committing:
            begin = log.number_of(int(needed[number - 1])) if number else 0
            with_commits[max(begin, 0) : number + 1] = True
        wanted &= with_commits
    return _consecutive(wanted)


def _consecutive(wanted: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of wanted segments."""
    changes = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
    return [(first, stop - 1) for first, stop in changes.reshape(-1, 2).tolist()]


def _reaches(part: SegmentPart, before: int, after: int) -> bool:
    """Return whether a part may have messages after the commit with an LSN.

    ``before`` is the commit LSN of the last transaction before the part. If that commit is the last
    one of the part, only a message after it that does not decode counts: it is in no transaction.
    """
    return (
        part.delivered_lsn > after
        or before >= after
        or (part.undecodable > 0 and part.delivered_lsn == after)
    )


def _find(
    log: SegmentSequence, start: int, last: int, after: int, until: int, to_end: bool
) -> _OrdinalRange:
    """Find the ordinals at which the transactions of a range begin and commit, in some segments.

    With ``to_end``, the range includes everything to the end of the last segment.
    """
    first = commits = tracker = None

    def on_commit(committed: Committed, opened: int) -> None:
        nonlocal first
        if after < committed.commit_lsn <= until:
            first = opened if first is None else min(first, opened)

    header = log.segment(start).header
    before, end = header.before.carry.delivered_lsn, header.first_ordinal
    for number, place, part in _numbered_parts(log, start, last):
        if before >= until and not to_end:
            break
        if tracker is None and _reaches(part, before, after) and (after < until or to_end):
            commits = part.first_ordinal
            state = log.state_before(number, place)
            tracker = StateTracker(state.log, on_commit=on_commit)
        if tracker is not None:
            tracker.apply(part.summary, part.first_ordinal)
        before, end = part.delivered_lsn, part.end_ordinal
    if commits is None:
        commits = end
    return _OrdinalRange(commits if first is None else min(first, commits), commits, end)


def _runs(
    log: SegmentSequence,
    start: int,
    ordinals: _OrdinalRange,
    relations: Collection[int] | None,
    times: TimeRange,
    max_bytes: int,
) -> tuple[PartState, list[_PartRun]]:
    """Return the parts of a range in runs, and the state before the first.

    Each part before the first commit is a run of its own, because most of them will not be read.
    """
    last_number = max(log.number_of(ordinals.end - 1), start)
    number = min(max(log.number_of(ordinals.first), start), last_number)
    ends = [part.end_ordinal for part in log.segment(number).parts]
    place = bisect_right(ends, ordinals.first)
    state = log.state_before(number, place)
    runs: list[_PartRun] = []
    for segment_number, at, part in _numbered_parts(log, number, last_number):
        if segment_number == number and at < place:
            continue
        if part.first_ordinal >= ordinals.end:
            break
        segment = log.segment(segment_number)
        is_needed = relations is None or part.may_change(relations)
        may_commit = part.may_commit(times)
        last = runs[-1] if runs else None
        if (
            last is not None
            and last.segment.name == segment.name
            and (last.is_needed, last.may_commit) == (is_needed, may_commit)
            and last.first_ordinal >= ordinals.commits
            and last.message_bytes + part.message_bytes <= max_bytes
        ):
            last.parts.append(part)
        else:
            runs.append(_PartRun(segment, [part], is_needed, may_commit))
    return state, runs


def _numbered_parts(
    log: SegmentSequence, start: int, last: int
) -> Iterator[tuple[int, int, SegmentPart]]:
    """Yield the parts from a segment to the last one, with the number of each, and its place."""
    for number in range(start, last + 1):
        for place, part in enumerate(log.segment(number).parts):
            yield number, place, part


def _in_range(part: PartPlan, after: int, until: int, times: TimeRange) -> dict[Key, Outcome]:
    """Return the outcomes of the transactions that commit in the range."""
    return {
        key: outcome
        for key, outcome in part.outcomes.items()
        if outcome.committed is not None
        and after < outcome.committed.commit_lsn <= until
        and times.has(unix_microseconds(outcome.committed.commit_time))
    }
