"""What is in a log, in numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from pgwire_codec.log.position import Position
from pgwire_codec.log.reader import Log
from pgwire_codec.log.relations import LoggedRelation
from pgwire_codec.log.segment import Segment, TableCount
from pgwire_codec.log.source import Source
from pgwire_codec.log.state import Follower

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class OpenStatistics:
    """A transaction that is open at the log's end.

    Attributes
    ----------
    kind : {"plain", "stream", "prepared"}
        How it came.
    xid : int
        The transaction's ID.
    gid : str or None
        Of one that is prepared, or will be.
    changes : int
        How many of its changes have come.
    first_ordinal : int
        Its messages stand from this one on.
    """

    kind: str
    xid: int
    gid: str | None
    changes: int
    first_ordinal: int


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """What became of the changes in a log: of each row, and of each table of a truncate.

    Attributes
    ----------
    sent : int
        All that the server sent, once or more; the sum of the others.
    committed : int
        Those that readers of the log get.
    rolled_back : int
        Undone by a rollback, of their transaction or to a savepoint of it.
    repeated : int
        Sent again by a later session, which happens after an interruption.
    open : int
        Of transactions neither committed nor rolled back at the log's end.
    """

    sent: int
    committed: int
    rolled_back: int
    repeated: int
    open: int


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """What :func:`statistics` tells.

    Attributes
    ----------
    source : Source
        The replication slot.
    begin, end : Position
        What can be read.
    segments, sessions : int
        How many there are; the last segment may still grow.
    snapshot_segments : int
        Those that hold a snapshot of the tables.
    messages, message_bytes, bytes : int
        How much there is; ``bytes`` are those of the segments' files.
    commits : int
        Messages that commit a transaction. A session that sends a transaction again counts it
        again, here and in ``sent``.
    first_commit_lsn, last_commit_lsn : int or None
        Of these.
    first_time, last_time : numpy.datetime64 or None
        The server's clock (UTC) when it sent the first and the last message.
    confirm_lsn : int
        What may be confirmed to the server.
    changes : ChangeCounts
        What became of the changes.
    sent : tuple of TableCount
        The changes of each table, by name, as the server sent them: those rolled back, repeated or
        open are among them.
    relations : tuple of LoggedRelation
        The relations, by name: tables that were renamed, and others that had the same name.
    open : tuple of OpenStatistics
        Transactions begun and neither committed nor rolled back.
    """

    source: Source
    begin: Position
    end: Position
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
    """Tell what is in a log. It reads sidecars, and the messages of the growing segment only."""
    return statistics_of(Log(uri, filesystem=filesystem))


def statistics_of(log: Log) -> LogStatistics:
    """Tell what is in a log that is open, as it was when it was opened or refreshed."""
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
    sent = _add(count for each in segments for count in each.tables)
    open_ = _open(segments[-1]) if segments else ()
    return LogStatistics(
        source=log.source,
        begin=log.begin,
        end=log.end,
        segments=len(segments),
        sessions=len({each.head.session for each in segments}),
        snapshot_segments=sum(each.head.snapshot for each in segments),
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


def _changes(
    segments: Sequence[Segment], tables: Iterable[TableCount], open_: Iterable[OpenStatistics]
) -> ChangeCounts:
    sent = sum(each.inserts + each.updates + each.deletes + each.truncates for each in tables)
    still_open = sum(each.changes for each in open_)
    if not segments:
        return ChangeCounts(sent, 0, 0, 0, still_open)
    ended: list[int] = []  # changes of the transactions that are not whole in one part
    before = segments[0].head.before
    follower = Follower(before, lambda committed, _: ended.append(committed.changes))
    committed = 0
    for segment in segments:
        for part in segment.parts:
            follower.follow(part.summary, part.first_ordinal)
            committed += part.committed
    committed += sum(ended)
    # Transactions that began in segments that were pruned.
    carry = before.carry
    begun = [*carry.streams.values(), *carry.prepared.values()]
    if carry.plain is not None:
        begun.append(carry.plain)
    sent_before = sum(transaction.position.changes for transaction in begun)
    rest = sent + sent_before - committed - follower.rolled_back - still_open
    return ChangeCounts(sent, committed, follower.rolled_back, rest, still_open)


def _add(counts: Iterable[TableCount]) -> tuple[TableCount, ...]:
    numbers = [each.name for each in fields(TableCount) if each.name != "table"]
    sums: dict[str, TableCount] = {}
    for each in counts:
        held = sums.get(each.table, TableCount(each.table))
        added = {name: getattr(held, name) + getattr(each, name) for name in numbers}
        sums[each.table] = TableCount(each.table, **added)
    return tuple(sums[name] for name in sorted(sums))


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
        assert transaction is not None  # what is opened is in the carry
        changes = transaction.position.changes
        found.append(OpenStatistics(kind, transaction.xid, transaction.gid, changes, ordinal))
    return tuple(found)
