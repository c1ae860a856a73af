"""Selection of the messages of one table, with the bounds of the transactions around them."""

from __future__ import annotations

from pgwire_codec.cli.relation_tracker import Change, RelationTracker, qualified_name
from pgwire_codec.protocol import messages as m

#: Messages that open a group of others, and those that close one.
OPENING = (m.Begin, m.BeginPrepare, m.StreamStart)
CLOSING = (m.Commit, m.Prepare, m.StreamStop)
#: Messages about a whole transaction, outside of any group.
_ENDING = (m.StreamCommit, m.StreamAbort, m.StreamPrepare, m.CommitPrepared, m.RollbackPrepared)


class TableFilter:
    """Filter that selects a table's messages and the ends of their transactions."""

    def __init__(self, table: str, tracker: RelationTracker) -> None:
        self._table = table
        self._tracker = tracker
        self._xid = 0  # of the transaction that is open
        self._occurs = False  # in the group that is open
        self._xids: set[int] = set()  # of transactions in which it occurs

    def open(self, message: m.Begin | m.BeginPrepare | m.StreamStart) -> None:
        """Start a transaction, or a block of one."""
        self._xid = message.xid
        self._occurs = False

    def selects(self, message: m.LogicalMessage) -> bool:
        """Check whether a message, which is not an opening one, is to be shown."""
        if isinstance(message, CLOSING):
            # A Prepare without Begin Prepare closes a transaction that nothing opened.
            occurs, self._occurs = self._occurs, False
            return occurs
        if isinstance(message, _ENDING):
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
            return [self._tracker.relation(message.relation_oid)]
        if isinstance(message, m.Truncate):
            return [self._tracker.relation(oid) for oid in message.relation_oids]
        return []

    def _is_named(self, relation: m.Relation | None) -> bool:
        return relation is not None and self._table in (relation.name, qualified_name(relation))
