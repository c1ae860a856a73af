"""The page of the lake's benchmarks: its text, and the lines of its tables."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.lake_cost import Cost
from benchmarks.lake_local import Turns
from benchmarks.lake_spark import SparkCosts

PAGE = "benchmarks-lake.md"

TEXT = """\
# Benchmarks of the lake

`make bench-lake` writes this page, except for the age of rows, and measures all of its figures in
one run ({size} data, {date}), on {machine}. Each measurement is in a process of its own. `a / b`
are seconds by the clock, and CPU seconds of all processes: this Python, Java and Python workers,
ended ones included.

- The *limit* decodes the log in one thread, and writes the rows to a Parquet file for each table,
  by pyarrow's writer with its default options. It reduces and merges nothing. It is measured
  before the other figures of its line or table.
- A *share* is that of the limit's speed, by CPU seconds.
- Spark has `local[2]` and 4 GB for its driver.

## The mirror

{mirrors}

- *cold* is the first mirror of a session. The next one is *warm*: the same changes into other
  tables.
- Changes are 60 % updates, 30 % inserts and 10 % deletes of the rows of the snapshot. Parquet gets
  the history of the tables.

## `mirror --once` as a command

{commands}

- The tables are those of the shop of `make demo`, with {shop_rows:,} rows in all, in transactions
  of eight.

## A few changes a turn

A running mirror of a Delta table with {rows:,} rows gets {scattered} scattered updates a turn.

{turns}

- Figures are medians of the turns; the Delta log and the data files are those after them.
- *Spark* is a mirror without pauses, from the written log to the end of the micro-batch.

{scans}

- A scan takes a sum over each column. Figures are medians of {rounds} scans after a first one.
- *Written at once*: the same rows by `write_deltalake`.

## Peers: a table of a server

lineitem with {server_rows:,} rows on PostgreSQL 18, into a new Delta table.

{snapshots}

## Peers: changes

{merged:,} changes of a Delta table with {merge_rows:,} rows.

{merges}

- All peers are commands from a cold start, over a Unix socket to the server. *Server* is the CPU
  seconds of PostgreSQL, which the other column does not have.
- *MERGE INTO*: `format("pgoutput")`, `latest` and Spark's `MERGE INTO`. *DeltaTable.merge*: the
  last change of each row by pyarrow, in one thread. All of them leave the same rows.
"""

MIRRORS = [
    "| | changes | limit | local | share | Spark: start | cold | warm | share, warm |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
]
COMMANDS = ["| | tables | rows | seconds / CPU seconds | share |", "|---|--:|--:|--:|--:|"]
TURNS = [
    "| | turns | seconds / CPU seconds | MB of the Delta log | data files |",
    "|---|--:|--:|--:|--:|",
]
SCANS = ["| | data files | polars, s | DuckDB, s |", "|---|--:|--:|--:|"]
SNAPSHOTS = [
    "| | seconds / CPU seconds | server, CPU s | rows a CPU second | share |",
    "|---|--:|--:|--:|--:|",
]
MERGES = ["| | seconds / CPU seconds | changes a CPU second | share |", "|---|--:|--:|--:|"]


@dataclass(frozen=True)
class Mirrors:
    """Costs of the mirror of a format; the reason in place of those that are not measured."""

    name: str
    changes: int
    limit: Cost
    local: Cost | None
    spark: SparkCosts | str

    def line(self) -> str:
        """Return a line of the table."""
        own = ("–", "–") if self.local is None else (self.local, self.local.share(self.limit))
        if isinstance(self.spark, str):
            spark: tuple[object, ...] = (self.spark, "", "", "")
        else:
            share = self.spark.warm.share(self.limit)
            spark = (self.spark.start, self.spark.cold, self.spark.warm, share)
        return cells(self.name, f"{self.changes:,}", self.limit, *own, *spark)


def cells(*values: object) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(str, values))} |"


def turns_line(name: str, turns: Turns) -> str:
    """Return a line with the figures of some turns, without the table's size if it is unknown."""
    size = (f"{turns.log_bytes / 1e6:.2f}", turns.files) if turns.files else ("", "")
    return cells(name, f"{turns.first} to {turns.last}", turns.cost, *size)


def peer_line(name: str, count: int, cost: Cost | str, limit: Cost, *more: str) -> str:
    """Return a line of a peer; ``more`` are cells after its cost."""
    if isinstance(cost, str):
        return cells(name, cost, *("" for _ in more), "", "")
    return cells(name, cost, *more, f"{count / cost.cpu:,.0f}", cost.share(limit))
