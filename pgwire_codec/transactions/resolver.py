"""State machine that follows the transactions of a stream.

:class:`Resolver` finds the transaction of each change, its position there, and whether it counts.
It reports to a :class:`TransactionListener`. The decoder's listener holds changes until they
commit; the planner's (:mod:`pgwire_codec.transactions.plan`) finds the outcomes that a part of a
log needs from later parts.

Source: ``src/backend/replication/logical/worker.c`` (the apply worker, whose view of rolled-back
subtransactions this is) and ``src/backend/replication/pgoutput/pgoutput.c`` (whose view of which
Relations have been sent this is).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pgwire_codec.errors import DecodeError, ErrorCode
from pgwire_codec.protocol.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    LogicalMessage,
    Origin,
    Prepare,
    Relation,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Type,
)
from pgwire_codec.transactions.carry import Carry, OpenTransaction, Position, RelationVersion, Scope
from pgwire_codec.transactions.committed import Committed

#: Names an open transaction: ("plain", 0), ("stream", xid) or ("prepared", gid).
Key = tuple[str, int | str]

PLAIN: Final[Key] = ("plain", 0)


class TransactionListener(Protocol):
    """Receiver of the outcomes of open transactions."""

    def commit(self, key: Key, committed: Committed) -> None:
        """Take the transaction's changes as committed, now: calls come in commit order."""

    def drop(self, key: Key) -> None:
        """Forget the transaction: rolled back, repeated, or to be sent again from its start."""

    def truncate(self, key: Key, position: Position) -> None:
        """Forget what the transaction did from this position on: a rolled-back savepoint."""

    def rename(self, key: Key, new: Key) -> None:
        """Rename the transaction: a streamed one was prepared."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Plain transactions that were read whole, the last with this commit LSN."""

    commit_lsn: int


