"""Measures a mirror in one process beside its limit: decoding, and Parquet's writer.

Called as ``python -m benchmarks.lake_speed SIZE FOLDER``, by ``make bench-lake``. It prints a page,
and with full data writes it to ``FOLDER/benchmarks-lake.md``. The limit decodes the partitions of
the log in one thread, and writes their rows by pyarrow's writer with its default options. Each
measurement is in a process of its own, whose start and imports are not measured.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import lake_data
from benchmarks.machine import machine
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.mirroring import MirrorOptions, mirror
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import OK, TableStatus
from pgwire_codec.log import Log
from pgwire_codec.options import DecoderOptions

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """Numbers of rows, changes and turns of the scenarios."""

    lineitem: int
    backlog: tuple[int, int]  # rows and changes
    scattered: tuple[int, int]  # rows and turns
    tables: tuple[int, int, int]  # number, rows and changes of all


SIZES = {
    "tiny": Size(2_000, (2_000, 500), (2_000, 14), (4, 400, 200)),
    "quick": Size(200_000, (200_000, 100_000), (200_000, 30), (20, 200_000, 100_000)),
    "full": Size(6_000_000, (1_000_000, 1_000_000), (2_000_000, 300), (200, 2_000_000, 1_000_000)),
}

#: Shares of updates, inserts and deletes.
ALL_KINDS, UPDATES = (0.6, 0.3, 0.1), (1.0, 0.0, 0.0)

SCATTERED = 100  # changes of a turn
WARM_UP = 3  # turns
MEASURED = 10  # turns
_ROW_GROUP = 250_000

PAGE = "benchmarks-lake.md"

DOCUMENT = """\
# Benchmarks of the lake

`make bench-lake` writes this page and measures all of its figures in one run ({size} data,
{date}), on {machine}.

{speed}

- A mirror uses all cores, the limit uses one. So speed is by CPU seconds of the process.
- The *limit* decodes the log in one thread, and writes the rows to a Parquet file for each table,
  by pyarrow's writer with its default options. It reduces and merges nothing.
- The changes are 60 % updates, 30 % inserts and 10 % deletes.

## A few changes a turn

A running mirror of a table with {rows:,} rows gets {scattered} scattered updates a turn. Times are
medians of the turns; the size of the Delta log is that after them.

{turns}
"""


@dataclass(frozen=True)
class Cost:
    """Changes, and the seconds and CPU seconds that they took."""

    changes: int
    seconds: float
    cpu: float

    def line(self, name: str, limit: Cost) -> str:
        """Return a line of the table, with the share of a limit's speed."""
        share = limit.cpu / limit.changes / (self.cpu / self.changes)
        return (
            f"| {name} | {self.changes:,} | {self.seconds:.2f} | {self.cpu:.2f} | "
            f"{self.changes / self.cpu:,.0f} | {share:.0%} |"
        )


def main(size: str, folder: str) -> None:
    made = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="pgwire-bench-") as place:
        lines = [
            "| | changes | seconds | CPU seconds | changes a CPU second | share of the limit |",
            "|---|--:|--:|--:|--:|--:|",
            *_lineitem(Path(place, "lineitem"), made.lineitem),
            *_tables(Path(place, "backlog"), 1, *made.backlog),
            *_tables(Path(place, "tables"), *made.tables),
        ]
        turns = _in_child(_turns, Path(place, "turns"), *made.scattered)
    document = DOCUMENT.format(
        size=size,
        date=date.today().isoformat(),
        machine=machine(),
        speed="\n".join(lines),
        rows=made.scattered[0],
        scattered=SCATTERED,
        turns="\n".join(turns),
    )
    print(document)
    if size == "full":
        Path(folder, PAGE).write_text(document, "utf-8")


def _lineitem(place: Path, rows: int) -> list[str]:
    """Measure the inserts of lineitem, in transactions of eight; return lines of the table."""
    _in_child(lake_data.write_lineitem, place / "log", rows)
    limit = _in_child(_limit, place, 0, rows)
    lines = [limit.line("snapshot of lineitem: limit", limit)]
    for form, name in (
        ("delta", "into an empty Delta table"),
        ("parquet", "into a Parquet history"),
    ):
        cost = _in_child(_mirror, place, f"{form}:{place / form}", rows)
        lines.append(cost.line(f"snapshot of lineitem: {name}", limit))
    return lines


