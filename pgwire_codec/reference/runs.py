"""runs: runs of plain transactions, stream blocks, and the changes of each relation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.runs import (
    Begun,
    PlainRun,
    PlainTransactions,
    RelationGroup,
    Runs,
    StreamBlock,
)
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.protocol.epoch import unix_microseconds
from pgwire_codec.protocol.messages import (
    Begin,
    Commit,
    Message,
    Relation,
    StreamStart,
    Truncate,
)
from pgwire_codec.protocol.tags import ROW_CHANGES, STREAM_CONTENT
from pgwire_codec.reference.codec import decode_message

_TRANSACTION: Final = re.compile(rb"B[%b]*C" % STREAM_CONTENT)
_REST: Final = re.compile(rb"[%b]*C" % STREAM_CONTENT)  # of a transaction
_BLOCK: Final = re.compile(rb"S[%b]*E" % STREAM_CONTENT)


def runs(messages: Messages, table: MessageTable, begun: Begun | None = None) -> Runs:
    """Find the runs of whole plain transactions and the stream blocks of an input array.

    Parameters
    ----------
    messages : Messages
        One input array.
    table : MessageTable
        Result of ``scan`` for it.
    begun : Begun, optional
        The plain transaction that is open before the first message.

    Notes
    -----
    A group ends where another version of its relation may hold: at a Relation message of it, at
    a Begin that does not continue a run, and at each message that is outside of plain transactions
    and not one of those that a run may have between two of them.
    """
    return _Pass(messages, table, begun).runs()


class _Pass:
    def __init__(self, messages: Messages, table: MessageTable, begun: Begun | None) -> None:
        self._messages = messages
        self._table = table
        self._begun = begun
        self._kinds = table.kind.tobytes()
        self._rows: list[int] = []
        self._group: list[int] = []
        self._groups: list[RelationGroup] = []

    def runs(self) -> Runs:
        whole = [
            each
            for each in (*self._rest(), *map(self._transaction, _TRANSACTION.finditer(self._kinds)))
            if each.begin.final_lsn == each.commit.commit_lsn
        ]
        self._group_changes({each.stop - 1: each.begin.final_lsn for each in whole})
        rows = np.array(self._rows, np.int64)
        first_row = np.searchsorted(rows, [each.start for each in whole])
        stop_row = np.searchsorted(rows, [each.stop for each in whole])
        if self._begun is not None and whole and whole[0].start < 0:
            first_row[0] = -self._begun.changes
        times = [unix_microseconds(each.commit.commit_time) for each in whole]
        segments: list[PlainRun | StreamBlock] = [
            *self._plain_runs(whole),
            *(self._block(rows, *match.span()) for match in _BLOCK.finditer(self._kinds)),
        ]
        return Runs(
            rows,
            np.array(self._group, np.int32),
            self._groups,
            PlainTransactions(
                xid=np.array([each.begin.xid for each in whole], np.uint32),
                commit_lsn=np.array([each.commit.commit_lsn for each in whole], np.uint64),
                end_lsn=np.array([each.commit.end_lsn for each in whole], np.uint64),
                commit_time=np.array(times, np.int64),
                begin=np.array([each.start for each in whole], np.int64),
                first_row=first_row.astype(np.int64),
                changes=(stop_row - first_row).astype(np.int64),
            ),
            sorted(segments, key=lambda segment: segment.start),
        )

    def _group_changes(self, commits: dict[int, int]) -> None:
        """Fill in the rows and the groups; ``commits`` has the LSNs of the runs' Commits."""
        current: dict[int, int] = {}
        before: int | None = None  # LSN of the transaction that a Begin may continue a run after
        for index, kind in enumerate(self._kinds):
            if kind == ord("B"):
                begin = cast(Begin, decode_message(self._messages[index]))
                if before is None or begin.final_lsn <= before:
                    current.clear()
            elif kind == ord("R"):
                current.pop(cast(Relation, self._table.decoded[index]).oid, None)
            elif kind in ROW_CHANGES:
                width = int(self._table.width[index])
                self._add(current, index, int(self._table.relation[index]), width)
            elif kind == ord("T"):
                for oid in cast(Truncate, self._table.decoded[index]).relation_oids:
                    self._add(current, index, oid, None)
            elif kind not in b"CYOM":
                current.clear()
            if kind == ord("C"):
                before = commits.get(index)
            elif not self._may_be_between(index):
                before = None

    def _add(self, current: dict[int, int], index: int, oid: int, width: int | None) -> None:
        number = current.setdefault(oid, len(self._groups))
        if number == len(self._groups):
            self._groups.append(RelationGroup(oid, index, 2**31 - 1, -1))
        if width is not None:
            group = self._groups[number]
            self._groups[number] = group._replace(
                narrowest=min(width, group.narrowest), widest=max(width, group.widest)
            )
        self._rows.append(index)
        self._group.append(number)

    def _transaction(self, match: re.Match[bytes]) -> _Transaction:
        begin = decode_message(self._messages[match.start()])
        commit = decode_message(self._messages[match.end() - 1])
        return _Transaction(match.start(), match.end(), cast(Begin, begin), cast(Commit, commit))

    def _rest(self) -> Iterator[_Transaction]:
        """Yield the transaction that began before the array, if it ends here."""
        match = _REST.match(self._kinds)
        if self._begun is not None and match is not None:
            begin = Begin(self._begun.final_lsn, 0, self._begun.xid)
            commit = decode_message(self._messages[match.end() - 1])
            yield _Transaction(-1, match.end(), begin, cast(Commit, commit))

    def _plain_runs(self, whole: list[_Transaction]) -> Iterator[PlainRun]:
        first = 0
        for stop in range(1, len(whole) + 1):
            if stop < len(whole) and self._follows(whole[stop - 1], whole[stop]):
                continue
            others = [
                (index, number)
                for number in range(first, stop)
                for index in self._others(
                    whole[number - 1].stop if number > first else max(whole[first].start, 0),
                    whole[number].stop,
                )
            ]
            start = max(whole[first].start, 0)
            yield PlainRun(start, whole[stop - 1].stop, first, stop, others)
            first = stop

    def _follows(self, before: _Transaction, after: _Transaction) -> bool:
        """Return whether two transactions belong to one run."""
        return before.begin.final_lsn < after.begin.final_lsn and all(
            map(self._may_be_between, range(before.stop, after.start))
        )

    def _may_be_between(self, index: int) -> bool:
        """Return whether a message may be between two transactions of a run."""
        message = self._table.decoded.get(index)
        return self._kinds[index] in b"RY" or (
            isinstance(message, Message) and not message.flags & 1
        )

    def _others(self, start: int, stop: int) -> list[int]:
        """Return the Relations, Types, Origins and logical messages among some messages."""
        return [index for index in range(start, stop) if self._kinds[index] in b"RYOM"]

    def _block(self, rows: npt.NDArray[np.int64], start: int, stop: int) -> StreamBlock:
        first_row, stop_row = np.searchsorted(rows, [start, stop]).tolist()
        messages = 0
        first: dict[int, tuple[int, int]] = {}
        for index in range(start + 1, stop - 1):
            transactional = self._kinds[index] == ord("M") and not self._may_be_between(index)
            if self._kinds[index] in b"IUDT" or transactional:
                changes = int(np.searchsorted(rows, index)) - first_row
                first.setdefault(int(self._table.xid[index]), (changes, messages))
            messages += transactional
        first.pop(0, None)  # not a transaction
        begin = cast(StreamStart, decode_message(self._messages[start]))
        others = self._others(start, stop)
        return StreamBlock(
            start, stop, begin.xid, begin.first_segment, first_row, stop_row, messages, first,
            others,
        )  # fmt: skip


class _Transaction(NamedTuple):
    """A whole plain transaction: the messages ``start`` to ``stop - 1``.

    ``start`` is -1 if its Begin came before the array.
    """

    start: int
    stop: int
    begin: Begin
    commit: Commit
