"""Messages in, committed changes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.changes import Changes
from pgwire_codec.changes.column import Decoding
from pgwire_codec.changes.gather import gather
from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.message_array import Messages, to_lsns, to_message_arrays
from pgwire_codec.errors import OptionError, Rejected
from pgwire_codec.format import format_count
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import Carry
from pgwire_codec.transactions.collector import Collector, Held
from pgwire_codec.transactions.journal import Journal
from pgwire_codec.transactions.reader import Reader
from pgwire_codec.transactions.resolver import Key, Resolver
from pgwire_codec.types import ArrowTypes, TypeRegistry

if TYPE_CHECKING:
    from pgwire_codec.transactions.plan import Outcome, PartPlan

__all__ = ["BaseDecoder", "PartDecoder"]


def __dir__() -> list[str]:
    return __all__


_DEFAULTS = DecoderOptions()

R = TypeVar("R")


@dataclass(slots=True)
class SessionState:
    """State of a decoder between two calls.

    Attributes
    ----------
    carry : Carry
        Relations and open transactions.
    held : dict of Key to Held
        Changes of the open transactions.
    """

    carry: Carry = field(default_factory=Carry)
    held: dict[Key, Held] = field(default_factory=dict)
    _journal: Journal = field(default_factory=Journal)

    def copy(self) -> SessionState:
        held = {key: each.copy() for key, each in self.held.items()}
        return SessionState(self.carry.copy(), held)

    def begin(self) -> None:
        """Begin a new connection: see ``Decoder.new_session``."""
        self.change(lambda: Resolver(self.carry, Collector(self.held)).new_session())

    def change(self, action: Callable[[], R]) -> R:
        """Return the result of an action that changes the state; undo its changes if it raises."""
        self._journal.roll_back()  # nothing, unless an earlier roll-back was interrupted
        try:
            self.held = self._journal.entries(self.held)
            self._journal.keep(self.carry)
            result = action()
            self._journal.commit()
        except BaseException:
            self._journal.roll_back()
            raise
        return result


def decode_messages(
    codec: Codec,
    options: DecoderOptions,
    session: SessionState,
    messages: object,
    lsn: object,
    outcomes: Mapping[Key, Outcome],
    first_index: int = 0,
) -> Changes:
    """Decode the next messages of a session, and return the changes.

    ``outcomes`` are those of the transactions that the messages leave open. ``first_index`` is the
    index of the first message. Raises ``DecodeError``; then the session is as it was.
    """
    arrays = to_message_arrays(messages, codec)
    lsns = to_lsns(lsn, sum(len(array) for array in arrays))
    return session.change(
        lambda: _decode(codec, options, session, arrays, lsns, outcomes, first_index)
    )


def _decode(
    codec: Codec,
    options: DecoderOptions,
    session: SessionState,
    arrays: list[Messages],
    lsns: npt.NDArray[np.uint64] | None,
    outcomes: Mapping[Key, Outcome],
    first_index: int,
) -> Changes:
    collector = Collector(session.held)
    skip = options.on_error == "skip"
    reader = Reader(
        codec,
        Resolver(session.carry, collector),
        collector,
        atomic=options.atomic,
        skip=skip,
        threads=options.threads,
    )
    base = 0
    for array in arrays:
        known = None if lsns is None else lsns[base : base + len(array)]
        reader.read(array, known, first_index + base)
        base += len(array)
    for key, outcome in outcomes.items():
        held = collector.held.pop(key, None)
        if held is not None and outcome.committed is not None:
            if outcome.before is not None:
                held.truncate(outcome.before)
            collector.emit(held, outcome.committed)
    return _changes(collector, Decoding.of(codec, options), skip=skip)


def _changes(collector: Collector, decoding: Decoding, *, skip: bool) -> Changes:
    committed, emitted = collector.transactions()
    batches = gather(collector.emitted, emitted, decoding)
    if skip:
        sound = [_without_rejected(batch, collector) for batch in batches]
        batches = [batch for batch in sound if len(batch)]
    return Changes(
        batches,
        committed,
        collector.logical_messages,
        sorted(collector.rejected, key=lambda each: each.message_index),
        sorted(collector.warnings, key=lambda each: each.message_index or 0),
    )


def _without_rejected(batch: ChangeBatch, collector: Collector) -> ChangeBatch:
    """Reject the rows that have a value which does not decode."""
    errors = batch.errors()
    if not errors:
        return batch
    for row, error in errors.items():
        commit_lsn = int(batch.commit_lsn[row])
        collector.rejected.append(
            Rejected(
                batch.message_index(row),
                batch.message(row),
                error,
                relation_oid=batch.relation.oid,
                xid=int(batch.xid[row]),
                commit_lsn=commit_lsn,
                commit_time=batch.commit_time[row],
                lsn=None if batch.lsn is None else int(batch.lsn[row]),
                after_lsn=commit_lsn - 1,
            )
        )
    bad = np.zeros(len(batch), np.bool_)
    bad[list(errors)] = True
    return batch.without(bad)


class _Stateful:
    """Object with a session, of which each copy has its own."""

    _session: SessionState

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": self._session.copy()}


class BaseDecoder(_Stateful):
    """Decode a stream of pgoutput messages into the changes of committed transactions.

    One decoder serves one stream (one slot, or one log), in order; it must not be shared between
    threads.

    Parameters
    ----------
    options : DecoderOptions, optional
        All options as one value, in place of the other parameters.
    atomic, types, numeric, intervals, strings, before, unrepresentable, on_error
    arrow_types, threads, registry
        As the attributes of :class:`DecoderOptions`.

    Raises
    ------
    OptionError
        If an option has an invalid value, two contradict each other, or ``options`` is passed with
        another parameter.
    """

    codec: ClassVar[Codec]  # the implementation, which a subclass names

    def __init__(
        self,
        *,
        options: DecoderOptions | None = None,
        atomic: bool = _DEFAULTS.atomic,
        types: str = _DEFAULTS.types,
        numeric: str = _DEFAULTS.numeric,
        intervals: str = _DEFAULTS.intervals,
        strings: str = _DEFAULTS.strings,
        before: str = _DEFAULTS.before,
        unrepresentable: str = _DEFAULTS.unrepresentable,
        on_error: str = _DEFAULTS.on_error,
        arrow_types: ArrowTypes = _DEFAULTS.arrow_types,
        threads: int = _DEFAULTS.threads,
        registry: TypeRegistry | None = _DEFAULTS.registry,
    ) -> None:
        keywords = DecoderOptions(
            atomic=atomic,
            types=types,
            numeric=numeric,
            intervals=intervals,
            strings=strings,
            before=before,
            unrepresentable=unrepresentable,
            on_error=on_error,
            arrow_types=arrow_types,
            threads=threads,
            registry=registry,
        )
        if not isinstance(options, (DecoderOptions, type(None))):
            raise OptionError(f"options must be DecoderOptions, not {type(options).__name__}")
        if options is not None and keywords != _DEFAULTS:
            raise OptionError(
                "options= excludes the other parameters",
                hint="Change some of them with dataclasses.replace(options, ...).",
            )
        self.options: DecoderOptions = keywords if options is None else options
        self._session = SessionState()

    def __repr__(self) -> str:
        relations = format_count(len(self.relations), "relation")
        pending = format_count(len(self.pending), "open transaction")
        return f"<Decoder: {relations}, {pending}>"

    @property
    def relations(self) -> Mapping[int, Relation]:
        """The Relations that hold for every transaction, by OID."""
        relations = self._session.carry.scope.relations
        return {oid: version.relation for oid, (_, version) in relations.items()}

    @property
    def pending(self) -> list[int]:
        """IDs of the transactions begun and not yet committed or rolled back, ascending."""
        return self._session.carry.pending

    @property
    def carry(self) -> Carry:
        """A copy of the state after the last message."""
        return self._session.carry.copy()

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
            For the first message that does not decode; the decoder is as it was before the call.
        """
        return decode_messages(self.codec, self.options, self._session, messages, lsn, {})

    def new_session(self) -> None:
        """Begin a new connection, whose first message is the next one.

        The server then sends again what was not confirmed. Transactions that the old session left
        unfinished are dropped, since they come again whole; those that were delivered are not
        delivered twice. Without this call a new session is recognised by its first Begin, Begin
        Prepare or Stream Start, but not when it begins with a logical message while a stream block
        was open. Nor is it when it begins with a Prepare that has no Begin Prepare, as PostgreSQL
        18 sends it for a transaction that wrote nothing, while a transaction was open: that is a
        protocol error.
        """
        self._session.begin()

    def for_part(self, part: PartPlan) -> PartDecoder:
        """Return a decoder of one part of a log, by its plan from :func:`pgwire_codec.plan`.

        It has this decoder's options; this decoder's own stream is not touched.
        """
        return PartDecoder(self.codec, self.options, part)

    def decode_part(self, messages: object, part: PartPlan, lsn: object = None) -> Changes:
        """Decode one part of a log at once; see :class:`PartDecoder`."""
        return self.for_part(part).decode(messages, lsn, last=True)