def _tables(place: Path, count: int, rows: int, changes: int) -> list[str]:
    """Measure the inserts of tables, and then changes of all; return lines of the table."""
    name = "a table" if count == 1 else f"{count} tables"
    sources = [lake_data.Changes(rows // count, number) for number in range(count)]
    lines = []
    for step, number in (("snapshot", rows), ("changes", changes)):
        after = 0
        if step == "snapshot":
            made = (source.begin() for source in sources)
        else:
            after = Log(place / "log").end.lsn
            made = (source.add(changes // count, ALL_KINDS) for source in sources)
        lake_data.write(place / "log", made)
        limit = _in_child(_limit, place, after, number)
        cost = _in_child(_mirror, place, f"delta:{place / 'lake'}", number)
        lines.append(limit.line(f"{step} of {name}: limit", limit))
        lines.append(cost.line(f"{step} of {name}: into Delta", limit))
    return lines


def _in_child(job: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(job, *arguments).result()


def _limit(place: Path, after: int, changes: int) -> Cost:
    """Decode the changes after an LSN, and write them to Parquet files, in this thread."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    options = DecoderOptions(arrow_types=ROW_TYPES)
    writers: dict[str, pq.ParquetWriter] = {}
    buffers: dict[str, list[pa.RecordBatch]] = {}
    count = 0
    for partition in Log(place / "log").plan(after).partitions:
        for batch in partition.decode(options):
            name = batch.relation.name
            columns = [column.name for column in batch.relation.columns]
            rows = batch.to_arrow().select(columns)
            count += len(rows)
            if name not in writers:
                file = place / f"{name}-{after}.parquet"
                writers[name], buffers[name] = pq.ParquetWriter(file, rows.schema), []
            buffers[name].append(rows)
            if sum(map(len, buffers[name])) >= _ROW_GROUP:
                writers[name].write_table(pa.Table.from_batches(buffers[name]))
                buffers[name].clear()
    for name, writer in writers.items():
        if buffers[name]:
            writer.write_table(pa.Table.from_batches(buffers[name]))
        writer.close()
    if count != changes:
        raise AssertionError(f"the log has {count} changes, not {changes}")
    return Cost(count, time.perf_counter() - begin, time.process_time() - begin_cpu)


def _mirror(place: Path, target: str, changes: int) -> Cost:
    """Bring a mirror to the end of the log, in the threads of this process."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    run = mirror(place / "log", target, once=True)
    run.run()
    cost = Cost(changes, time.perf_counter() - begin, time.process_time() - begin_cpu)
    _check(run.status)
    return cost


def _check(status: dict[str, TableStatus]) -> None:
    """Raise an error if tables are left out, for example because of an error."""
    if not status or any(row.state != OK for row in status.values()):
        raise AssertionError(f"tables are not mirrored: {status}")


def _turns(place: Path, rows: int, turns: int) -> list[str]:
    """Measure turns of a few updates each; return a table."""
    changes = lake_data.Changes(rows)
    lake_data.write(place / "log", [changes.begin()])
    lake = Lake.parse(f"delta:{place / 'lake'}")
    run = MirrorOptions().start(str(place / "log"), lake, "*", Threads())
    run.turn(0)
    costs, sizes = [], []
    for number in range(turns):
        lake_data.write(place / "log", [changes.add(SCATTERED, UPDATES)])
        begin, begin_cpu = time.perf_counter(), time.process_time()
        run.turn(number + 1)
        costs.append((time.perf_counter() - begin, time.process_time() - begin_cpu))
        files = (place / "lake" / "public" / "acct" / "_delta_log").rglob("*")
        sizes.append(sum(file.stat().st_size for file in files if file.is_file()))
    _check(run.status)
    lines = ["| turns | seconds | CPU seconds | MB of the Delta log |", "|---|--:|--:|--:|"]
    for first in (WARM_UP, turns - MEASURED):
        last = first + MEASURED
        seconds, cpu = map(median, zip(*costs[first:last], strict=True))
        size = sizes[last - 1] / 1e6
        lines.append(f"| {first + 1} to {last} | {seconds:.3f} | {cpu:.3f} | {size:.2f} |")
    return lines


if __name__ == "__main__":
    main(*sys.argv[1:])
