"""Tables whose changes are decoded: their columns in PostgreSQL, and their rows.

All of it is generated, and the same in each run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pgwire_codec as pgc

BOOL, INT8, INT4, TEXT, BPCHAR, VARCHAR = 16, 20, 23, 25, 1042, 1043
DATE, TIMESTAMPTZ, NUMERIC = 1082, 1184, 1700
WIDE_COLUMNS = 300


@dataclass(frozen=True)
class Size:
    """Number of rows of each table, and the largest number in the benchmarks of scaling."""

    scale_factor: float  # of TPC-H: 0.1 is 600,000 rows of lineitem
    accounts: int
    wide: int
    documents: int
    max_rows: int


SIZES = {
    "tiny": Size(0.001, 500, 20, 20, 10_000),
    "quick": Size(0.02, 50_000, 1_000, 1_000, 1_000_000),
    "full": Size(0.1, 300_000, 10_000, 2_000, 10_000_000),
}


@dataclass(frozen=True)
class Table:
    """A relation, and rows as Arrow columns."""

    relation: pgc.Relation
    rows: pa.Table


def lineitem(size: Size) -> Table:
    rows = _pad(_tpch("lineitem", size), l_shipinstruct=25, l_shipmode=10)
    return _table(
        "lineitem",
        rows,
        {
            "l_orderkey": (INT8, -1, True),
            "l_partkey": (INT4, -1),
            "l_suppkey": (INT4, -1),
            "l_linenumber": (INT4, -1, True),
            "l_quantity": (NUMERIC, _numeric(15, 2)),
            "l_extendedprice": (NUMERIC, _numeric(15, 2)),
            "l_discount": (NUMERIC, _numeric(15, 2)),
            "l_tax": (NUMERIC, _numeric(15, 2)),
            "l_returnflag": (BPCHAR, 1 + 4),
            "l_linestatus": (BPCHAR, 1 + 4),
            "l_shipdate": (DATE, -1),
            "l_commitdate": (DATE, -1),
            "l_receiptdate": (DATE, -1),
            "l_shipinstruct": (BPCHAR, 25 + 4),
            "l_shipmode": (BPCHAR, 10 + 4),
            "l_comment": (VARCHAR, 44 + 4),
        },
    )


def orders(size: Size) -> Table:
    return _table(
        "orders",
        _pad(_tpch("orders", size), o_orderpriority=15, o_clerk=15),
        {
            "o_orderkey": (INT8, -1, True),
            "o_custkey": (INT4, -1),
            "o_orderstatus": (BPCHAR, 1 + 4),
            "o_totalprice": (NUMERIC, _numeric(15, 2)),
            "o_orderdate": (DATE, -1),
            "o_orderpriority": (BPCHAR, 15 + 4),
            "o_clerk": (BPCHAR, 15 + 4),
            "o_shippriority": (INT4, -1),
            "o_comment": (VARCHAR, 79 + 4),
        },
    )


def accounts(size: Size) -> Table:
    """Return pgbench's narrow table, with a filler of 84 blanks."""
    count = size.accounts
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "aid": pa.array(np.arange(1, count + 1, dtype=np.int32)),
            "bid": pa.array(np.arange(count, dtype=np.int32) // 100_000 + 1),
            "abalance": pa.array(random.integers(-5000, 5001, count, dtype=np.int32)),
            "filler": pa.repeat(" " * 84, count),
        }
    )
    return _table(
        "pgbench_accounts",
        rows,
        {
            "aid": (INT4, -1, True),
            "bid": (INT4, -1),
            "abalance": (INT4, -1),
            "filler": (BPCHAR, 84 + 4),
        },
    )


def wide(size: Size) -> Table:
    """Return 300 columns of six types; in every third column, one row in ten is NULL."""
    count = size.wide
    random = np.random.default_rng(2)
    words = pa.array([f"word {number:x}" for number in random.integers(0, 1 << 40, 1000)])
    # Type, modifier and rows of each of six columns in turn.
    makers: list[tuple[int, int, Callable[[], pa.Array]]] = [
        (INT4, -1, lambda: pa.array(random.integers(-(10**6), 10**6, count, dtype=np.int32))),
        (INT8, -1, lambda: pa.array(random.integers(0, 10**12, count))),
        (VARCHAR, 20 + 4, lambda: words.take(pa.array(random.integers(0, len(words), count)))),
        (NUMERIC, _numeric(12, 2), lambda: _cents(random.integers(0, 10**9, count))),
        (TIMESTAMPTZ, -1, lambda: _times(random.integers(0, 10**15, count))),
        (BOOL, -1, lambda: pa.array(random.integers(0, 2, count).astype(np.bool_))),
    ]
    columns, kinds = {}, {}
    for number in range(WIDE_COLUMNS):
        oid, modifier, make = makers[number % len(makers)]
        values = make()
        if number % 3 == 2:
            values = pc.if_else(pa.array(random.random(count) < 0.1), None, values)
        columns[f"c{number}"] = values
        kinds[f"c{number}"] = (oid, modifier, number == 0)
    return _table("wide", pa.table(columns), kinds)


def documents(size: Size) -> Table:
    """Return a table with large values (TOAST): texts of 2 to 32 kB."""
    count = size.documents
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
            "changed": _times(random.integers(0, 10**15, count)),
        }
    )
    return _table(
        "documents",
        rows,
        {
            "id": (INT8, -1, True),
            "title": (TEXT, -1),
            "body": (TEXT, -1),
            "views": (INT4, -1),
            "changed": (TIMESTAMPTZ, -1),
        },
    )


def _table(name: str, rows: pa.Table, kinds: dict[str, tuple[int, ...]]) -> Table:
    columns = tuple(
        pgc.RelationColumn(int(any(key)), column, oid, modifier)
        for column, (oid, modifier, *key) in kinds.items()
    )
    return Table(pgc.Relation(None, 16384, "public", name, "d", columns), rows)


def _numeric(precision: int, scale: int) -> int:
    """Return the type modifier of numeric(precision, scale)."""
    return (precision << 16 | scale) + 4


def _cents(values: np.ndarray) -> pa.Array:
    """Return hundredths as decimals."""
    words = np.zeros((len(values), 2), np.int64)
    words[:, 0] = values
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(values), [None, pa.py_buffer(words)])


def _times(microseconds: np.ndarray) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))


def _pad(rows: pa.Table, **widths: int) -> pa.Table:
    """Pad columns with blanks, as the server stores char(n)."""
    for name, width in widths.items():
        column = pc.utf8_rpad(rows[name], width)
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _tpch(name: str, size: Size) -> pa.Table:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = shutil.which("tpchgen-cli", path=beside)
    if command is None:
        raise RuntimeError("missing tpchgen-cli: pip install 'pgwire-codec[bench]'")
    with tempfile.TemporaryDirectory() as directory:
        options = ["--scale-factor", str(size.scale_factor), "--tables", name, "--quiet"]
        subprocess.run(
            [command, "parquet", *options, "--output-dir", directory], check=True, timeout=600
        )
        rows = pq.read_table(Path(directory, f"{name}.parquet"))
    plain = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(plain))
