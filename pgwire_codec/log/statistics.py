"""Statistics of a log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pgwire_codec.log.partition import LogPosition
from pgwire_codec.log.reader import Log
from pgwire_codec.log.relations import LoggedRelation
from pgwire_codec.log.segment import Segment, TableCount
from pgwire_codec.log.source import LogSource
from pgwire_codec.log.state import StateTracker
from pgwire_codec.log.table_counts import counts_by_name

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class OpenStatistics:
    """A transaction that is open at the log's end.

    Attributes
    ----------
    kind : {"plain", "stream", "prepared"}
        How the server sends it.
    xid : int
        Transaction ID.
    gid : str or None
        Identifier of a prepared transaction, or of one that will be prepared.
    changes : int
        Number of its changes so far.
    first_ordinal : int
        Ordinal before which it has no messages.
    """

    kind: str
    xid: int
    gid: str | None
    changes: int
    first_ordinal: int


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of changes in a log: one for each row, and for each table of a truncate.

    Attributes
    ----------
    sent : int
        All changes that the server sent, once or more; the sum of the others.
    committed : int
        Changes that readers of the log get.
    rolled_back : int
        Changes undone by a rollback of their transaction or to a savepoint of it.
    repeated : int
        Changes sent again by a later session, after an interruption.
    open : int
        Changes of transactions neither committed nor rolled back at the log's end.
    """

    sent: int
    committed: int
    rolled_back: int
    repeated: int
    open: int


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """Result of :func:`statistics`.

    Attributes
    ----------
    source : LogSource
        The replication slot.
    begin, end : LogPosition
        Range that can be read.
    segments, sessions : int
        Numbers of segments and sessions. The last segment may still grow.
    snapshot_segments : int
        Number of segments with a snapshot of the tables.
    messages, message_bytes, bytes : int
        Number of messages, their bytes, and the bytes of the segments' files.
    commits : int
        Number of messages that commit a transaction. A transaction that a later session sends again
        counts twice, here and in ``sent``.
    first_commit_lsn, last_commit_lsn : int or None
        Commit LSNs of the first and the last of these.
    first_time, last_time : numpy.datetime64 or None
        The server's clock (UTC) when it sent the first and the last message.
    confirm_lsn : int
        LSN that may be confirmed to the server.
    changes : ChangeCounts
        Numbers of changes by their outcome.
    sent : tuple of TableCount
        Numbers of the changes of each table that the server sent, including those rolled back,
        repeated or open, by name.
    relations : tuple of LoggedRelation
        Relations, by name: tables that were renamed, and others that had the same name.
    open : tuple of OpenStatistics
        Transactions begun and neither committed nor rolled back.
    """

    source: LogSource
    begin: LogPosition
    end: LogPosition
    segments: int
    sessions: int
    snapshot_segments: int
    messages: int
    message_bytes: int
    bytes: int
    commits: int
    first_commit_lsn: int | None
    last_commit_lsn: int | None
    first_time: np.datetime64 | None
    last_time: np.datetime64 | None
    confirm_lsn: int
    changes: ChangeCounts
    sent: tuple[TableCount, ...]
    relations: tuple[LoggedRelation, ...]
    open: tuple[OpenStatistics, ...]


def statistics(
    uri: str | os.PathLike[str], *, filesystem: FileSystem | None = None
) -> LogStatistics:
    """Return statistics of a log. It reads sidecars, and messages of the growing segment only."""
    return statistics_of(Log(uri, filesystem=filesystem))


def statistics_of(log: Log) -> LogStatistics:
    """Return statistics of an open log, as of when it was opened or refreshed."""
    segments = log.segments
    lsns = [
        lsn
        for each in segments
        for lsn in (each.first_commit_lsn, each.last_commit_lsn)
        if lsn is not None
    ]
    times = [
        time for each in segments for time in (each.first_time, each.last_time) if time is not None
    ]
    sent = counts_by_name(count for each in segments for count in each.tables)
    open_ = _open(segments[-1]) if segments else ()
    return LogStatistics(
        source=log.source,
        begin=log.begin,
        end=log.end,
        segments=len(segments),
        sessions=len(_sessions(segments)),
        snapshot_segments=sum(each.header.snapshot for each in segments),
        messages=sum(each.messages for each in segments),
        message_bytes=sum(each.message_bytes for each in segments),
        bytes=sum(each.bytes for each in segments),
        commits=sum(each.commits for each in segments),
        first_commit_lsn=lsns[0] if lsns else None,
        last_commit_lsn=lsns[-1] if lsns else None,
        first_time=times[0] if times else None,
        last_time=times[-1] if times else None,
        confirm_lsn=log.confirm_lsn,
        changes=_changes(segments, sent, open_),
        sent=sent,
        relations=log.relations,
        open=open_,
    )


def _sessions(segments: Iterable[Segment]) -> set[int]:
    """Return the numbers of the sessions that have messages in some segments."""
    return {
        number for each in segments for number in range(each.header.session, each.last_session + 1)
    }


def _changes(
    segments: Sequence[Segment], tables: Iterable[TableCount], open_: Iterable[OpenStatistics]
) -> ChangeCounts:
    sent = sum(each.inserts + each.updates + each.deletes + each.truncates for each in tables)
    still_open = sum(each.changes for each in open_)
    if not segments:
        return ChangeCounts(sent, 0, 0, 0, still_open)
    ended: list[int] = []  # changes of the transactions that are not whole in one part
    before = segments[0].header.before
    tracker = StateTracker(before, on_commit=lambda committed, _: ended.append(committed.changes))
    committed = 0
    for segment in segments:
        for part in segment.parts:
            tracker.apply(part.summary, part.first_ordinal)
            committed += part.committed
    committed += sum(ended)
    # Transactions that began in segments that were pruned.
    carry = before.carry
    begun = [*carry.streams.values(), *carry.prepared.values()]
    if carry.plain is not None:
        begun.append(carry.plain)
    sent_before = sum(transaction.position.changes for transaction in begun)
    rest = sent + sent_before - committed - tracker.rolled_back - still_open
    return ChangeCounts(sent, committed, tracker.rolled_back, rest, still_open)


def _open(last: Segment) -> tuple[OpenStatistics, ...]:
    state = last.state()
    carry = state.carry
    found = []
    for (kind, name), ordinal in state.opened.items():
        if kind == "plain":
            transaction = carry.plain
        elif kind == "stream":
            transaction = carry.streams[int(name)]
        else:
            transaction = carry.prepared[str(name)]
        assert transaction is not None  # an open transaction is in the carry
        changes = transaction.position.changes
        found.append(OpenStatistics(kind, transaction.xid, transaction.gid, changes, ordinal))
    return tuple(found)
