"""Parallel decode of a stateful log: summarise each part, fold, decode each part.

A part is any run of messages. Its :class:`Summary` is the effect of the part on a
:class:`~pgwire_codec.Carry`, whatever came before it; summaries fold from left to right.
:func:`pgwire_codec.plan` folds them all. Each part gets the carry of the parts before it, and the
outcomes, in later parts, of the transactions that it leaves open. With these, parts can be decoded
at the same time and in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.codec.runs import PlainRun, Runs, StreamBlock
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.errors import DecodeError, check_on_error
from pgwire_codec.protocol.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Message,
    Origin,
    Prepare,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
)
from pgwire_codec.protocol.spec import MESSAGES
from pgwire_codec.protocol.tags import STREAM_CONTENT
from pgwire_codec.transactions.carry import START, Position
from pgwire_codec.transactions.events import ChangeRun, ScannedEvents, first_of, first_of_each
from pgwire_codec.transactions.resolver import Advance


@dataclass(slots=True)
class ChangeCount:
    """Changes and logical messages of the current transaction.

    With ``xid``, for stream blocks of that transaction; ``first_segment`` as in Stream Start.
    """

    position: Position = START
    first: dict[int, Position] = field(default_factory=dict)
    xid: int | None = None
    first_segment: bool = False

    def extend(self, by: Position, first: Mapping[int, tuple[int, int]]) -> None:
        for xid, place in first.items():
            self.first.setdefault(xid, self.position.plus(place))
        self.position = self.position.plus(by)


Event = LogicalMessage | Advance | ChangeCount


@dataclass(frozen=True, slots=True)
class Summary:
    """Effect of a part on a carry. Picklable; as small as a carry.

    Attributes
    ----------
    messages : int
        How many messages the part has.
    outside, inside : tuple of events, DecodeError, or None
        Events if the part begins outside a stream block, or inside one. If the part's messages
        show which of them it is, the other is None. An error if the bytes cannot be read so.
    ends_in_block : bool or None
        Whether it ends inside a stream block; None: as it begins.
    new_session : bool
        Whether it is the first part of a new connection.
    relations : tuple of int or None
        OIDs of the relations that it has changes of, ascending, perhaps with others; None: unknown.
    """

    messages: int
    outside: tuple[Event, ...] | DecodeError | None
    inside: tuple[Event, ...] | DecodeError | None
    ends_in_block: bool | None
    new_session: bool = False
    relations: tuple[int, ...] | None = None

    def events(self, in_block: bool) -> tuple[Event, ...]:
        """Return the events, by where the part begins. Raises the part's ``DecodeError``."""
        events = self.inside if in_block else self.outside
        if events is None:  # the other reading is the only one: a session broke off before
            events = self.outside if in_block else self.inside
        if isinstance(events, DecodeError):
            raise events
        return events or ()


@dataclass(frozen=True, slots=True)
class JoinedSummary:
    """Summary of two consecutive parts.

    Attributes
    ----------
    summary : Summary
        Effect of both on a carry.
    committed : int
        Number of changes of the plain transactions that are whole in both parts together and in
        neither alone, less those delivered before.
    """

    summary: Summary
    committed: int


def join(first: Summary, second: Summary, in_block: bool, delivered_lsn: int) -> JoinedSummary:
    """Return the summary of two consecutive parts of a session, of which the second goes on.

    ``in_block`` is whether the first begins inside a stream block, and ``delivered_lsn`` the commit
    LSN of the last transaction delivered before it. Raises a part's ``DecodeError``.
    """
    if second.new_session:
        raise ValueError("a part that begins a session cannot be joined to the one before it")
    in_block = in_block and not first.new_session
    recorder = _Recorder(in_block, delivered_lsn)
    for part in (first, second):
        recorder.replay(part.events(recorder.in_block))
        if part.ends_in_block is not None:
            recorder.in_block = part.ends_in_block
    events = recorder.events()
    known = first.relations is not None and second.relations is not None
    summary = Summary(
        first.messages + second.messages,
        None if in_block else events,
        events if in_block else None,
        recorder.in_block,
        first.new_session,
        tuple(sorted({*first.relations, *second.relations})) if known else None,  # type: ignore[misc]
    )
    return JoinedSummary(summary, recorder.committed)