class Resolver:
    """Follow the transactions of a stream, message by message.

    Parameters
    ----------
    carry : Carry
        State before the first message. It is changed in place.
    listener : TransactionListener
        Is called with commits and rollbacks.

    Notes
    -----
    Rows do not come here one by one: :meth:`advance` counts them.
    """

    def __init__(self, carry: Carry, listener: TransactionListener) -> None:
        self.carry = carry
        self._listener = listener
        self.rolled_back = 0  #: changes rolled back since, with a transaction or a savepoint
        self.skipped = 0  #: events of summaries that could not follow, and were skipped
        self.versions: list[RelationVersion] = []  #: versions of Relations sent since, in order

    def apply(self, event: LogicalMessage | Advance) -> None:
        """Follow one message that is not a change (nor a logical message).

        Raises ``DecodeError`` with code ``protocol`` if it may not come here; nothing is committed
        then.
        """
        _HANDLERS[type(event)](self, event)

    def new_session(self) -> None:
        """Drop the transactions that a session left open: the server sends them again, whole.

        Prepared transactions stay: once their Prepare was confirmed they are not sent again.
        """
        self._leave_plain()
        for xid in list(self.carry.streams):
            del self.carry.streams[xid]
            self._listener.drop(("stream", xid))
        self.carry.in_block = False
        self.carry.in_stream = None

    def current(self) -> tuple[Key, OpenTransaction]:
        """Return the transaction that a change at this place belongs to.

        Raises ``DecodeError`` with code ``protocol`` outside of transactions.
        """
        if self.carry.in_stream is not None:
            return ("stream", self.carry.in_stream), self.carry.streams[self.carry.in_stream]
        if self.carry.plain is None:
            raise _violation("a change inside a transaction: no Begin or Stream Start came before")
        return PLAIN, self.carry.plain

    def leave(self) -> None:
        """Follow the Begin of a plain transaction that is read whole."""
        self._leave_plain()
        self.carry.in_stream = None

    def finish(self) -> OpenTransaction:
        """Follow the rest of the open plain transaction, which is read whole; return it."""
        transaction = self.carry.plain
        assert transaction is not None
        self.carry.plain = None
        return transaction

    def advance(self, by: Position, first: Mapping[int, tuple[int, int]]) -> tuple[Key, Position]:
        """Count changes and logical messages of the current transaction.

        ``first`` has the (sub)transactions that made them, with the position of the first of each
        among them. Returns their position in the transaction.
        """
        key, transaction = self.current()
        start = transaction.position
        for xid, place in first.items():
            transaction.first.setdefault(xid, start.plus(place))
        transaction.position = start.plus(by)
        return key, start

    def version(self, oid: int) -> RelationVersion | None:
        """Return the Relation that holds here for an OID, or None."""
        for scope in self._scopes():
            found = scope.relations.get(oid)
            if found is not None:
                return found[1]
        return None

    def _scopes(self) -> list[Scope]:
        """Return the scopes that hold here, the nearest first."""
        if self.carry.in_stream is None:
            return [self.carry.scope]
        return [self.carry.streams[self.carry.in_stream].scope, self.carry.scope]

    # Messages inside a transaction.

    def _relation(self, message: Relation) -> None:
        scopes = self._scopes()
        types: dict[int, Type] = {}
        for column in message.columns:
            for scope in scopes:
                if column.type_oid in scope.types:
                    types.setdefault(column.type_oid, scope.types[column.type_oid])
        version = RelationVersion(replace(message, xid=None), tuple(types.values()))
        held = self.version(message.oid)
        self.carry.clock += 1
        if held is not None and held == version:
            version = held  # a repeated, unchanged Relation is not a new version
        else:
            self.versions.append(version)
        scopes[0].add(self.carry.clock, version)

    def _type(self, message: Type) -> None:
        self._scopes()[0].types[message.oid] = replace(message, xid=None)

    def _origin(self, message: Origin) -> None:
        self.current()[1].origin = message.name

    # Plain transactions, and those that are prepared in one piece.

    def _begin(self, message: Begin) -> None:
        transaction = OpenTransaction(message.xid, message.final_lsn, message.commit_time)
        self._open_plain(transaction)
        if self.carry.cut_off[0] == message.final_lsn:
            transaction.delivered = self.carry.cut_off[1]

    def _begin_prepare(self, message: BeginPrepare) -> None:
        self._open_plain(OpenTransaction(message.xid, gid=message.gid))

    def _open_plain(self, transaction: OpenTransaction) -> None:
        # One that is open still was cut off: a new session sends it again, whole.
        self.leave()
        self.carry.plain = transaction

    def _leave_plain(self) -> None:
        transaction = self.carry.plain
        if transaction is None:
            return
        if transaction.final_lsn > self.carry.delivered_lsn:
            come = max(transaction.delivered, transaction.position.changes)
            self.carry.cut_off = (transaction.final_lsn, come)
        self.carry.plain = None
        self._listener.drop(PLAIN)

    def _commit(self, message: Commit) -> None:
        transaction = self.carry.plain
        if transaction is None or transaction.gid is not None:
            raise _violation("Commit after a Begin")
        if transaction.final_lsn != message.commit_lsn:
            raise _violation(
                f"Commit with Begin's final LSN {transaction.final_lsn}, not {message.commit_lsn}"
            )
        self.carry.in_stream = None
        self.carry.plain = None
        self._finish(PLAIN, transaction, message)

    def _prepare(self, message: Prepare) -> None:
        transaction = self.carry.plain
        if transaction is None and self.carry.in_stream is None:
            # PostgreSQL 18 up to 18.4 sends no Begin Prepare for a transaction that wrote nothing.
            transaction = OpenTransaction(message.xid, gid=message.gid)
        if transaction is None or transaction.gid != message.gid:
            raise _violation(f"Prepare of {message.gid!r} after its Begin Prepare")
        self.carry.plain = None
        self._hold_prepared(PLAIN, transaction, message.gid)

    # Streamed transactions.

    def _stream_start(self, message: StreamStart) -> None:
        self._leave_plain()
        self.carry.in_stream = None
        if not message.first_segment and message.xid not in self.carry.streams:
            raise _violation(f"the first stream block of transaction {message.xid} before others")
        if message.first_segment:
            # An open one of the same xid was cut off: a new session sends it again, whole.
            if message.xid in self.carry.streams:
                self._listener.drop(("stream", message.xid))
            self.carry.streams[message.xid] = OpenTransaction(message.xid)
        self.carry.in_stream = message.xid

    def _stream_stop(self, message: StreamStop) -> None:
        if self.carry.in_stream is None:
            raise _violation("Stream Stop after a Stream Start")
        self.carry.in_stream = None

    def _stream_commit(self, message: StreamCommit) -> None:
        transaction = self.carry.streams.get(message.xid)
        if transaction is None:
            if message.commit_lsn > self.carry.delivered_lsn:
                raise _violation(f"Stream Commit of a streamed transaction, not of {message.xid}")
            return
        self.carry.in_stream = None
        del self.carry.streams[message.xid]
        self.carry.scope.adopt(transaction.scope)
        self._finish(("stream", message.xid), transaction, message)

    def _stream_abort(self, message: StreamAbort) -> None:
        # PostgreSQL 18 sends one unasked, for a transaction that was never streamed.
        self.carry.in_stream = None
        transaction = self.carry.streams.get(message.xid)
        if transaction is None:
            return
        key: Key = ("stream", message.xid)
        if message.subxid == message.xid:
            self.rolled_back += transaction.position.changes
            del self.carry.streams[message.xid]
            self._listener.drop(key)
            return
        # The publisher forgets what Relations it sent in this transaction, and so do we.
        transaction.scope = Scope()
        position = transaction.first.get(message.subxid)
        if position is not None:
            self.rolled_back += transaction.position.changes - position.changes
            transaction.cut(position)
            self._listener.truncate(key, position)

    def _stream_prepare(self, message: StreamPrepare) -> None:
        transaction = self.carry.streams.get(message.xid)
        if transaction is None:
            raise _violation(f"Stream Prepare of a streamed transaction, not of {message.xid}")
        self.carry.in_stream = None
        del self.carry.streams[message.xid]
        transaction.gid = message.gid
        self._hold_prepared(("stream", message.xid), transaction, message.gid)

    # Prepared transactions.

    def _hold_prepared(self, key: Key, transaction: OpenTransaction, gid: str) -> None:
        if gid in self.carry.prepared:  # sent again by a new session
            self._listener.drop(("prepared", gid))
        transaction.first = {}
        self.carry.prepared[gid] = transaction
        self._listener.rename(key, ("prepared", gid))

    def _commit_prepared(self, message: CommitPrepared) -> None:
        self.carry.in_stream = None
        transaction = self.carry.prepared.pop(message.gid, None)
        if transaction is None:
            # PostgreSQL 15 to 17 send this message alone for a transaction that wrote nothing.
            transaction = OpenTransaction(message.xid, gid=message.gid)
        self.carry.scope.adopt(transaction.scope)
        self._finish(("prepared", message.gid), transaction, message)

    def _rollback_prepared(self, message: RollbackPrepared) -> None:
        self.carry.in_stream = None
        transaction = self.carry.prepared.pop(message.gid, None)
        if transaction is not None:
            self.rolled_back += transaction.position.changes
            self._listener.drop(("prepared", message.gid))

    def _finish(
        self,
        key: Key,
        transaction: OpenTransaction,
        message: Commit | StreamCommit | CommitPrepared,
    ) -> None:
        if message.commit_lsn <= self.carry.delivered_lsn:
            self._listener.drop(key)
            return
        self.carry.delivered_lsn = message.commit_lsn
        self._listener.commit(
            key,
            Committed(
                xid=transaction.xid,
                commit_lsn=message.commit_lsn,
                end_lsn=message.end_lsn,
                commit_time=message.commit_time,
                origin=transaction.origin,
                gid=transaction.gid,
                changes=transaction.position.changes,
            ),
        )

    def _advance(self, event: Advance) -> None:
        self.leave()
        self.carry.delivered_lsn = max(self.carry.delivered_lsn, event.commit_lsn)


_HANDLERS: dict[type, Callable[[Resolver, Any], None]] = {
    Advance: Resolver._advance,
    Begin: Resolver._begin,
    BeginPrepare: Resolver._begin_prepare,
    Commit: Resolver._commit,
    CommitPrepared: Resolver._commit_prepared,
    Origin: Resolver._origin,
    Prepare: Resolver._prepare,
    Relation: Resolver._relation,
    RollbackPrepared: Resolver._rollback_prepared,
    StreamAbort: Resolver._stream_abort,
    StreamCommit: Resolver._stream_commit,
    StreamPrepare: Resolver._stream_prepare,
    StreamStart: Resolver._stream_start,
    StreamStop: Resolver._stream_stop,
    Type: Resolver._type,
}


def _violation(expected: str) -> DecodeError:
    return DecodeError(ErrorCode.PROTOCOL, offset=0, expected=expected)
