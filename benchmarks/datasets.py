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

from benchmarks import tables
from benchmarks.tables import (
    BOOL,
    BPCHAR,
    DATE,
    INT4,
    INT8,
    LINEITEM,
    NUMERIC,
    TIMESTAMPTZ,
    VARCHAR,
    Table,
    cents,
    numeric,
    table,
    times,
)

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


def lineitem(size: Size) -> Table:
    rows = _pad(_tpch("lineitem", size), l_shipinstruct=25, l_shipmode=10)
    return table("lineitem", rows, LINEITEM)


def accounts(size: Size) -> Table:
    return tables.accounts(size.accounts)


def documents(size: Size) -> Table:
    return tables.documents(size.documents)


def orders(size: Size) -> Table:
    return table(
        "orders",
        _pad(_tpch("orders", size), o_orderpriority=15, o_clerk=15),
        {
            "o_orderkey": (INT8, -1, True),
            "o_custkey": (INT4, -1),
            "o_orderstatus": (BPCHAR, 1 + 4),
            "o_totalprice": (NUMERIC, numeric(15, 2)),
            "o_orderdate": (DATE, -1),
            "o_orderpriority": (BPCHAR, 15 + 4),
            "o_clerk": (BPCHAR, 15 + 4),
            "o_shippriority": (INT4, -1),
            "o_comment": (VARCHAR, 79 + 4),
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
        (NUMERIC, numeric(12, 2), lambda: cents(random.integers(0, 10**9, count))),
        (TIMESTAMPTZ, -1, lambda: times(random.integers(0, 10**15, count))),
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
    return table("wide", pa.table(columns), kinds)


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
