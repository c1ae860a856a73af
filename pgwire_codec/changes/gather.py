"""Committed changes gathered into batches: one for each Relation version and input array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.column import Decoding
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.transactions.collector import Chunk, Collector, Emitted
from pgwire_codec.transactions.committed import Transactions


def gather(collector: Collector, decoding: Decoding) -> list[ChangeBatch]:
    """Return the batches of the changes that a collector emitted."""
    singly = Emitted(
        Transactions.of([committed for committed, _ in collector.emitted]),
        [
            (chunk, np.array([number], np.int64))
            for number, (_, held) in enumerate(collector.emitted)
            for chunk in held.chunks
        ],
    )
    everything = [singly, *collector.runs]
    transactions = Transactions.concatenate([each.transactions for each in everything])
    first = np.cumsum([0, *(len(each.transactions) for each in everything)])
    gathered = _Gathered()
    for each, before in zip(everything, first.tolist(), strict=False):
        for chunk, numbers in each.chunks:
            gathered.add(chunk, numbers + before)
    return gathered.batches(transactions, decoding)


class _Gathered:
    """Chunks by input array and Relation version."""

    def __init__(self) -> None:
        self._same: dict[int, RelationVersion] = {}  # by identity, so as to hash each but once
        self._equal: dict[RelationVersion, RelationVersion] = {}
        self._parts: dict[tuple[int, int], list[tuple[Chunk, npt.NDArray[np.int64]]]] = {}

    def add(self, chunk: Chunk, numbers: npt.NDArray[np.int64]) -> None:
        numbers = np.broadcast_to(numbers, chunk.rows.shape)
        for oid, version in chunk.versions.items():
            if id(version) not in self._same:
                self._same[id(version)] = self._equal.setdefault(version, version)
            place = (id(chunk.source), id(self._same[id(version)]))
            if len(chunk.versions) == 1:
                part = (chunk, numbers)
            else:
                mask = chunk.relation == oid
                part = (chunk.keep(mask), numbers[mask])
            if len(part[0].rows):
                self._parts.setdefault(place, []).append(part)

    def batches(self, transactions: Transactions, decoding: Decoding) -> list[ChangeBatch]:
        batches = []
        versions = {id(version): version for version in self._equal}
        for (_, version), parts in self._parts.items():
            number = np.concatenate([numbers for _, numbers in parts])
            order = _commit_order(transactions.commit_lsn[number])
            batches.append(
                ChangeBatch(
                    versions[version],
                    parts[0][0].source,
                    np.concatenate([chunk.rows for chunk, _ in parts])[order],
                    np.concatenate([chunk.seq for chunk, _ in parts])[order],
                    transactions,
                    number[order],
                    decoding,
                )
            )
        return batches


def _commit_order(lsn: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64] | slice:
    """Return the order that sorts rows by commit; those of a transaction are in order already."""
    if bool(np.all(lsn[:-1] <= lsn[1:])):
        return slice(None)
    return np.argsort(lsn, kind="stable")
