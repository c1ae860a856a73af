"""Changes of the open transactions, held until they commit, and those that did."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.protocol.messages import Message
from pgwire_codec.transactions.carry import Position
from pgwire_codec.transactions.change_array import ChangeArray, Chunk
from pgwire_codec.transactions.committed import Committed, Transactions
from pgwire_codec.transactions.journal import Journal
from pgwire_codec.transactions.resolver import Key


@dataclass(slots=True)
class Held:
    """Changes of a transaction so far, and its logical messages with their number in it."""

    chunks: list[Chunk] = field(default_factory=list)
    messages: list[tuple[int, Message]] = field(default_factory=list)

    def copy(self) -> Held:
        return Held(list(self.chunks), list(self.messages))

    def keep(self, journal: Journal) -> None:
        self.chunks = journal.stack(self.chunks)
        self.messages = journal.stack(self.messages)
        journal.keep_fields(self)

    def truncate(self, position: Position) -> None:
        while self.chunks and self.chunks[-1].seq >= position.changes:
            self.chunks.pop()
        if self.chunks:
            self.chunks[-1] = self.chunks[-1].before(position.changes)
        while self.messages and self.messages[-1][0] >= position.messages:
            self.messages.pop()


class CommittedRun(NamedTuple):
    """Changes of many committed transactions of one input array.

    ``first_row`` is that of :class:`pgwire_codec.codec.runs.PlainTransactions`, and ``before`` has
    the first transaction's changes of earlier arrays.
    """

    transactions: Transactions
    changes: ChangeArray
    first_row: npt.NDArray[np.int64]
    before: list[Chunk]


class Collector:
    """Transaction listener that holds changes until they commit, and collects those that did."""

    def __init__(self, held: dict[Key, Held]) -> None:
        self.held = held
        #: Changes that are delivered, in order, with their transactions.
        self.emitted: list[tuple[Committed, Held] | CommittedRun] = []
        self.committed: list[Committed | Transactions] = []
        self.logical_messages: list[Message] = []
        self.rejected: list[Rejected] = []
        self.warnings: list[DecodeError] = []

    def of(self, key: Key) -> Held:
        return self.held.setdefault(key, Held())

    def take(self, key: Key) -> Held:
        """Remove and return what a transaction did."""
        return self.held.pop(key, None) or Held()

    def commit(self, key: Key, committed: Committed) -> None:
        self.committed.append(committed)
        self.emit(self.take(key), committed)

    def emit(self, held: Held, committed: Committed) -> None:
        self.emitted.append((committed, held))
        self.logical_messages += [message for _, message in held.messages]

    def emit_run(self, run: CommittedRun) -> None:
        """Take many committed transactions at once."""
        self.committed.append(run.transactions)
        self.emitted.append(run)

    def drop(self, key: Key) -> None:
        self.held.pop(key, None)

    def truncate(self, key: Key, position: Position) -> None:
        if key in self.held:
            self.held[key].truncate(position)

    def rename(self, key: Key, new: Key) -> None:
        if key in self.held:
            self.held[new] = self.held.pop(key)

    def transactions(self) -> tuple[Transactions, Transactions]:
        """Return the committed transactions in commit order, and those of ``emitted`` in its order.

        They are one object, unless changes are delivered before or after their commit.
        """
        committed = Transactions.collect(self.committed)
        emitted = [
            each.transactions if isinstance(each, CommittedRun) else each[0]
            for each in self.emitted
        ]
        if len(emitted) == len(self.committed) and all(map(is_, emitted, self.committed)):
            return committed, committed
        return committed, Transactions.collect(emitted)
