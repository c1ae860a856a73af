"""Messages in, committed changes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pgwire_codec import _input
from pgwire_codec._input import Messages
from pgwire_codec.carry import START, Carry, OpenTransaction, Position, RelationVersion
from pgwire_codec.changes import Changes, Rejected
from pgwire_codec.collector import Chunk, Collector, Held
from pgwire_codec.columns import ChangeBatch, Decoding, Source
from pgwire_codec.errors import DecodeError, ErrorCode, OptionError
from pgwire_codec.messages import LogicalMessage, Message, Relation, Truncate
from pgwire_codec.reference.values import Decoded
from pgwire_codec.stretch import plain_transactions
from pgwire_codec.summary import Outcome, PartPlan, check_on_error
from pgwire_codec.tables import DecodedColumns, MessageTable, TupleTable
from pgwire_codec.transactions import PLAIN, Advance, Committed, Key, Resolver
from pgwire_codec.types import TypeOptions, TypeRegistry
from pgwire_codec.types import registry as default_registry
from pgwire_codec.walk import Run, Stretch, Walk, first_of_each


class Codec(Protocol):
    """The functions of an implementation; ``pgwire_codec.reference`` documents each."""

    decode_message: Callable[..., LogicalMessage]
    scan: Callable[..., MessageTable]
    tuples: Callable[..., tuple[TupleTable, TupleTable]]
    decode_values: Callable[..., Decoded]
    decode_columns: Callable[..., DecodedColumns]


class BaseDecoder:
    """Decodes a stream of pgoutput messages into the changes of committed transactions.

    One decoder serves one stream (one slot, or one log), in order; it must not be shared between
    threads.

    Parameters
    ----------
    atomic : bool
        True: a plain transaction's changes come with its Commit. False: they come as they arrive,
        so that memory stays that of a batch (the server sends a plain transaction only once it is
        committed, but a connection can break in the middle of one; the rest comes when it is sent
        again). Streamed and prepared transactions always come when they commit.
    types : {"native", "text"}
        Arrow types as in the table of types, or every column as string.
    numeric : str
        What becomes of numeric without precision, or with more than 38 digits: ``"string"``,
        ``"float64"``, ``"decimal128(p, s)"`` or ``"decimal256(p, s)"``.
    strings : {"copy", "view"}
        Text columns as ``string``, or as ``string_view`` over the messages' own bytes.
    before : {"key", "full", "none"}
        What ``_before`` holds of the old tuple in ``to_arrow``.
    unrepresentable : {"raise", "null", "clamp"}
        What becomes of a value that the Arrow type cannot hold.
    on_error : {"raise", "skip"}
        What becomes of a message that does not decode: a ``DecodeError``, after which the decoder
        stands where it stood before the call; or it is set aside in ``Changes.rejected``.
    target : {"arrow", "spark"}
        Whose types: with ``"spark"`` only those that Spark takes from a Python worker.
    threads : int
        How many threads decode the values of a large batch in ``to_arrow``.
    registry : TypeRegistry, optional
        Where user-defined types are looked up; by default where ``register_type`` puts them.

    Raises
    ------
    OptionError
        For an option that has no such value.
    """

    codec: ClassVar[Codec]  # the implementation, which a subclass names

    def __init__(
        self,
        *,
        atomic: bool = True,
        types: str = "native",
        numeric: str = "string",
        strings: str = "copy",
        before: str = "key",
        unrepresentable: str = "raise",
        on_error: str = "raise",
        target: str = "arrow",
        threads: int = 1,
        registry: TypeRegistry | None = None,
    ) -> None:
        self._skip = check_on_error(on_error)
        self._atomic = atomic
        self._decoding = Decoding(
            tuples=self.codec.tuples,
            decode_values=self.codec.decode_values,
            decode_columns=self.codec.decode_columns,
            types=TypeOptions(types=types, numeric=numeric, strings=strings, target=target),
            registry=default_registry if registry is None else registry,
            unrepresentable=_one_of("unrepresentable", unrepresentable, "raise", "null", "clamp"),
            before=_one_of("before", before, "key", "full", "none"),
            threads=_positive("threads", threads),
        )
        self._carry = Carry()
        self._held: dict[Key, Held] = {}

    @property
    def relations(self) -> Mapping[int, Relation]:
        """The Relations that hold for everyone, by OID."""
        return {oid: version.relation for oid, (_, version) in self._carry.scope.relations.items()}

    @property
    def pending(self) -> list[int]:
        """xids of the transactions begun and not yet committed or rolled back, ascending."""
        return self._carry.pending

    @property
    def carry(self) -> Carry:
        """A copy of the state behind the last message."""
        return self._carry.copy()

    def decode(self, messages: object, lsn: object = None) -> Changes:
        """Decode the next messages of the stream.

        Parameters
        ----------
        messages : sequence of bytes-likes, or Arrow array of binary, large_binary or binary_view
            Anything with ``__arrow_c_array__`` or ``__arrow_c_stream__`` (a chunked array). Any
            number of messages, cut anywhere.
        lsn : array of integers, optional
            The messages' LSNs, one each.

        Returns
        -------
        Changes
            Of the transactions that committed in these messages.

        Raises
        ------
        DecodeError
            For the first message that does not decode; the decoder stands where it stood before.
        """
        return self._decode(messages, lsn, {})

    def new_session(self) -> None:
        """Say that the connection was made anew, and the next message is the first of it.

        The server then sends again what was not confirmed. Transactions that the old session left
        unfinished are dropped, since they come again whole; those that were delivered are not
        delivered twice. Without this word a new session is recognised by its first Begin, Begin
        Prepare or Stream Start, but not when it begins with a logical message while a stream block
        was open.
        """
        Resolver(self._carry, Collector(self._held)).new_session()

    def for_part(self, part: PartPlan) -> PartDecoder:
        """Give a decoder of one part of a log, by what :func:`pgwire_codec.plan` says of it.

        It has this decoder's options; this decoder's own stream is not touched.
        """
        return PartDecoder(self, part)

    def decode_part(self, messages: object, part: PartPlan, lsn: object = None) -> Changes:
        """Decode one part of a log at once; see :class:`PartDecoder`."""
        return self.for_part(part).decode(messages, lsn, last=True)

    def _decode(self, messages: object, lsn: object, outcomes: Mapping[Key, Outcome]) -> Changes:
        inputs = _input.to_inputs(messages)
        lsns = _input.to_lsns(lsn, sum(len(part) for part in inputs))
        carry = self._carry.copy()
        collector = Collector({key: held.copy() for key, held in self._held.items()})
        resolver = Resolver(carry, collector)
        base = 0
        for part in inputs:
            part_lsns = None if lsns is None else lsns[base : base + len(part)]
            self._read(part, part_lsns, base, resolver, collector)
            base += len(part)
        for key, outcome in outcomes.items():
            held = collector.held.pop(key, None)
            if held is not None and outcome.committed is not None:
                if outcome.before is not None:
                    held.truncate(outcome.before)
                collector.emit(held, outcome.committed)
        changes = self._changes(collector)
        self._carry, self._held = carry, collector.held
        return changes

    def _read(
        self,
        messages: Messages,
        lsns: npt.NDArray[np.uint64] | None,
        base: int,
        resolver: Resolver,
        collector: Collector,
    ) -> None:
        """Resolve one input array into the collector."""
        carry = resolver.carry
        try:
            table = self.codec.scan(messages, streaming=carry.in_block, skip=self._skip)
        except DecodeError as error:
            index = error.message_index or 0
            # An earlier message that decodes may be wrong where it stands: its error comes first.
            head = Messages(messages.data, messages.offsets[: index + 1])
            self._read(head, lsns, base, resolver, collector)
            raise error.at(base + index) from None
        source = Source(messages, table.kind, table.body, lsns, base)
        for index, damage in table.errors.items():
            self._reject(collector, source, index, damage)
        walk = Walk(messages, table, self.codec.decode_message)
        for index, item in walk.steps(carry.in_block):
            if not isinstance(item, Stretch):
                self._step(index, item, table, source, resolver, collector)
            elif not self._stretch(item, table, source, resolver, collector):
                for place, step in walk.between(item.start, item.stop, streaming=False):
                    self._step(place, step, table, source, resolver, collector)
        carry.in_block = table.streaming

    def _step(
        self,
        index: int,
        item: Run | LogicalMessage,
        table: MessageTable,
        source: Source,
        resolver: Resolver,
        collector: Collector,
    ) -> None:
        try:
            if isinstance(item, Run):
                self._run(item, table, source, resolver, collector)
            elif isinstance(item, Truncate):
                self._truncate(index, item, source, resolver, collector)
            elif isinstance(item, Message):
                self._message(item, resolver, collector)
            else:
                resolver.apply(item)
        except DecodeError as error:
            if error.message_index is not None:  # rejected where it stands
                raise
            stop = item.stop if isinstance(item, Run) else index + 1
            for place in range(index, stop):
                self._reject(collector, source, place, error)

    def _stretch(
        self,
        stretch: Stretch,
        table: MessageTable,
        source: Source,
        resolver: Resolver,
        collector: Collector,
    ) -> bool:
        """Take a stretch of plain transactions at once; False where it has to be walked through."""
        transactions = plain_transactions(source.messages, stretch)
        if transactions is None or transactions.commit_lsn[0] <= resolver.carry.delivered_lsn:
            return False
        if resolver.carry.cut_off[0] >= transactions.commit_lsn[0]:
            return False
        is_change = table.body[stretch.start : stretch.stop] >= 0
        chunk = Chunk(
            source,
            stretch.start + np.flatnonzero(is_change),
            table.relation[stretch.start : stretch.stop][is_change],
            np.zeros(0, np.int64),
            {},
        )
        versions = {oid: resolver.version(oid) for oid in np.unique(chunk.relation).tolist()}
        if None in versions.values():
            return False
        numbers = np.repeat(np.arange(len(transactions)), transactions.changes)
        before = np.cumsum(transactions.changes) - transactions.changes
        chunk.seq = np.arange(len(chunk.rows)) - before[numbers]
        for oid, version in versions.items():
            if version is not None:
                chunk.versions[oid] = version
                self._check_width(chunk, oid, version, table, collector)
        resolver.apply(Advance(int(transactions.commit_lsn[-1])))
        collector.emit_stretch(transactions, chunk, numbers)
        return True

    def _reject(self, collector: Collector, source: Source, index: int, error: DecodeError) -> None:
        placed = error.at(source.base + index)
        if not self._skip:
            raise placed from None
        collector.rejected.append(Rejected(source.base + index, source.messages[index], placed))

    def _run(
        self,
        run: Run,
        table: MessageTable,
        source: Source,
        resolver: Resolver,
        collector: Collector,
    ) -> None:
        key, start = resolver.advance(Position(run.stop - run.start), first_of_each(table, run))
        chunk = Chunk(
            source,
            np.arange(run.start, run.stop, dtype=np.int64),
            table.relation[run.start : run.stop],
            np.arange(start.changes, start.changes + run.stop - run.start, dtype=np.int64),
            {},
        )
        unknown = []
        for oid in np.unique(chunk.relation).tolist():
            version = resolver.version(oid)
            if version is None:
                unknown.append(oid)
            else:
                chunk.versions[oid] = version
                self._check_width(chunk, oid, version, table, collector)
        if unknown:
            lost = np.isin(chunk.relation, unknown)
            for index in chunk.rows[lost].tolist():
                place = int(table.body[index] - source.messages.offsets[index]) - 4
                error = _unknown_relation(int(table.relation[index]), place)
                self._reject(collector, source, index, error)
            chunk = chunk.keep(~lost)
        self._add(key, chunk, resolver, collector)

    def _check_width(
        self,
        chunk: Chunk,
        oid: int,
        version: RelationVersion,
        table: MessageTable,
        collector: Collector,
    ) -> None:
        """Report tuples that have more or fewer columns than their Relation (15.0 and 15.1 do)."""
        rows = chunk.rows[chunk.relation == oid]
        columns = len(version.relation.columns)
        for index in rows[table.width[rows] != columns].tolist():
            width = int(table.width[index])
            collector.warnings.append(
                DecodeError(
                    ErrorCode.TOO_WIDE if width > columns else ErrorCode.TOO_NARROW,
                    offset=int(table.body[index] - chunk.source.messages.offsets[index]) + 1,
                    expected=f"{columns} columns of {version.qualified_name}, not {width}",
                    message_index=chunk.source.base + index,
                )
            )

    def _truncate(
        self,
        index: int,
        message: Truncate,
        source: Source,
        resolver: Resolver,
        collector: Collector,
    ) -> None:
        """A truncate is a row in the batch of each table that it names."""
        oids = message.relation_oids
        first = {} if message.xid is None else {message.xid: START}
        key, start = resolver.advance(Position(len(oids)), first)
        versions = {}
        unknown = []
        for number, oid in enumerate(oids):
            version = resolver.version(oid)
            if version is None:
                unknown.append((number, oid))
            else:
                versions[oid] = version
        if unknown:
            number, oid = unknown[0]
            place = (6 if message.xid is None else 10) + 4 * number
            self._reject(collector, source, index, _unknown_relation(oid, place))
        chunk = Chunk(
            source,
            np.full(len(oids), index, np.int64),
            np.array(oids, np.uint32),
            np.arange(start.changes, start.changes + len(oids), dtype=np.int64),
            versions,
        )
        known = np.array([oid in versions for oid in oids], np.bool_)
        self._add(key, chunk.keep(known), resolver, collector)

    def _message(self, message: Message, resolver: Resolver, collector: Collector) -> None:
        if not message.flags & 1:
            collector.logical_messages.append(message)
            return
        first = {} if message.xid is None else {message.xid: START}
        key, start = resolver.advance(Position(0, 1), first)
        if self._arrives(key, resolver):
            collector.logical_messages.append(message)
        else:
            collector.of(key).messages.append((start.messages, message))

    def _arrives(self, key: Key, resolver: Resolver) -> bool:
        """Whether the transaction's changes are given as they arrive."""
        plain = resolver.carry.plain
        return not self._atomic and key == PLAIN and plain is not None and plain.gid is None

    def _add(self, key: Key, chunk: Chunk, resolver: Resolver, collector: Collector) -> None:
        plain = resolver.carry.plain
        if plain is not None and self._arrives(key, resolver):
            if plain.final_lsn <= resolver.carry.delivered_lsn:
                return  # repeated by a new session
            chunk = chunk.keep(chunk.seq >= plain.told)
            if len(chunk.rows):
                collector.emit(Held([chunk]), _promised(plain))
        elif len(chunk.rows):
            collector.of(key).chunks.append(chunk)

    def _changes(self, collector: Collector) -> Changes:
        batches = collector.batches(self._decoding)
        if self._skip:
            sound = [self._sound(batch, collector) for batch in batches]
            batches = [batch for batch in sound if len(batch)]
        return Changes(
            batches,
            collector.transactions(),
            collector.logical_messages,
            sorted(collector.rejected, key=lambda each: each.message_index),
            sorted(collector.warnings, key=lambda each: each.message_index or 0),
        )

    def _sound(self, batch: ChangeBatch, collector: Collector) -> ChangeBatch:
        """Set aside the rows that have a value which does not decode."""
        errors = batch.errors()
        if not errors:
            return batch
        for row, error in errors.items():
            collector.rejected.append(Rejected(batch.message_index(row), batch.message(row), error))
        bad = np.zeros(len(batch), np.bool_)
        bad[list(errors)] = True
        return batch.without(bad)


class PartDecoder:
    """Decodes one part of a log: the same changes as in a serial pass, without the other parts.

    Changes of a transaction come with the part that they stand in, if the part's plan says that
    it commits; ``Changes.transactions`` has the transactions whose commit stands in this part.
    """

    def __init__(self, decoder: BaseDecoder, part: PartPlan) -> None:
        self._decoder = copy(decoder)
        self._decoder._atomic = True
        self._decoder._carry = part.carry.copy()
        self._decoder._held = {}
        self._outcomes = part.outcomes

    def decode(self, messages: object, lsn: object = None, *, last: bool = False) -> Changes:
        """Decode the next messages of the part; parameters and errors as in ``Decoder.decode``.

        With the ``last`` messages (there may be none) come the changes of the transactions that
        the part leaves open and that commit behind it.
        """
        return self._decoder._decode(messages, lsn, self._outcomes if last else {})


def _promised(plain: OpenTransaction) -> Committed:
    """Give what Begin says of a plain transaction, which the server sends once it is committed."""
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


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise OptionError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return value


def _one_of(name: str, value: str, *allowed: str) -> str:
    if value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise OptionError(f"{name} must be one of {words}, not {value!r}")
    return value
