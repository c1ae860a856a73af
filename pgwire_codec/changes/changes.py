"""Result of one call of a decoder: batches of changes, transactions, and rejected messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.protocol.messages import Message
from pgwire_codec.transactions.committed import Transactions


@dataclass(frozen=True, slots=True)
class Changes:
    """Result of one call of ``Decoder.decode``. Iterating yields the batches.

    Attributes
    ----------
    batches : list of ChangeBatch
        Committed changes, one batch a Relation version and input array.
    transactions : Transactions
        The committed transactions.
    logical_messages : list of Message
        Logical decoding messages: transactional ones when their transaction committed, others
        when they came.
    rejected : list of Rejected
        Messages set aside, under ``on_error="skip"``.
    warnings : list of DecodeError
        Irregularities that were decoded all the same: tuples wider or narrower than their Relation.
    """

    batches: list[ChangeBatch]
    transactions: Transactions
    logical_messages: list[Message] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    warnings: list[DecodeError] = field(default_factory=list)

    def __iter__(self) -> Iterator[ChangeBatch]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)
