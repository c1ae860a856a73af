"""Changes of the open transactions, held until they commit, and those that did."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.tables import ScannedArray
from pgwire_codec.errors import DecodeError, Rejected
from pgwire_codec.protocol.messages import Message
from pgwire_codec.transactions.carry import Position, RelationVersion
from pgwire_codec.transactions.committed import Committed, Transactions
from pgwire_codec.transactions.resolver import Key


@dataclass(slots=True)
class Chunk:
    """Changes of one input array: of one transaction, or of a run of plain transactions."""

    source: ScannedArray
    rows: npt.NDArray[np.int64]  # message indexes
    relation: npt.NDArray[np.uint32]
    seq: npt.NDArray[np.int64]
    versions: dict[int, RelationVersion]

    def keep(self, mask: npt.NDArray[np.bool_]) -> Chunk:
        return Chunk(
            self.source, self.rows[mask], self.relation[mask], self.seq[mask], self.versions
        )


@dataclass(slots=True)
class Held:
    """Changes of a transaction so far, and its logical messages with their number in it."""

    chunks: list[Chunk] = field(default_factory=list)
    messages: list[tuple[int, Message]] = field(default_factory=list)

    def copy(self) -> Held:
        return Held(list(self.chunks), list(self.messages))

    def truncate(self, position: Position) -> None:
        while self.chunks and self.chunks[-1].seq[0] >= position.changes:
            self.chunks.pop()
        if self.chunks and self.chunks[-1].seq[-1] >= position.changes:
            last = self.chunks[-1]
            self.chunks[-1] = last.keep(last.seq < position.changes)
        self.messages = [each for each in self.messages if each[0] < position.messages]


@dataclass(frozen=True, slots=True)
class Emitted:
    """Changes that are delivered: chunks, and for each the transaction of its rows.

    ``numbers`` index ``transactions``: one number for a whole chunk, or one a row.
    """

    transactions: Transactions
    chunks: list[tuple[Chunk, npt.NDArray[np.int64]]]


class Collector:
    """Transaction listener that holds changes until they commit, and collects those that did."""

    def __init__(self, held: dict[Key, Held]) -> None:
        self.held = held
        self.emitted: list[tuple[Committed, Held]] = []
        self.runs: list[Emitted] = []
        self.committed: list[Committed | Transactions] = []
        self.logical_messages: list[Message] = []
        self.rejected: list[Rejected] = []
        self.warnings: list[DecodeError] = []

    def of(self, key: Key) -> Held:
        return self.held.setdefault(key, Held())

    def commit(self, key: Key, committed: Committed) -> None:
        self.committed.append(committed)
        self.emit(self.held.pop(key, Held()), committed)

    def emit(self, held: Held, committed: Committed) -> None:
        self.emitted.append((committed, held))
        self.logical_messages += [message for _, message in held.messages]

    def emit_run(
        self, transactions: Transactions, chunk: Chunk, numbers: npt.NDArray[np.int64]
    ) -> None:
        """Take many committed transactions at once; ``numbers`` has the transaction of each row."""
        self.committed.append(transactions)
        self.runs.append(Emitted(transactions, [(chunk, numbers)]))

    def drop(self, key: Key) -> None:
        self.held.pop(key, None)

    def truncate(self, key: Key, position: Position) -> None:
        if key in self.held:
            self.held[key].truncate(position)

    def rename(self, key: Key, new: Key) -> None:
        if key in self.held:
            self.held[new] = self.held.pop(key)

    def transactions(self) -> Transactions:
        """Return the committed transactions, in commit order."""
        pieces: list[Transactions] = []
        singly: list[Committed] = []
        for each in self.committed:
            if isinstance(each, Committed):
                singly.append(each)
            else:
                pieces += [Transactions.of(singly), each]
                singly = []
        return Transactions.concatenate([*pieces, Transactions.of(singly)])
