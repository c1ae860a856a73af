"""Data of the benchmark of a mirror: logs of lineitem, and of tables that change."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import pgwire_codec as pgc
from benchmarks import tables
from benchmarks.encode import encode_rows
from benchmarks.spark_data import in_transactions, write_log
from pgwire_codec.demo.data import ShopData

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


_TEMPLATE = 1_000  # rows of each table of the shop that differ

_INT2, _FLOAT8, _INTEGERS, _TEXTS, _UUID, _JSONB = 21, 701, 1007, 1009, 2950, 3802
_TIER, _STATE = 99_001, 99_002  # enums

#: Columns of tables of the demo's shop: type OID, type modifier, and whether it is a key column.
_SHOP: dict[str, dict[str, tuple[int, ...]]] = {
    "customers": {
        "id": (tables.INT4, -1, True), "name": (tables.TEXT, -1), "email": (tables.VARCHAR, 84),
        "tier": (_TIER, -1), "is_active": (tables.BOOL, -1), "profile": (_JSONB, -1),
        "notes": (tables.TEXT, -1), "tags": (_TEXTS, -1), "birthday": (tables.DATE, -1),
        "created_at": (tables.TIMESTAMPTZ, -1),
    },
    "orders": {
        "id": (tables.INT8, -1, True), "customer_id": (tables.INT4, -1), "token": (_UUID, -1),
        "state": (_STATE, -1), "total": (tables.NUMERIC, tables.numeric(12, 2)),
        "placed_at": (tables.TIMESTAMPTZ, -1), "pick_up_at": (tables.TIMESTAMP, -1),
        "due_on": (tables.DATE, -1), "scores": (_INTEGERS, -1),
    },
    "order_lines": {
        "order_id": (tables.INT8, -1, True), "line": (_INT2, -1, True), "sku": (tables.BPCHAR, 12),
        "quantity": (tables.INT4, -1), "price": (tables.NUMERIC, tables.numeric(10, 2)),
        "weight": (tables.NUMERIC, -1), "is_gift": (tables.BOOL, -1),
    },
    "prices": {
        "sku": (tables.TEXT, -1, True), "price": (tables.NUMERIC, tables.numeric(10, 2)),
        "valid_from": (tables.TIMESTAMPTZ, -1), "remark": (tables.TEXT, -1),
    },
    "events": {
        "id": (tables.INT4, -1, True), "kind": (tables.TEXT, -1), "at": (tables.TIMESTAMPTZ, -1),
        "amount": (_FLOAT8, -1), "payload": (_JSONB, -1),
    },
}  # fmt: skip


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


def lineitem(rows: int) -> Iterator[tables.Table]:
    """Yield pieces of lineitem, whose rows have keys of their own."""
    for start in range(0, rows, _PIECE):
        made = tables.lineitem(min(_PIECE, rows - start))
        keys = pc.add(made.rows["l_orderkey"], start // 4)  # an order has four rows
        yield tables.Table(made.relation, made.rows.set_column(0, "l_orderkey", keys))


def write_lineitem(path: Path, rows: int) -> None:
    """Write the inserts of rows, each with its own key, in transactions of eight."""

    def pieces() -> Iterator[pa.LargeBinaryArray]:
        for number, piece in enumerate(lineitem(rows)):
            relations = [] if number else [piece.relation]
            yield in_transactions(relations, _inserts(piece), number * _PIECE // 8)

    write_log(pieces(), path)


def write_shop(path: Path, count: int, rows: int) -> None:
    """Write the inserts of tables, each as one of the demo's shop, with so many rows in all."""
    made = shop_tables(_TEMPLATE)

    def pieces() -> Iterator[pa.LargeBinaryArray]:
        first = 0
        for number, piece in zip(range(count), itertools.cycle(made), strict=False):
            of_table = range(number * rows // count, (number + 1) * rows // count)
            name = f"{piece.relation.name}_{number}"
            relation = replace(piece.relation, oid=tables.OID + number, name=name)
            inserts = _inserts(tables.Table(relation, _repeated(piece.rows, len(of_table))))
            yield in_transactions([relation], inserts, first)
            first += -(-len(of_table) // 8)

    write_log(pieces(), path)


def shop_tables(rows: int) -> list[tables.Table]:
    """Return tables of the demo's shop, with values as the server's text."""
    data = ShopData(1)
    made = {
        "customers": [data.customer(key) for key in range(rows)],
        "orders": [data.order(key, rows) for key in range(rows)],
        "order_lines": [line for key in range(rows) for line in data.order_lines(key)],
        "prices": [data.price(key) for key in range(rows)],
        "events": [data.event(key) for key in range(rows)],
    }
    return [
        tables.table(name, pa.table(dict(zip(_SHOP[name], columns, strict=True))), _SHOP[name])
        for name, lines in made.items()
        for columns in [[pa.array(map(_text, values)) for values in zip(*lines, strict=True)]]
    ]


def _inserts(table: tables.Table) -> pa.LargeBinaryArray:
    return encode_rows(table.relation, table.rows)


def _repeated(rows: pa.Table, count: int) -> pa.Table:
    """Return rows whose first column has numbers, as their keys, and the others values again."""
    taken = rows.take(pa.array(np.arange(count) % len(rows)))
    return taken.set_column(0, rows.column_names[0], pa.array(np.arange(count)).cast(pa.string()))


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, list):
        return "{" + ",".join(map(_element, value)) + "}"
    return str(value).replace("+00:00", "+00")


def _element(value: object) -> str:
    return "NULL" if value is None else json.dumps(str(value), ensure_ascii=False)


def write(path: Path, transactions: Iterable[list[bytes]]) -> None:
    """Write transactions to the end of a log."""
    write_log((pa.array(messages, pa.large_binary()) for messages in transactions), path)
