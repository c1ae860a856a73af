"""Reader of input arrays: it hands their events to the resolver and the collector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable, ScannedArray
from pgwire_codec.errors import DecodeError, ErrorCode, Rejected
from pgwire_codec.protocol.messages import LogicalMessage, Message, Truncate
from pgwire_codec.transactions.carry import START, OpenTransaction, Position, RelationVersion
from pgwire_codec.transactions.collector import Chunk, Collector, Held
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.events import ChangeRun, PlainRun, ScannedEvents, first_of_each
from pgwire_codec.transactions.plain import plain_transactions
from pgwire_codec.transactions.resolver import PLAIN, Advance, Key, Resolver


class Reader:
    """Read input arrays, one after the other, into a collector.

    Parameters
    ----------
    codec : Codec
        The implementation.
    resolver : Resolver
        Follows the transactions; its listener is the collector.
    collector : Collector
        Takes the changes.
    atomic, skip : bool
        As ``atomic`` and ``on_error="skip"`` of the decoder.
    """

    _table: MessageTable
    _source: ScannedArray

    def __init__(
        self, codec: Codec, resolver: Resolver, collector: Collector, *, atomic: bool, skip: bool
    ) -> None:
        self._codec = codec
        self._resolver = resolver
        self._collector = collector
        self._atomic = atomic
        self._skip = skip

    def read(self, messages: Messages, lsns: npt.NDArray[np.uint64] | None, base: int) -> None:
        """Resolve an input array, whose first message has index ``base`` in the call.

        Raises ``DecodeError`` for the first message that does not decode, or cannot come here.
        """
        carry = self._resolver.carry
        try:
            table = self._codec.scan(messages, streaming=carry.in_block, skip=self._skip)
        except DecodeError as error:
            index = error.message_index or 0
            # An earlier message that decodes may be out of place: its error comes first.
            head = Messages(messages.data, messages.offsets[: index + 1])
            self.read(head, lsns, base)
            raise error.at(base + index) from None
        self._table = table
        self._source = ScannedArray(messages, table.kind, self._table.body, lsns, base)
        for index, damage in table.errors.items():
            self._reject(index, damage)
        events = ScannedEvents(messages, table, self._codec.decode_message)
        for index, item in events.iterate(carry.in_block):
            if not isinstance(item, PlainRun):
                self._event(index, item)
            elif not self._plain_run(item):
                for place, event in events.iterate_between(item.start, item.stop, streaming=False):
                    self._event(place, event)
        carry.in_block = table.streaming

    def _event(self, index: int, item: ChangeRun | LogicalMessage) -> None:
        try:
            if isinstance(item, ChangeRun):
                self._run(item)
            elif isinstance(item, Truncate):
                self._truncate(index, item)
            elif isinstance(item, Message):
                self._message(item)
            else:
                self._resolver.apply(item)
        except DecodeError as error:
            if error.message_index is not None:  # placed already
                raise
            stop = item.stop if isinstance(item, ChangeRun) else index + 1
            for place in range(index, stop):
                self._reject(place, error)

    def _plain_run(self, run: PlainRun) -> bool:
        """Take a run of plain transactions at once; False if its events have to be read singly."""
        transactions = plain_transactions(self._source.messages, run, self._codec.boundaries)
        if transactions is None or transactions.commit_lsn[0] <= self._resolver.carry.delivered_lsn:
            return False
        if self._resolver.carry.cut_off[0] >= transactions.commit_lsn[0]:
            return False
        is_change = self._table.body[run.start : run.stop] >= 0
        chunk = Chunk(
            self._source,
            run.start + np.flatnonzero(is_change),
            self._table.relation[run.start : run.stop][is_change],
            np.zeros(0, np.int64),
            {},
        )
        versions = {oid: self._resolver.version(oid) for oid in np.unique(chunk.relation).tolist()}
        if None in versions.values():
            return False
        numbers = np.repeat(np.arange(len(transactions)), transactions.changes)
        before = np.cumsum(transactions.changes) - transactions.changes
        chunk.seq = np.arange(len(chunk.rows)) - before[numbers]
        for oid, version in versions.items():
            if version is not None:
                chunk.versions[oid] = version
                self._check_width(chunk, oid, version)
        self._resolver.apply(Advance(int(transactions.commit_lsn[-1])))
        self._collector.emit_run(transactions, chunk, numbers)
        return True

    def _reject(self, index: int, error: DecodeError) -> None:
        placed = error.at(self._source.base + index)
        if not self._skip:
            raise placed from None
        self._collector.rejected.append(
            Rejected(self._source.base + index, self._source.messages[index], placed)
        )

    def _run(self, run: ChangeRun) -> None:
        key, start = self._resolver.advance(
            Position(run.stop - run.start), first_of_each(self._table, run)
        )
        chunk = Chunk(
            self._source,
            np.arange(run.start, run.stop, dtype=np.int64),
            self._table.relation[run.start : run.stop],
            np.arange(start.changes, start.changes + run.stop - run.start, dtype=np.int64),
            {},
        )
        unknown = []
        for oid in np.unique(chunk.relation).tolist():
            version = self._resolver.version(oid)
            if version is None:
                unknown.append(oid)
            else:
                chunk.versions[oid] = version
                self._check_width(chunk, oid, version)
        if unknown:
            lost = np.isin(chunk.relation, unknown)
            for index in chunk.rows[lost].tolist():
                place = int(self._table.body[index] - self._source.messages.offsets[index]) - 4
                error = _unknown_relation(int(self._table.relation[index]), place)
                self._reject(index, error)
            chunk = chunk.keep(~lost)
        self._add(key, chunk)

    def _check_width(
        self,
        chunk: Chunk,
        oid: int,
        version: RelationVersion,
    ) -> None:
        """Report tuples that have more or fewer columns than their Relation (15.0 and 15.1 do)."""
        rows = chunk.rows[chunk.relation == oid]
        columns = len(version.relation.columns)
        for index in rows[self._table.width[rows] != columns].tolist():
            width = int(self._table.width[index])
            self._collector.warnings.append(
                DecodeError(
                    ErrorCode.TOO_WIDE if width > columns else ErrorCode.TOO_NARROW,
                    offset=int(self._table.body[index] - chunk.source.messages.offsets[index]) + 1,
                    expected=f"{columns} columns of {version.qualified_name}, not {width}",
                    message_index=chunk.source.base + index,
                )
            )

    def _truncate(self, index: int, message: Truncate) -> None:
        """Add a truncate: a row in the batch of each table that it names."""
        oids = message.relation_oids
        first = {} if message.xid is None else {message.xid: START}
        key, start = self._resolver.advance(Position(len(oids)), first)
        versions = {}
        unknown = []
        for number, oid in enumerate(oids):
            version = self._resolver.version(oid)
            if version is None:
                unknown.append((number, oid))
            else:
                versions[oid] = version
        if unknown:
            number, oid = unknown[0]
            place = (6 if message.xid is None else 10) + 4 * number
            self._reject(index, _unknown_relation(oid, place))
        chunk = Chunk(
            self._source,
            np.full(len(oids), index, np.int64),
            np.array(oids, np.uint32),
            np.arange(start.changes, start.changes + len(oids), dtype=np.int64),
            versions,
        )
        known = np.array([oid in versions for oid in oids], np.bool_)
        self._add(key, chunk.keep(known))

    def _message(self, message: Message) -> None:
        if not message.flags & 1:
            self._collector.logical_messages.append(message)
            return
        first = {} if message.xid is None else {message.xid: START}
        key, start = self._resolver.advance(Position(0, 1), first)
        if self._arrives(key):
            self._collector.logical_messages.append(message)
        else:
            self._collector.of(key).messages.append((start.messages, message))

    def _arrives(self, key: Key) -> bool:
        """Return whether the transaction's changes are delivered as they arrive."""
        plain = self._resolver.carry.plain
        return not self._atomic and key == PLAIN and plain is not None and plain.gid is None

    def _add(self, key: Key, chunk: Chunk) -> None:
        plain = self._resolver.carry.plain
        if plain is not None and self._arrives(key):
            if plain.final_lsn <= self._resolver.carry.delivered_lsn:
                return  # repeated by a new session
            chunk = chunk.keep(chunk.seq >= plain.delivered)
            if len(chunk.rows):
                self._collector.emit(Held([chunk]), _promised(plain))
        elif len(chunk.rows):
            self._collector.of(key).chunks.append(chunk)


def _promised(plain: OpenTransaction) -> Committed:
    """Return a plain transaction as Begin declares it: the server sends it once it is committed."""
    return Committed(
        xid=plain.xid,
        commit_lsn=plain.final_lsn,
        end_lsn=0,
        commit_time=plain.commit_time,
        origin=plain.origin,
        gid=None,
        changes=plain.position.changes,
    )


def _unknown_relation(oid: int, offset: int) -> DecodeError:
    return DecodeError(
        ErrorCode.UNKNOWN_RELATION,
        offset=offset,
        expected=f"a Relation message of OID {oid} before its first change",
    )
