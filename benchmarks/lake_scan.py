"""Rows of Delta tables by delta-rs, and the seconds in which polars and DuckDB read a table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks.peers.programs import NotMeasuredError

ROUNDS = 5

_ROOT = Path(__file__).parents[1]

#: Columns of the table of ``lake_data.Changes``.
_NUMBERS, _TEXTS = ("id", "balance", "amount"), ("name", "note")


def query(path: Path, select: str) -> pa.Table:
    """Return the result of ``SELECT ... FROM t`` for a Delta table."""
    return pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(f"{select} FROM t"))


def write_at_once(path: Path, target: Path) -> None:
    """Write the rows of a Delta table to a new one."""
    write_deltalake(target, query(path, "SELECT *"))


def by_polars(path: Path) -> float:
    """Return the median of the seconds that polars takes for a sum over each column."""
    import polars as pl

    numbers = [pl.col(name).sum() for name in _NUMBERS]
    sums = numbers + [pl.col(name).str.len_bytes().sum() for name in _TEXTS]

    def scan() -> None:
        pl.scan_delta(str(path)).select(sums).collect()

    return _seconds(scan)


def by_duckdb(path: Path) -> float:
    """Return the median of the seconds that DuckDB takes for a sum over each column.

    It runs in an environment that has its Delta extension. Raises ``NotMeasuredError`` without.
    """
    tool = [_ROOT / "tools" / "reader-environment", sys.executable, "duckdb"]
    done = subprocess.run(tool, capture_output=True, text=True)
    if done.returncode:
        raise NotMeasuredError(f"no DuckDB with its Delta extension: {done.stderr.strip()[-200:]}")
    program = _ROOT / "tests" / "support" / "duckdb_counts.py"
    command = [_ROOT / done.stdout.strip().splitlines()[-1], program]
    sums = [f"sum({name})" for name in _NUMBERS] + [f"sum(strlen({name}))" for name in _TEXTS]
    text = json.dumps(f"SELECT {' + '.join(sums)} FROM delta_scan('{path}')")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def scan() -> None:
            print(text, file=questions, flush=True)
            if not answers.readline():
                raise AssertionError(f"DuckDB ended with exit code {process.wait(60)}")

        return _seconds(scan)


def _seconds(scan: Callable[[], None]) -> float:
    """Return the median of the rounds after a first one, which does not count."""
    times = []
    for _ in range(1 + ROUNDS):
        begin = time.perf_counter()
        scan()
        times.append(time.perf_counter() - begin)
    return median(times[1:])
