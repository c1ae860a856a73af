"""Generated tables, the same in each run: their Relation messages and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.protocol.messages import Relation, RelationColumn

BOOL, INT8, INT4, TEXT, BPCHAR, VARCHAR = 16, 20, 23, 25, 1042, 1043
DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 1082, 1114, 1184, 1700
OID: Final = 16384

_DAYS: Final = (8035, 10591)  # 1992-01-01 to 1998-12-31
_WORDS: Final = (
    "accounts", "after", "against", "along", "asymptotes", "blithely", "bold", "carefully",
    "deposits",
    "even", "excuses", "express", "final", "foxes", "furiously", "ideas", "instructions", "ironic",
    "packages", "pending", "pinto beans", "quickly", "regular", "requests", "slyly", "special",
    "theodolites",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A relation, and rows as Arrow columns."""

    relation: Relation
    rows: pa.Table


def table(name: str, rows: pa.Table, kinds: Mapping[str, tuple[int, ...]], oid: int = OID) -> Table:
    """Return a table; ``kinds`` has type OID, type modifier and, of a key column, True."""
    columns = tuple(
        RelationColumn(int(any(key)), column, type_oid, modifier)
        for column, (type_oid, modifier, *key) in kinds.items()
    )
    return Table(Relation(None, oid, "public", name, "d", columns), rows)


def numeric(precision: int, scale: int) -> int:
    """Return the type modifier of numeric(precision, scale)."""
    return (precision << 16 | scale) + 4


#: The columns of TPC-H's lineitem: type OID, type modifier, and whether it is a key column.
LINEITEM: Final[dict[str, tuple[int, ...]]] = {
    "l_orderkey": (INT8, -1, True),
    "l_partkey": (INT4, -1),
    "l_suppkey": (INT4, -1),
    "l_linenumber": (INT4, -1, True),
    "l_quantity": (NUMERIC, numeric(15, 2)),
    "l_extendedprice": (NUMERIC, numeric(15, 2)),
    "l_discount": (NUMERIC, numeric(15, 2)),
    "l_tax": (NUMERIC, numeric(15, 2)),
    "l_returnflag": (BPCHAR, 1 + 4),
    "l_linestatus": (BPCHAR, 1 + 4),
    "l_shipdate": (DATE, -1),
    "l_commitdate": (DATE, -1),
    "l_receiptdate": (DATE, -1),
    "l_shipinstruct": (BPCHAR, 25 + 4),
    "l_shipmode": (BPCHAR, 10 + 4),
    "l_comment": (VARCHAR, 44 + 4),
}


def lineitem(count: int) -> Table:
    """Return rows with the types, lengths and distributions of TPC-H's lineitem."""
    random = np.random.default_rng(0)

    def integers(low: int, high: int) -> npt.NDArray[np.int64]:
        return random.integers(low, high, count)

    def chosen(values: list[str]) -> pa.Array:
        return pa.array(values).take(pa.array(integers(0, len(values))))

    shipped = integers(*_DAYS).astype(np.int32)
    words = [
        " ".join(random.choice(_WORDS, 8))[start : start + length]
        for start, length in zip(integers(0, 9)[:1000], integers(10, 44)[:1000], strict=True)
    ]
    columns = {
        "l_orderkey": np.arange(count) // 4 + 1,
        "l_partkey": integers(1, 200_000).astype(np.int32),
        "l_suppkey": integers(1, 10_000).astype(np.int32),
        "l_linenumber": (np.arange(count) % 4 + 1).astype(np.int32),
        "l_quantity": cents(100 * integers(1, 51)),
        "l_extendedprice": cents(integers(90_000, 10_500_000)),
        "l_discount": cents(integers(0, 11)),
        "l_tax": cents(integers(0, 9)),
        "l_returnflag": chosen(["A", "N", "R"]),
        "l_linestatus": chosen(["F", "O"]),
        "l_shipdate": pa.array(shipped).cast(pa.date32()),
        "l_commitdate": pa.array(shipped + np.int32(30)).cast(pa.date32()),
        "l_receiptdate": pa.array(shipped + np.int32(15)).cast(pa.date32()),
        "l_shipinstruct": chosen(
            [f"{each:25}" for each in ("COLLECT COD", "DELIVER IN PERSON", "NONE")]
        ),
        "l_shipmode": chosen([f"{each:10}" for each in ("AIR", "MAIL", "RAIL", "SHIP", "TRUCK")]),
        "l_comment": chosen(words),
    }
    return table("lineitem", pa.table(columns), LINEITEM)


