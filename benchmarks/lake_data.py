"""Data of the benchmark of a mirror: logs of lineitem, and of tables that change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import pgwire_codec as pgc
from benchmarks.spark_data import in_transactions, write_log
from pgwire_codec.bench import tables

_PIECE = 200_000  # rows of lineitem that are made at a time

_RELATION = pgc.Relation(
    None, 1, "public", "acct", "d",
    (
        pgc.RelationColumn(1, "id", 20, -1),
        pgc.RelationColumn(0, "balance", 20, -1),
        pgc.RelationColumn(0, "amount", 1700, tables.numeric(12, 2)),
        pgc.RelationColumn(0, "name", 25, -1),
        pgc.RelationColumn(0, "note", 25, -1),
    ),
)  # fmt: skip


class Changes:
    """Transactions of a table, each with a later LSN than those of all tables before it."""

    _lsns = itertools.count(1 << 20, 1 << 20)

    def __init__(self, rows: int, number: int = 0) -> None:
        self._relation = replace(_RELATION, oid=1 + number, name=f"acct{number or ''}")
        self._chance = np.random.default_rng(18)
        self._keys = np.arange(rows)
        self._next = rows

    def begin(self) -> list[bytes]:
        """Return the inserts of all rows, as a transaction."""
        return self._transaction([(b"I", int(key)) for key in self._keys])

    def add(self, count: int, shares: tuple[float, float, float]) -> list[bytes]:
        """Return a transaction of changes in any order."""
        updates, inserts, deletes = (round(count * share) for share in shares)
        chosen = self._chance.choice(len(self._keys), updates + deletes, replace=False)
        changed, gone = self._keys[chosen[:updates]], self._keys[chosen[updates:]]
        new = np.arange(self._next, self._next + inserts)
        self._next += inserts
        self._keys = np.append(np.delete(self._keys, chosen[updates:]), new)
        changes = [(b"U", int(key)) for key in changed] + [(b"I", int(key)) for key in new]
        changes += [(b"D", int(key)) for key in gone]
        order = self._chance.permutation(len(changes))
        return self._transaction([changes[place] for place in order])

    def _transaction(self, changes: list[tuple[bytes, int]]) -> list[bytes]:
        lsn = next(self._lsns)
        first, last = pgc.Begin(lsn, 0, 7), pgc.Commit(0, lsn, lsn + 8, 0)
        messages = [first, self._relation, *self._messages(changes, lsn >> 20), last]
        return [pgc.encode_message(message) for message in messages]

    def _messages(self, changes: list[tuple[bytes, int]], version: int) -> Iterator[Any]:
        oid = self._relation.oid
        for kind, key in changes:
            number = key * 31 + version
            text = (key, number, f"{number % 10**9}.25", f"name {key}", f"note {number} " * 4)
            values = tuple(str(value).encode() for value in text)
            if kind == b"D":
                old = pgc.TupleData(b"tnnnn", (values[0], None, None, None, None))
                yield pgc.Delete(None, oid, old, None)
            elif kind == b"I":
                yield pgc.Insert(None, oid, pgc.TupleData(b"ttttt", values))
            else:
                yield pgc.Update(None, oid, None, None, pgc.TupleData(b"ttttt", values))


def write_lineitem(path: Path, rows: int) -> None:
    """Write the inserts of rows, each with its own key, in transactions of eight."""

    def pieces() -> Iterator[pa.LargeBinaryArray]:
        for start in range(0, rows, _PIECE):
            made = tables.lineitem(min(_PIECE, rows - start))
            keys = pc.add(made.rows["l_orderkey"], start // 4)  # an order has four rows
            batch = made.rows.set_column(0, "l_orderkey", keys)
            messages = pa.array(pgc.encode_batch(made.relation, batch)).cast(pa.large_binary())
            yield in_transactions([] if start else [made.relation], messages, start // 8)

    write_log(pieces(), path)


def write(path: Path, transactions: Iterable[list[bytes]]) -> None:
    """Write transactions to the end of a log."""
    write_log((pa.array(messages, pa.large_binary()) for messages in transactions), path)
