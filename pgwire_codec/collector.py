"""What the open transactions did so far, and what of it was committed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pgwire_codec.carry import Position, RelationVersion
from pgwire_codec.columns import ChangeBatch, Decoding, Rejected, Source
from pgwire_codec.errors import DecodeError
from pgwire_codec.messages import Message
from pgwire_codec.transactions import Committed, Key


@dataclass(slots=True)
class Chunk:
    """Changes of one transaction that stand together in one input array."""

    source: Source
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
    """What a transaction did so far; logical messages with their number in it."""

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


class Collector:
    """The sink that holds changes until they commit, and gathers those that did."""

    def __init__(self, held: dict[Key, Held]) -> None:
        self.held = held
        self.emitted: list[tuple[Committed, Held]] = []
        self.committed: list[Committed] = []
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

    def drop(self, key: Key) -> None:
        self.held.pop(key, None)

    def truncate(self, key: Key, position: Position) -> None:
        if key in self.held:
            self.held[key].truncate(position)

    def rename(self, key: Key, new: Key) -> None:
        if key in self.held:
            self.held[new] = self.held.pop(key)

    def batches(self, decoding: Decoding) -> list[ChangeBatch]:
        """Gather what was emitted: one batch a Relation version and input array."""
        emitted = sorted(self.emitted, key=lambda each: each[0].commit_lsn)
        transactions = [committed for committed, _ in emitted]
        same: dict[int, RelationVersion] = {}  # by identity, so as to hash each but once
        equal: dict[RelationVersion, RelationVersion] = {}
        parts: dict[tuple[int, int], list[tuple[Chunk, RelationVersion, int]]] = {}
        for number, (_, held) in enumerate(emitted):
            for chunk in held.chunks:
                for oid, version in chunk.versions.items():
                    if id(version) not in same:
                        same[id(version)] = equal.setdefault(version, version)
                    version = same[id(version)]
                    part = chunk if len(chunk.versions) == 1 else chunk.keep(chunk.relation == oid)
                    if len(part.rows):
                        place = (id(chunk.source), id(version))
                        parts.setdefault(place, []).append((part, version, number))
        return [
            ChangeBatch(
                each[0][1],
                each[0][0].source,
                np.concatenate([chunk.rows for chunk, _, _ in each]),
                np.concatenate([chunk.seq for chunk, _, _ in each]),
                transactions,
                np.repeat(
                    np.array([number for _, _, number in each], np.int64),
                    [len(chunk.rows) for chunk, _, _ in each],
                ),
                decoding,
            )
            for each in parts.values()
        ]