def accounts(count: int) -> Table:
    """Return pgbench's accounts, with a filler of 84 blanks."""
    rows = _keys("aid", count, bid=100_000) | {"abalance": _balances(1, count)}
    kinds = {"aid": (INT4, -1, True), "bid": (INT4, -1), "abalance": (INT4, -1)}
    return _filled("pgbench_accounts", rows, kinds, 84, OID)


def tellers(count: int) -> Table:
    """Return pgbench's tellers, with a filler of 84 blanks."""
    rows = _keys("tid", count, bid=10) | {"tbalance": _balances(2, count)}
    kinds = {"tid": (INT4, -1, True), "bid": (INT4, -1), "tbalance": (INT4, -1)}
    return _filled("pgbench_tellers", rows, kinds, 84, OID + 1)


def branches(count: int) -> Table:
    """Return pgbench's branches, with a filler of 88 blanks."""
    rows = _keys("bid", count) | {"bbalance": _balances(3, count)}
    kinds = {"bid": (INT4, -1, True), "bbalance": (INT4, -1)}
    return _filled("pgbench_branches", rows, kinds, 88, OID + 2)


def history(count: int) -> Table:
    """Return pgbench's history, which has no key; its filler is NULL."""
    rows = {
        **_keys("tid", count, bid=10, aid=1),
        "delta": _balances(4, count),
        "mtime": times(np.arange(count) * 1_000 + 10**15).cast(pa.timestamp("us")),
        "filler": pa.nulls(count, pa.string()),
    }
    kinds = {
        **dict.fromkeys(("tid", "bid", "aid", "delta"), (INT4, -1)),
        "mtime": (TIMESTAMP, -1),
        "filler": (BPCHAR, 22 + 4),
    }
    return table("pgbench_history", pa.table(rows), kinds, OID + 3)


def documents(count: int) -> Table:
    """Return a table with large values (TOAST): texts of 2 to 32 kB."""
    random = np.random.default_rng(3)
    letters = np.frombuffer(b"etaoin shrdlu cmfwyp", np.uint8)
    bodies = pa.array(
        letters[random.integers(0, len(letters), length)].tobytes().decode()
        for length in random.integers(2_000, 32_000, 64)
    )
    rows = pa.table(
        {
            "id": pa.array(np.arange(count)),
            "title": pc.utf8_slice_codeunits(bodies, 0, 40).take(
                pa.array(random.integers(0, len(bodies), count))
            ),
            "body": bodies.take(pa.array(random.integers(0, len(bodies), count))),
            "views": pa.array(random.integers(0, 10**6, count, dtype=np.int32)),
            "changed": times(random.integers(0, 10**15, count)),
        }
    )
    kinds = {
        "id": (INT8, -1, True),
        "title": (TEXT, -1),
        "body": (TEXT, -1),
        "views": (INT4, -1),
        "changed": (TIMESTAMPTZ, -1),
    }
    return table("documents", rows, kinds)


def cents(values: npt.NDArray[np.int64]) -> pa.Array:
    """Return hundredths as decimals."""
    words = np.zeros((len(values), 2), np.int64)
    words[:, 0] = values
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(values), [None, pa.py_buffer(words)])


def times(microseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Return times with time zone, of microseconds since 1970."""
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))


def _keys(key: str, count: int, **per: int) -> dict[str, Any]:
    """Return a key from 1 on, and columns that go up by one every so many rows."""
    keys = {name: np.arange(count, dtype=np.int32) // rows + 1 for name, rows in per.items()}
    return {key: np.arange(1, count + 1, dtype=np.int32), **keys}


def _balances(seed: int, count: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(seed).integers(-5000, 5001, count, dtype=np.int32)


def _filled(
    name: str, rows: dict[str, Any], kinds: dict[str, tuple[int, ...]], width: int, oid: int
) -> Table:
    """Return a table with a filler of blanks as its last column."""
    count = len(next(iter(rows.values())))
    filled = {**rows, "filler": pa.repeat(" " * width, count)}
    return table(name, pa.table(filled), {**kinds, "filler": (BPCHAR, width + 4)}, oid)