class PartDecoder(_Stateful):
    """Decode one part of a log: the same changes as in a serial pass, without the other parts.

    Changes of a transaction come with the part that contains them, if by its plan the
    transaction commits; ``Changes.transactions`` has the transactions whose commit is in this part.
    """

    def __init__(self, codec: Codec, options: DecoderOptions, part: PartPlan) -> None:
        from pgwire_codec.transactions.plan import PartPlan

        if not isinstance(part, PartPlan):
            raise TypeError(f"part must be a PartPlan, of plan().parts, not {type(part).__name__}")
        self._codec = codec
        self._options = replace(options, atomic=True)
        self._session = SessionState(part.carry.copy())
        self._outcomes = part.outcomes

    def new_session(self) -> None:
        """Begin a new connection; see ``Decoder.new_session``."""
        self._session.begin()

    def decode(
        self,
        messages: object,
        lsn: object = None,
        *,
        last: bool = False,
        first_index: int = 0,
        on_error: str | None = None,
    ) -> Changes:
        """Decode the next messages of the part; parameters and errors as in ``Decoder.decode``.

        With the ``last`` messages (there may be none) come the changes of the transactions that
        the part leaves open and that commit in a later part. ``first_index`` is the index of the
        first message, in errors and in ``Changes.rejected``. ``on_error`` replaces the option.
        """
        outcomes = self._outcomes if last else {}
        options = self._options if on_error is None else replace(self._options, on_error=on_error)
        return decode_messages(
            self._codec, options, self._session, messages, lsn, outcomes, first_index
        )
