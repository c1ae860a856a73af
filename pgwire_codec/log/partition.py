"""LogPosition, LogPartition and LogPlan: places in a log, and its decoding in any order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pgwire_codec._impl import Decoder
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.changes import Changes
from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.log.commit_times import ALL_TIMES, TimeRange
from pgwire_codec.log.message_columns import Encoding, lsns
from pgwire_codec.log.segment import Extent
from pgwire_codec.log.store import open_store
from pgwire_codec.log.stored_messages import StoredMessages, read_messages
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.transactions.plan import PartPlan
from pgwire_codec.types import UserType, default_registry, registry_with

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from pgwire_codec.decoder import PartDecoder


class LogPosition(NamedTuple):
    """A place between two messages of a log.

    Attributes
    ----------
    ordinal : int
        Ordinal of the message after it.
    lsn : int
        Commit LSN of the last transaction delivered before it. Ranges of a log are ranges of these.
    """

    ordinal: int = 0
    lsn: int = 0


def commit_lsn_of(position: LogPosition | int, name: str) -> int:
    """Return the commit LSN of an argument; raise ``TypeError`` for an argument without one."""
    if isinstance(position, LogPosition):
        return position.lsn
    try:
        return index(position)
    except TypeError:
        raise TypeError(
            f"{name} must be a commit LSN as a number or a LogPosition, not {position!r}: "
            "pgwire_codec.parse_lsn reads the text of one"
        ) from None


@dataclass(frozen=True, slots=True)
class LogPartition:
    """A run of messages in one segment, with its plan for decoding. Picklable and small.

    Attributes
    ----------
    uri : str
        Location of the log.
    filesystem : pyarrow.fs.FileSystem or None
        File system with which the log was opened.
    segment : str
        Name of the segment, without suffix.
    extents : tuple of Extent
        Its parts in the file, one after the other, each with its checksum.
    encoding : {"differences", "plain"}
        As in :class:`SegmentHeader`.
    first_ordinal, messages : int
        Ordinal of its first message, and number of its messages.
    plan : PartPlan
        Facts about the other messages that its decoding needs.
    after, until : int
        Changes are returned if their transaction has ``after < commit_lsn <= until``.
    times : TimeRange
        Changes are returned if the commit time of their transaction is in it.
    session_starts : frozenset of int
        Ordinals of messages after its first with which sessions begin.
    types : tuple of UserType
        Facts about the user-defined types of the log's columns.
    """

    uri: str
    filesystem: FileSystem | None
    segment: str
    extents: tuple[Extent, ...]
    encoding: Encoding
    first_ordinal: int
    messages: int
    plan: PartPlan
    after: int
    until: int
    times: TimeRange = ALL_TIMES
    session_starts: frozenset[int] = frozenset()
    types: tuple[UserType, ...] = ()

    def decode(
        self, options: DecoderOptions | None = None, letters: list[Rejected] | None = None
    ) -> Iterator[ChangeBatch]:
        """Decode the changes.

        Parameters
        ----------
        options : DecoderOptions, optional
            Options of the decoder; ``on_error`` must be that of the plan. Rejected messages are
            left out. Types that its registry does not have are looked up in ``types``.
        letters : list of Rejected, optional
            Gets the rejected messages of the range, with their ordinals as ``message_index``, when
            the iteration is over. Then a message that does not decode raises no error, whatever
            ``on_error`` is.

        Raises
        ------
        DecodeError
            With the message's ordinal in its context.
        LogError
            When the segment is damaged, or was pruned meanwhile. If it was joined with others
            meanwhile, its messages are read from the joined segment.
        """
        decoder = Decoder(options=with_types(options, self.types)).for_part(self.plan)
        return self._decode(decoder, letters)

    def _decode(
        self, decoder: PartDecoder, letters: list[Rejected] | None
    ) -> Iterator[ChangeBatch]:
        if letters is not None:
            for changes in self._tolerantly(decoder):
                letters += self._letters(changes.rejected)
                yield from self._in_range(changes)
            return
        batches = self._batches()
        for changes, _ in decode_batches(decoder, batches, self.segment, self.session_starts):
            yield from self._in_range(changes)
        yield from self._in_range(decoder.decode([], last=True))

    def error(self, letter: Rejected) -> DecodeError:
        """Return the error of a rejected message of :meth:`decode`, with its place in the log."""
        where = f"segment {self.segment}, ordinal {letter.message_index}"
        context = letter.error.context
        return letter.error.at(None, f"{where}; {context}" if context else where)

    def placed(self, error: DecodeError, batch: ChangeBatch) -> DecodeError:
        """Return the error of a value of a batch, with its place in the log."""
        index = error.message_index or 0
        (row,) = [row for row in range(len(batch)) if batch.message_index(row) == index][:1]
        last = self.first_ordinal + self.messages - 1
        return error.at(
            index,
            f"{error.context}; {batch.version.qualified_name}, commit LSN "
            f"{format_lsn(int(batch.commit_lsn[row]))}, segment {self.segment}, ordinals "
            f"{self.first_ordinal} to {last}",
        )

    def _tolerantly(self, decoder: PartDecoder) -> Iterator[Changes]:
        """Decode the messages, numbered in the partition; reject those that do not decode."""
        number = 0
        for records in self._batches():
            if self.first_ordinal + number in self.session_starts:
                decoder.new_session()
            data, lsn = records.column("data"), lsns(records)
            try:
                changes = decoder.decode(data, lsn, first_index=number)
            except DecodeError:
                changes = decoder.decode(data, lsn, first_index=number, on_error="skip")
            yield changes
            number += len(records)
        yield decoder.decode([], last=True, first_index=number)

    def _letters(self, messages: Iterable[Rejected]) -> Iterator[Rejected]:
        """Yield the rejected messages of the range, with their ordinals."""
        for each in messages:
            is_repeated = each.commit_lsn is not None and each.commit_lsn <= each.after_lsn
            if is_repeated or not self.after <= each.after_lsn < self.until:
                continue
            if each.commit_time is None or self.times.has(each.commit_time.astype(np.int64)):
                yield replace(each, message_index=self.first_ordinal + each.message_index)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        store = open_store(self.uri, self.filesystem)
        planned = StoredMessages(self.segment, self.extents, self.encoding)
        return read_messages(store, planned, self.first_ordinal, self.messages)

    def _in_range(self, changes: Changes) -> Iterator[ChangeBatch]:
        for batch in changes:
            lsn = batch.commit_lsn
            others = (lsn <= self.after) | (lsn > self.until)
            if self.times != ALL_TIMES:
                others |= ~self.times.has(batch.commit_time.view(np.int64))
            if not others.any():
                yield batch
            elif not others.all():
                yield batch.without(others)


@dataclass(frozen=True, slots=True)
class LogPlan:
    """Partitions of a range of a log, for decoding.

    Attributes
    ----------
    partitions : list of LogPartition
        The partitions in the order of the log.
    changed : list of frozenset of int, or None
        For each partition, the OIDs of the relations of which it may have changes; None: of any.
    versions : tuple of RelationVersion
        Versions of relations that are valid before the range or declared in it, oldest first.
    after, until : int
        Range of commit LSNs.
    """

    partitions: list[LogPartition]
    changed: list[frozenset[int] | None]
    versions: tuple[RelationVersion, ...]
    after: int
    until: int


def with_types(options: DecoderOptions | None, types: tuple[UserType, ...]) -> DecoderOptions:
    """Return options with a registry that has a log's types after its own."""
    options = options or DecoderOptions()
    if not types:
        return options
    return replace(options, registry=registry_with(types, options.registry or default_registry))


def decode_batches(
    decoder: Any,
    batches: Iterable[pa.RecordBatch],
    segment: str,
    session_starts: Collection[int] = (),
) -> Iterator[tuple[Changes, int]]:
    """Decode record batches of a segment; yield the changes, with the first ordinal of each call.

    Sessions begin with the batches that have one of ``session_starts`` as first ordinal. A
    ``DecodeError`` has the message's ordinal in its context.
    """
    for records in batches:
        first = records.column("ordinal")[0].as_py()
        if first in session_starts:
            decoder.new_session()
        try:
            changes = decoder.decode(records.column("data"), lsns(records))
        except DecodeError as error:
            number = error.message_index or 0
            where = f"segment {segment}, ordinal {first + number}"
            context = f"{where}; {error.context}" if error.context else where
            raise error.at(number, context) from None
        yield changes, first
