"""Messages in, committed changes out."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import ClassVar

import numpy as np

from pgwire_codec import _input
from pgwire_codec._codec import Codec
from pgwire_codec.carry import Carry
from pgwire_codec.changes import Changes, Rejected
from pgwire_codec.collector import Collector, Held
from pgwire_codec.columns import ChangeBatch, Decoding
from pgwire_codec.errors import OptionError
from pgwire_codec.messages import Relation
from pgwire_codec.planning import Outcome, PartPlan
from pgwire_codec.reader import Reader
from pgwire_codec.summary import check_on_error
from pgwire_codec.transactions import Key, Resolver
from pgwire_codec.types import TypeOptions, TypeRegistry
from pgwire_codec.types import registry as default_registry


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
        if not isinstance(atomic, bool):
            raise OptionError(f"atomic must be True or False, not {atomic!r}")
        if registry is not None and not isinstance(registry, TypeRegistry):
            raise OptionError(f"registry must be a TypeRegistry, not {type(registry).__name__}")
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
        was open. Nor is it when it begins with a Prepare that has no Begin Prepare, as PostgreSQL
        18 sends it for a transaction that wrote nothing, while a transaction was open: that is a
        protocol error.
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
        reader = Reader(self.codec, resolver, collector, atomic=self._atomic, skip=self._skip)
        base = 0
        for part in inputs:
            part_lsns = None if lsns is None else lsns[base : base + len(part)]
            reader.read(part, part_lsns, base)
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
        if not isinstance(part, PartPlan):
            raise TypeError(f"part must be a PartPlan, of plan().parts, not {type(part).__name__}")
        self._decoder = copy(decoder)
        self._decoder._atomic = True
        self._decoder._carry = part.carry.copy()
        self._decoder._held = {}
        self._outcomes = part.outcomes

    def new_session(self) -> None:
        """Say that the connection was made anew; see ``Decoder.new_session``."""
        self._decoder.new_session()

    def decode(self, messages: object, lsn: object = None, *, last: bool = False) -> Changes:
        """Decode the next messages of the part; parameters and errors as in ``Decoder.decode``.

        With the ``last`` messages (there may be none) come the changes of the transactions that
        the part leaves open and that commit behind it.
        """
        return self._decoder._decode(messages, lsn, self._outcomes if last else {})


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise OptionError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return value


def _one_of(name: str, value: str, *allowed: str) -> str:
    if value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise OptionError(f"{name} must be one of {words}, not {value!r}")
    return value
