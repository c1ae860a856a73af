"""Reader of input arrays: it hands their events to the resolver and the collector."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.runs import Begun, PlainRun, Runs, StreamBlock
from pgwire_codec.codec.tables import MessageTable, ScannedArray
from pgwire_codec.errors import DecodeError, ErrorCode
from pgwire_codec.protocol.messages import (
    LogicalMessage,
    Message,
    Origin,
    Relation,
    StreamStart,
    StreamStop,
    Truncate,
)
from pgwire_codec.transactions.carry import OpenTransaction, Position
from pgwire_codec.transactions.change_array import UNKNOWN, ChangeArray, Chunk
from pgwire_codec.transactions.collector import Collector, CommittedRun, Held
from pgwire_codec.transactions.committed import Committed, Transactions
from pgwire_codec.transactions.events import ChangeRun, ScannedEvents, first_of, first_of_each
from pgwire_codec.transactions.rejection import rejected
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
    threads : int
        As of the decoder.
    """

    _table: MessageTable
    _runs: Runs
    _events: ScannedEvents
    _changes: ChangeArray
    _regular: bool  # each group so far has a version, and its tuples as many columns
    _damaged: deque[int]  # indexes of the messages that do not decode and are not rejected yet

    def __init__(
        self,
        codec: Codec,
        resolver: Resolver,
        collector: Collector,
        *,
        atomic: bool,
        skip: bool,
        threads: int = 1,
    ) -> None:
        self._codec = codec
        self._resolver = resolver
        self._collector = collector
        self._atomic = atomic
        self._skip = skip
        self._threads = threads

    def read(self, messages: Messages, lsns: npt.NDArray[np.uint64] | None, base: int) -> None:
        """Resolve an input array, whose first message has index ``base`` in the call.

        Raises ``DecodeError`` for the first message that does not decode, or cannot come here.
        """
        carry = self._resolver.carry
        try:
            table = self._codec.scan(
                messages, streaming=carry.in_block, skip=self._skip, threads=self._threads
            )
        except DecodeError as error:
            index = error.message_index or 0
            # An earlier message that decodes may be out of place: its error comes first.
            head = Messages(messages.data, messages.offsets[: index + 1])
            self.read(head, lsns, base)
            raise error.at(base + index) from None
        self._table = table
        self._runs = self._codec.runs(messages, table, self._begun())
        self._events = ScannedEvents(messages, table, self._codec.decode_message)
        source = ScannedArray(messages, table.kind, table.body, lsns, base)
        self._changes = ChangeArray(source, self._runs.rows, self._runs.group)
        self._regular = True
        self._damaged = deque(sorted(table.errors))
        place = 0
        for segment in self._runs.segments:
            self._singly(place, segment.start)
            if isinstance(segment, PlainRun):
                self._plain_run(segment)
            else:
                self._block(segment)
            place = segment.stop
        self._singly(place, len(messages))
        carry.in_block = table.streaming

    # Runs of plain transactions, and stream blocks.

    def _begun(self) -> Begun | None:
        """Return the open transaction that a run may begin with the rest of."""
        carry, plain = self._resolver.carry, self._resolver.carry.plain
        if not self._atomic or carry.in_block or plain is None or plain.gid is not None:
            return None
        return Begun(plain.xid, plain.final_lsn, plain.position.changes)

    def _plain_run(self, run: PlainRun) -> None:
        """Take a run of plain transactions at once, as far as it has nothing out of the ordinary.

        Transactions that were delivered before, or come again after a session that broke off in
        one, are followed message by message. So is a run with changes of an unknown relation, or
        with an Origin that comes late.
        """
        resolver, found = self._resolver, self._runs.transactions
        if found.begin[run.first_transaction] >= 0:
            resolver.leave()
        known = self._is_known(run.start, run.stop, [index for index, _ in run.others])
        if not known or self._names_origin_late(run):
            self._singly(run.start, run.stop)
            return
        last = max(resolver.carry.delivered_lsn, resolver.carry.cut_off[0])
        first, stop = run.first_transaction, run.stop_transaction
        if last >= int(found.commit_lsn[first]):
            lsns = found.commit_lsn[first:stop]
            first += int(np.searchsorted(lsns, np.uint64(last), side="right"))
        start = run.start if first == run.first_transaction else run.stop
        if run.first_transaction < first < stop:
            start = int(found.begin[first])
        self._singly(run.start, start)
        if first < stop:
            before, origins = Held(), {}
            if found.begin[first] < 0:
                before = self._collector.take(PLAIN)
                if (origin := resolver.finish().origin) is not None:
                    origins[0] = origin
            waiting = [message for _, message in before.messages]
            others = [each for each in run.others if each[0] >= start]
            self._others(others, first, origins, waiting)
            transactions = Transactions.plain(found, first, stop, origins)
            self._settle(run.stop)
            first_row = found.first_row[first:stop]
            stop_row = int(first_row[-1] + transactions.changes[-1])
            self._check_width(max(int(first_row[0]), 0), stop_row)
            resolver.apply(Advance(int(transactions.commit_lsn[-1])))
            self._collector.emit_run(
                CommittedRun(transactions, self._changes, first_row, before.chunks)
            )

    def _names_origin_late(self, run: PlainRun) -> bool:
        """Return whether changes are delivered, as they arrive, before their transaction's origin.

        A server sends the Origin first.
        """
        return not self._atomic and any(
            isinstance(self._table.decoded[index], Origin)
            and self._row(index) > self._runs.transactions.first_row[number]
            for index, number in run.others
        )

    def _others(
        self,
        others: list[tuple[int, int]],
        first: int,
        origins: dict[int, str],
        waiting: list[Message],
    ) -> None:
        """Take the messages of a run that are not changes, and the names in its Origins.

        ``first`` is its first transaction, whose earlier logical messages are ``waiting``.
        """
        owner = first
        for index, number in others:
            if number != owner:
                self._collector.logical_messages += waiting
                waiting, owner = [], number
            message = self._table.decoded[index]
            if isinstance(message, Origin):
                origins[number - first] = message.name
            elif not isinstance(message, Message):
                self._declare(index, message)
            elif message.flags & 1 and self._atomic:
                waiting.append(message)
            else:
                self._collector.logical_messages.append(message)
        self._collector.logical_messages += waiting

    def _block(self, block: StreamBlock) -> None:
        """Take a stream block at once, or message by message if it has an unknown relation."""
        self._event(block.start, StreamStart(block.xid, block.first_segment))
        is_open = self._resolver.carry.in_stream == block.xid
        if not is_open or not self._is_known(block.start, block.stop, block.others):
            self._singly(block.start + 1, block.stop)
            return
        by = Position(block.stop_row - block.first_row, block.messages)
        key, start = self._resolver.advance(by, block.first)
        number = start.messages
        for index in block.others:
            message = self._table.decoded[index]
            if not isinstance(message, Message):
                self._declare(index, message)
            elif message.flags & 1:
                self._collector.of(key).messages.append((number, message))
                number += 1
            else:
                self._collector.logical_messages.append(message)
        self._settle(block.stop)
        self._check_width(block.first_row, block.stop_row)
        self._add(key, Chunk(self._changes, block.first_row, block.stop_row, start.changes))
        self._resolver.apply(StreamStop())

    def _declare(self, index: int, message: LogicalMessage) -> None:
        """Take a Relation, Type or Origin of a run or block."""
        self._settle(index)
        self._resolver.apply(message)

    def _settle(self, stop: int) -> bool:
        """Find the versions of the relations whose changes begin before a message.

        Returns whether all of those that are new have one.
        """
        groups, changes = self._runs.groups, self._changes
        known = True
        for number in range(len(changes.batch), len(groups)):
            group = groups[number]
            if group.first >= stop:
                break
            version = self._resolver.version(group.relation)
            changes.add_group(version)
            if version is None:
                known = self._regular = False
            else:
                columns = len(version.relation.columns)
                self._regular &= group.narrowest >= columns >= group.widest
        return known

    def _is_known(self, start: int, stop: int, others: list[int]) -> bool:
        """Return whether each relation has a version before its first change in some messages."""
        self._settle(start)
        if not others:  # what is known now is known there
            return self._settle(stop)
        declared: dict[int, int] | None = None
        for number in range(len(self._changes.batch), len(self._runs.groups)):
            group = self._runs.groups[number]
            if group.first >= stop:
                break
            if self._resolver.version(group.relation) is None:
                if declared is None:
                    declared = self._declared(others)
                if declared.get(group.relation, stop) > group.first:
                    return False
        return True

    def _declared(self, others: list[int]) -> dict[int, int]:
        """Return the index of the first Relation message of each relation."""
        found: dict[int, int] = {}
        for index in others:
            message = self._table.decoded[index]
            if isinstance(message, Relation):
                found.setdefault(message.oid, index)
        return found

    # Message by message.

    def _singly(self, start: int, stop: int) -> None:
        if start == stop:
            return
        for index, item in self._events.iterate(start, stop):
            self._reject_damaged(index)
            self._event(index, item)
        self._reject_damaged(stop)

    def _reject_damaged(self, stop: int) -> None:
        """Reject the messages before an index that do not decode. They are in no run or block."""
        while self._damaged and self._damaged[0] < stop:
            index = self._damaged.popleft()
            self._reject(index, self._table.errors[index])

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

    def _reject(self, index: int, error: DecodeError) -> None:
        source = self._changes.source
        placed = error.at(source.base + index)
        if not self._skip:
            raise placed from None
        self._collector.rejected.append(rejected(self._resolver.carry, source, index, placed))

    def _run(self, run: ChangeRun) -> None:
        count = run.stop - run.start
        key, start = self._resolver.advance(Position(count), first_of_each(self._table, run))
        self._settle(run.stop)
        row = self._row(run.start)
        self._check_width(row, row + count)
        for index in self._add_known(key, row, row + count, start.changes):
            message = int(self._changes.rows[index])
            offset = int(self._changes.source.messages.offsets[message])
            self._reject(
                message,
                _unknown_relation(
                    int(self._table.relation[message]), int(self._table.body[message]) - offset - 4
                ),
            )

    def _truncate(self, index: int, message: Truncate) -> None:
        """Add a truncate: a row in the batch of each table that it names."""
        count = len(message.relation_oids)
        key, start = self._resolver.advance(Position(count), first_of(message))
        self._settle(index + 1)
        row = self._row(index)
        for unknown in self._add_known(key, row, row + count, start.changes)[:1]:
            number = unknown - row
            place = (6 if message.xid is None else 10) + 4 * number
            self._reject(index, _unknown_relation(message.relation_oids[number], place))

    def _row(self, index: int) -> int:
        """Return the number of the first change that is in a message, or after it."""
        return int(np.searchsorted(self._changes.rows, index))

    def _add_known(self, key: Key, start: int, stop: int, seq: int) -> list[int]:
        """Add some changes, but those of unknown relations: return these."""
        unknown = []
        if not self._regular:
            lost = self._changes.columns(start, stop) == UNKNOWN
            unknown = (start + np.flatnonzero(lost)).tolist()
        place = start
        for row in [*unknown, stop]:
            self._add(key, Chunk(self._changes, place, row, seq + place - start))
            place = row + 1
        return unknown

    def _check_width(self, start: int, stop: int) -> None:
        """Report tuples that have more or fewer columns than their Relation (15.0 and 15.1 do)."""
        if self._regular:
            return
        rows = self._changes.rows[start:stop]
        width, body = self._table.width[rows], self._table.body[rows]
        columns = self._changes.columns(start, stop)
        # A truncate has no tuple.
        differs = (width != columns) & (columns != UNKNOWN) & (body >= 0)
        for place in np.flatnonzero(differs).tolist():
            index, expected = int(rows[place]), int(columns[place])
            version = self._changes.version(start + place)
            name = "" if version is None else version.qualified_name
            self._collector.warnings.append(
                DecodeError(
                    ErrorCode.TOO_WIDE if width[place] > expected else ErrorCode.TOO_NARROW,
                    offset=int(body[place] - self._changes.source.messages.offsets[index]) + 1,
                    expected=f"{expected} columns of {name}, not {width[place]}",
                    message_index=self._changes.source.base + index,
                )
            )

    def _message(self, message: Message) -> None:
        if not message.flags & 1:
            self._collector.logical_messages.append(message)
            return
        key, start = self._resolver.advance(Position(0, 1), first_of(message))
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
            chunk = chunk.since(plain.delivered)
            if chunk.start < chunk.stop:
                self._collector.emit(Held([chunk]), _promised(plain))
        elif chunk.start < chunk.stop:
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
