"""What has to be remembered from message to message to show one to a person.

This follows the stream as it arrives. Which changes count in the end is not its business: that is
:mod:`pgwire_codec.transactions`.
"""

from __future__ import annotations

from pgwire_codec import decode_message
from pgwire_codec.protocol import messages as m

#: Messages that open a group of others, and those that close one.
OPENING = (m.Begin, m.BeginPrepare, m.StreamStart)
CLOSING = (m.Commit, m.Prepare, m.StreamStop)
#: Messages on a whole transaction that come by themselves.
ENDING = (m.StreamCommit, m.StreamAbort, m.StreamPrepare, m.CommitPrepared, m.RollbackPrepared)

Change = m.Insert | m.Update | m.Delete
_WITH_PART = Change | m.Relation | m.Type | m.Truncate | m.Message


class Follower:
    """Decodes messages in order, and knows the Relation under which each change was made."""

    def __init__(self) -> None:
        self._streaming = False  # between Stream Start and Stream Stop
        self._streamed_xid = 0
        self._relations: dict[int, m.Relation] = {}
        # A Relation in a streamed transaction is for that one until it commits.
        self._streamed_relations: dict[int, dict[int, m.Relation]] = {}

    def decode(self, data: bytes) -> m.LogicalMessage:
        """Decode the next message; DecodeError if it cannot be, after which the next one can."""
        try:
            message = decode_message(data, streaming=self._streaming)
        finally:
            # By the tag, for a damaged Stream Start or Stop still starts or stops.
            if data[:1] in (b"S", b"E"):
                self._streaming = data[:1] == b"S"
        self._remember(message)
        return message

    def relation(self, oid: int) -> m.Relation | None:
        """Give the Relation of an OID as of the last message, or None."""
        streamed = self._streamed_relations.get(self._streamed_xid, {}) if self._streaming else {}
        return streamed.get(oid) or self._relations.get(oid)

    def part(self, message: m.LogicalMessage) -> int | None:
        """Give the subtransaction of a change in a streamed transaction, None for its top one."""
        xid = message.xid if isinstance(message, _WITH_PART) else None
        return None if xid == self._streamed_xid else xid

    def _remember(self, message: m.LogicalMessage) -> None:
        if isinstance(message, m.StreamStart):
            self._streamed_xid = message.xid
        elif isinstance(message, m.Relation) and self._streaming:
            mine = self._streamed_relations.setdefault(self._streamed_xid, {})
            mine[message.oid] = message
        elif isinstance(message, m.Relation):
            self._relations[message.oid] = message
        elif isinstance(message, m.StreamCommit | m.CommitPrepared):
            self._relations |= self._streamed_relations.pop(message.xid, {})
        elif isinstance(message, m.RollbackPrepared) or (
            isinstance(message, m.StreamAbort) and message.subxid == message.xid
        ):
            self._streamed_relations.pop(message.xid, None)


class TableFilter:
    """Chooses the messages on one table, and the ends of the transactions in which it occurs."""

    def __init__(self, table: str, follower: Follower) -> None:
        self._table = table
        self._follower = follower
        self._xid = 0  # of the transaction that is open
        self._occurs = False  # in what the last opening opened
        self._xids: set[int] = set()  # of transactions in which it occurs

    def open(self, message: m.Begin | m.BeginPrepare | m.StreamStart) -> None:
        """Take note that a transaction, or a block of one, begins."""
        self._xid = message.xid
        self._occurs = False

    def wants(self, message: m.LogicalMessage) -> bool:
        """Say whether the message, which is not an opening, is to be shown."""
        if isinstance(message, CLOSING):
            # A Prepare without Begin Prepare closes a transaction that nothing opened.
            occurs, self._occurs = self._occurs, False
            return occurs
        if isinstance(message, ENDING):
            return message.xid in self._xids
        found = any(self._is_named(relation) for relation in self._relations_of(message))
        if found:
            self._occurs = True
            self._xids.add(self._xid)
        return found

    def _relations_of(self, message: m.LogicalMessage) -> list[m.Relation | None]:
        if isinstance(message, m.Relation):
            return [message]
        if isinstance(message, Change):
            return [self._follower.relation(message.relation_oid)]
        if isinstance(message, m.Truncate):
            return [self._follower.relation(oid) for oid in message.relation_oids]
        return []

    def _is_named(self, relation: m.Relation | None) -> bool:
        return relation is not None and self._table in (relation.name, qualified_name(relation))


def qualified_name(relation: m.Relation) -> str:
    """Give ``schema.table``, not quoted; a schema that the wire leaves empty is pg_catalog."""
    return f"{relation.namespace or 'pg_catalog'}.{relation.name}"