class Summariser:
    """Summarise a part that comes in pieces; see :func:`pgwire_codec.summarise`.

    Until a message shows whether the part began inside a stream block, it is read both ways.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        on_error: str,
        new_session: bool,
        in_block: bool | None = None,
        delivered_lsn: int = 0,
        heads: bool = False,
    ) -> None:
        self._codec = codec
        self._heads = heads
        self._skip = check_on_error(on_error)
        self._new_session = new_session
        self._count = 0
        if new_session:
            in_block = False
        readings = (False, True) if in_block is None else (in_block,)
        self._recorders = {reading: _Recorder(reading, delivered_lsn) for reading in readings}
        self._errors: dict[bool, DecodeError] = {}

    def add(self, messages: object) -> None:
        """Read the next messages of the part. Raises ``DecodeError``."""
        for part in to_message_arrays(messages, self._codec):
            certain = _begins_in_stream(part) if len(self._recorders) == 2 else None
            if certain is not None:
                self._recorders = {certain: self._recorders[certain]}
            for in_block, recorder in self._recorders.items():
                self._read(part, in_block, recorder)
            self._count += len(part)

    def _read(self, part: Messages, in_block: bool, recorder: _Recorder) -> None:
        certain = len(self._recorders) == 1
        if in_block not in self._errors:
            try:
                recorder.record(part, self._codec, skip=self._skip, heads=self._heads)
            except DecodeError as error:
                self._errors[in_block] = error.at(self._count + (error.message_index or 0))
        if certain and in_block in self._errors:
            raise self._errors[in_block]

    @property
    def committed(self) -> int:
        """Number of changes in plain transactions read whole, less those delivered before.

        Only known if ``in_block`` was.
        """
        (recorder,) = self._recorders.values()
        return recorder.committed

    def summary(self) -> Summary:
        """Return the summary of all that was added; more may be added after it."""
        readings = {
            in_block: self._errors.get(in_block, recorder.events())
            for in_block, recorder in self._recorders.items()
        }
        certain = len(self._recorders) == 1
        ends_in_block = next(iter(self._recorders.values())).in_block if certain else None
        return Summary(
            self._count,
            readings.get(False),
            readings.get(True),
            ends_in_block,
            self._new_session,
            self._relations(),
        )

    def _relations(self) -> tuple[int, ...]:
        """Return the OIDs of the relations with changes, by each reading that is possible."""
        found: set[int] = set()
        for in_block, recorder in self._recorders.items():
            if in_block not in self._errors:
                found |= recorder.relations
        return tuple(sorted(found))


_ALL_TAGS: Final = b"".join(message.tag for message in MESSAGES)


def _begins_in_stream(part: Messages) -> bool | None:
    """Return whether a part begins inside a stream block; None if no message shows it."""
    for index in range(len(part)):
        tag = part.tag(index)
        if tag and tag in _ALL_TAGS and tag not in STREAM_CONTENT:
            return tag == b"E"
    return None


class _Recorder:
    """Record the effect of a part, in as few events as keep its meaning."""

    def __init__(self, in_block: bool, delivered_lsn: int) -> None:
        self.in_block = in_block
        self.committed = 0  # changes that no event has, of transactions not delivered before
        self.relations: set[int] = set()  # OIDs of those with changes
        self._delivered_lsn = delivered_lsn
        self._events: list[Event] = []
        self._begun: int | None = None  # index of the last Begin in the events
        self._was_cut_off = False  # before the last Begin, a block may have been open
        self._block: ChangeCount | None = None  # the stream block that is open
        self._blocks: dict[int, ChangeCount] = {}  # by xid, as long as a block can be joined to it
        self._relations: dict[int | None, dict[int, Relation]] = {}  # sent last, by transaction
        self._types: dict[int | None, dict[int, Type]] = {}
        self._names: dict[tuple[str, str], int] = {}  # the relation that was last sent by a name

    def record(self, part: Messages, codec: Codec, *, skip: bool, heads: bool) -> None:
        table = codec.scan(part, streaming=self.in_block, skip=skip, heads=heads)
        runs = codec.runs(part, table)
        self.relations.update([group.relation for group in runs.groups])
        events = ScannedEvents(part, table, codec.decode_message)
        place = 0
        for segment in runs.segments:
            self._singly(events.iterate(place, segment.start), table)
            if isinstance(segment, PlainRun):
                self._plain_run(segment, runs, table)
            else:
                self._stream_block(segment, table)
            place = segment.stop
        self._singly(events.iterate(place, len(part)), table)
        self.in_block = table.streaming

    def replay(self, events: Iterable[Event]) -> None:
        """Record the events of another recorder as if its messages came here."""
        for event in events:
            if isinstance(event, Advance):
                self._begun = self._block = None
                self._advance(event.commit_lsn)
            elif isinstance(event, ChangeCount):
                if event.xid is not None:
                    self._open_block(StreamStart(event.xid, event.first_segment))
                self._count(event.position, event.first)
                if event.xid is not None:
                    self._block = None
            else:
                self._message(event)

    def _singly(
        self, events: Iterable[tuple[int, ChangeRun | LogicalMessage]], table: MessageTable
    ) -> None:
        for _, item in events:
            if isinstance(item, ChangeRun):
                self._count(Position(item.stop - item.start), first_of_each(table, item))
            else:
                self._message(item)

    def _plain_run(self, run: PlainRun, runs: Runs, table: MessageTable) -> None:
        was_cut_off = self._may_be_in_block()
        self._begun = self._block = None
        first, stop = run.first_transaction, run.stop_transaction
        lsns = runs.transactions.commit_lsn
        is_new = lsns[first:stop] > self._delivered_lsn
        self.committed += int(runs.transactions.changes[first:stop][is_new].sum())
        for index, number in run.others:
            message = table.decoded[index]
            if isinstance(message, (Relation, Type)):
                if was_cut_off and number == run.first_transaction:
                    self._events.append(Advance(0))
                    was_cut_off = False
                self._commits(lsns[first:number])
                self._message(message)
                first = number
        self._commits(lsns[first:stop])

    def _commits(self, lsns: npt.NDArray[np.uint64]) -> None:
        for lsn in lsns[:: max(len(lsns) - 1, 1)].tolist():  # the first and the last
            self._advance(lsn)

    def _stream_block(self, block: StreamBlock, table: MessageTable) -> None:
        self._open_block(StreamStart(block.xid, block.first_segment))
        self._count(Position(block.stop_row - block.first_row, block.messages), block.first)
        for index in block.others:
            message = table.decoded[index]
            if not isinstance(message, Message):
                self._message(message)
        self._block = None

    def events(self) -> tuple[Event, ...]:
        # Copies of those that grow with what is added later.
        events = [
            replace(event, first=dict(event.first)) if isinstance(event, ChangeCount) else event
            for event in self._events
        ]
        if self._block is not None:  # the part ends inside a stream block
            events.append(StreamStart(self._block.xid or 0, first_segment=False))
        return tuple(events)

    def _message(self, message: LogicalMessage) -> None:
        if isinstance(message, Truncate):
            self._count(Position(len(message.relation_oids)), first_of(message))
        elif isinstance(message, Message):
            if message.flags & 1:
                self._count(Position(0, 1), first_of(message))
        elif isinstance(message, Relation):
            self._relation(message)
        elif isinstance(message, Type):
            self._type(message)
        elif isinstance(message, Origin):
            self._declare(message)
        elif isinstance(message, StreamStart):
            self._open_block(message)
        elif isinstance(message, StreamStop):
            if self._block is None:
                self._events.append(message)
            self._block = None
        elif isinstance(message, Commit):
            self._commit(message)
        else:
            self._control(message)

    def _count(self, by: Position, first: Mapping[int, tuple[int, int]]) -> None:
        if self._block is not None:
            self._block.extend(by, first)
            return
        last = self._events[-1] if self._events else None
        if not isinstance(last, ChangeCount) or last.xid is not None:
            last = ChangeCount()
            self._events.append(last)
        last.extend(by, first)

    def _transaction(self, xid: int | None) -> int | None:
        """Return the scope of a Relation: a streamed transaction, or None for all of them.

        At the head of a part, the transaction of an open block is not known: it is 0 here.
        """
        if xid is None:
            return None
        return 0 if self._block is None else self._block.xid

    def _relation(self, message: Relation) -> None:
        scope = self._transaction(message.xid)
        content = replace(message, xid=None)
        name = (message.namespace, message.name)
        was_last, self._names[name] = self._names.get(name), message.oid
        if was_last in (None, message.oid) and (
            self._relations.setdefault(scope, {}).get(message.oid) == content
        ):
            return
        # Versions that other transactions sent of this relation are not the last any more.
        for other in self._relations.values():
            other.pop(message.oid, None)
        self._relations.setdefault(scope, {})[message.oid] = content
        self._declare(message)

    def _type(self, message: Type) -> None:
        scope = self._transaction(message.xid)
        content = replace(message, xid=None)
        if self._types.setdefault(scope, {}).get(message.oid) == content:
            return
        for relations in self._relations.values():
            relations.clear()  # they may have columns of this type
        for other in self._types.values():
            other.pop(message.oid, None)
        self._types[scope][message.oid] = content
        self._declare(message)

    def _declare(self, message: Relation | Type | Origin) -> None:
        if self._block is None:
            self._events.append(message)
            return
        # Inside a block: reopen it around the message, which holds for its transaction alone.
        self._events += (
            StreamStart(self._block.xid or 0, first_segment=False),
            message,
            StreamStop(),
        )

    def _open_block(self, message: StreamStart) -> None:
        if self._begun is not None:  # it was cut off, here: no later block may move before it
            self._begun = None
            self._blocks.clear()
        block = self._blocks.get(message.xid)
        if block is None or message.first_segment:
            block = ChangeCount(xid=message.xid, first_segment=message.first_segment)
            self._events.append(block)
            self._blocks[message.xid] = block
        if message.first_segment:
            self._forget(message.xid)
        self._block = block

    def _commit(self, message: Commit) -> None:
        self._block = None
        begin = None if self._begun is None else self._events[self._begun]
        if self._begun is None or not isinstance(begin, Begin):
            self._events.append(message)
            return
        if begin.final_lsn != message.commit_lsn:
            self._events.append(message)  # the fold raises the error
            return
        # A transaction that was read whole: only its declarations are kept, and how far the commits
        # have come.
        events = self._events[self._begun :]
        declared = [event for event in events if isinstance(event, (Relation, Type))]
        if message.commit_lsn > self._delivered_lsn:
            self.committed += sum(
                event.position.changes for event in events if isinstance(event, ChangeCount)
            )
        del self._events[self._begun :]
        self._begun = None
        if declared and self._was_cut_off:
            self._events.append(Advance(0))
        self._events += declared
        self._advance(message.commit_lsn)

    def _advance(self, commit_lsn: int) -> None:
        # The first commit after something else stays, so that it is known which events come before
        # it; those that follow are one event.
        last = self._events[-1] if self._events else None
        if isinstance(last, Advance) and commit_lsn <= last.commit_lsn:
            return
        if (
            isinstance(last, Advance)
            and len(self._events) > 1
            and isinstance(self._events[-2], Advance)
        ):
            self._events[-1] = Advance(commit_lsn)
        else:
            self._events.append(Advance(commit_lsn))

    def _control(self, message: LogicalMessage) -> None:
        if isinstance(message, Prepare) and self._block is not None:
            # It may not come inside a block: reopen the block, so that the fold reports it.
            self._events.append(StreamStart(self._block.xid or 0, first_segment=False))
        self._was_cut_off = self._may_be_in_block()
        self._block = None
        if isinstance(message, (StreamAbort, StreamCommit, StreamPrepare)):
            self._blocks.pop(message.xid, None)
            self._forget(message.xid)
        self._begun = len(self._events) if isinstance(message, Begin) else None
        self._events.append(message)

    def _may_be_in_block(self) -> bool:
        """Return whether a block may be open that a Begin cuts off, here or before this part.

        An event must leave it, if the Begin does not stay, before what its transaction declares.
        """
        return self._block is not None or not self._events

    def _forget(self, xid: int) -> None:
        for declared in (self._relations, self._types):
            declared.pop(xid, None)
            declared.pop(0, None)
