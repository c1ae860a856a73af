"""What is in a log, in numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from pgwire_codec.log.position import Position
from pgwire_codec.log.reader import Log
from pgwire_codec.log.segment import Segment, TableCount
from pgwire_codec.log.source import Source

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
        again, here and in ``tables``.
    first_commit_lsn, last_commit_lsn : int or None
        Of these.
    first_time, last_time : numpy.datetime64 or None
        The server's clock (UTC) when it sent the first and the last message.
    confirm_lsn : int
        What may be confirmed to the server.
    tables : tuple of TableCount
        By name.
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
    tables: tuple[TableCount, ...]
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
        tables=_add(count for each in segments for count in each.tables),
        open=_open(segments[-1]) if segments else (),
    )


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
