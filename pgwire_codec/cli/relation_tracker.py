"""Messages decoded in order, with the Relation under which each change was made.

This tracks the stream as it arrives, for display. Committed changes are the business of
:mod:`pgwire_codec.transactions`.
"""

from __future__ import annotations

from pgwire_codec import decode_message
from pgwire_codec.protocol import messages as m
from pgwire_codec.protocol import quoting

Change = m.Insert | m.Update | m.Delete
_WITH_SUBTRANSACTION = Change | m.Relation | m.Type | m.Truncate | m.Message


class RelationTracker:
    """Decoder of single messages that keeps the Relations seen so far."""

    def __init__(self) -> None:
        self._streaming = False  # between Stream Start and Stream Stop
        self._streamed_xid = 0
        self._relations: dict[int, m.Relation] = {}
        # A Relation in a streamed transaction applies to that one alone until it commits.
        self._streamed_relations: dict[int, dict[int, m.Relation]] = {}

    def decode(self, data: bytes) -> m.LogicalMessage:
        """Decode the next message.

        Raises ``DecodeError`` for a malformed one, after which the next can be decoded.
        """
        try:
            message = decode_message(data, streaming=self._streaming)
        finally:
            # By the tag: a damaged Stream Start or Stop still starts or stops.
            if data[:1] in (b"S", b"E"):
                self._streaming = data[:1] == b"S"
        self._remember(message)
        return message

    def relation(self, oid: int) -> m.Relation | None:
        """Return the Relation of an OID as of the last message, or None."""
        streamed = self._streamed_relations.get(self._streamed_xid, {}) if self._streaming else {}
        return streamed.get(oid) or self._relations.get(oid)

    def subtransaction(self, message: m.LogicalMessage) -> int | None:
        """Return the xid of a streamed change in a subtransaction, or None."""
        xid = message.xid if isinstance(message, _WITH_SUBTRANSACTION) else None
        return None if xid == self._streamed_xid else xid

    def _remember(self, message: m.LogicalMessage) -> None:
        if isinstance(message, m.StreamStart):
            self._streamed_xid = message.xid
        elif isinstance(message, m.Relation) and self._streaming:
            streamed = self._streamed_relations.setdefault(self._streamed_xid, {})
            streamed[message.oid] = message
        elif isinstance(message, m.Relation):
            self._relations[message.oid] = message
        elif isinstance(message, m.StreamCommit | m.CommitPrepared):
            self._relations |= self._streamed_relations.pop(message.xid, {})
        elif isinstance(message, m.RollbackPrepared) or (
            isinstance(message, m.StreamAbort) and message.subxid == message.xid
        ):
            self._streamed_relations.pop(message.xid, None)


def qualified_name(relation: m.Relation | m.Type) -> str:
    """Return ``schema.table``, as PostgreSQL quotes it."""
    return quoting.qualified_name(schema_of(relation), relation.name)


def schema_of(named: m.Relation | m.Type) -> str:
    """Return a table's or type's schema; an empty one on the wire is pg_catalog."""
    return named.namespace or "pg_catalog"
