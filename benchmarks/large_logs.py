"""Measures large logs: planning, skipping other tables' bytes, and one large read.

Called as ``python -m benchmarks.large_logs SIZE FOLDER``, by ``make bench-size``. It prints a
section and writes it into ``FOLDER/benchmarks-spark.md``.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil

from benchmarks import large_log_data, log_cost, object_server, sections, synthetic_log
from benchmarks.large_log_data import LARGE, ONE, SIZES, SMALL, SYNTHETIC
from benchmarks.log_streams import streams
from benchmarks.machine import BOTH_COMPILERS, machine
from benchmarks.peak_memory import high_water
from benchmarks.spark_speed import PAGE
from pgwire_codec import log
from pgwire_codec.demo.steps import local_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELAY = 0.02  # seconds of each request
ROUNDS = {"tiny": 1, "quick": 3, "full": 5}
STREAMED = {"tiny": 3_000, "quick": 100_000, "full": 300_000}  # changes of the first stream

#: A measured property, its figure, and the aim.
Line: TypeAlias = "tuple[str, str, str]"

HEADING = "Large logs"

TEXT = """\
`make bench-size` measures all of these figures in one run ({size} data, {date}), on {machine}.

| | measured | aim |
|---|--:|--:|
{lines}

- *Synthetic log*: {segments:,} segments of 128 MB and {tables:,} tables, of which each segment has
  changes of {changed}. Its index and sidecars are real, its segments have no messages. *Plan*: the
  last {day} segments, of one table. The object store is a server on this machine that answers each
  request {delay:.0f} ms late.
- *Small table*: {share:.1%} of the rows of a log of {bytes:,.0f} MB, one after the other. *By
  scanning all*: every partition is read and decoded, and other tables' changes are left out.
- *Large log*: {large:,} rows of lineitem in one table, read by `format("pgoutput")` on `local[2]`
  and written to Spark's noop format, once. A row of it costs that many times what one costs in the
  log of {rows:,} rows.
- *Bytes on disk*: of a log with the default options, captured from a server. lineitem has 16
  columns; pgbench's rows are small.
"""


def main(size: str = "full", folder: str = "docs") -> None:
    data = large_log_data.make(size)
    measures = (_plan_local, _plan_remote, _small_table, _large, _on_disk)
    lines = [line for each in measures for line in _in_process(each, data, size)]
    made = SIZES[size]
    text = TEXT.format(
        size=size,
        date=date.today().isoformat(),
        machine=machine(),
        lines="\n".join(f"| {name} | {figure} | {aim} |" for name, figure, aim in lines),
        segments=made.segments,
        tables=made.tables,
        changed=synthetic_log.CHANGED,
        day=synthetic_log.DAY,
        delay=DELAY * 1000,
        share=1 / large_log_data.SMALL_SHARE,
        bytes=_size(data / SMALL) / 1e6,
        rows=made.rows,
        large=made.large,
    )
    print(text)
    sections.write(Path(folder) / PAGE, HEADING, text)


def _in_process(measure: Callable[[Path, str], list[Line]], data: Path, size: str) -> list[Line]:
    """Measure in a process of its own, whose memory is that of the measured work."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure, data, size).result()


def _plan(uri: str, tables: int) -> tuple[log.LogPlan, float, float]:
    """Open a log and plan the last day of a table; return the plan, and CPU and clock seconds."""
    cpu, clock = process_time(), perf_counter()
    found = log.Log(uri)
    after = max(found.end.lsn - synthetic_log.DAY * synthetic_log.LSNS, 0)
    plan = found.plan(after, table=f"public.table_{tables // 2}")
    return plan, process_time() - cpu, perf_counter() - clock


def _plan_local(data: Path, size: str) -> list[Line]:
    folder = data / SYNTHETIC
    before = high_water() / 1e6
    plan, cpu, _ = _plan(str(folder), SIZES[size].tables)
    peak = high_water() / 1e6
    partition = max(len(pickle.dumps(each)) for each in plan.partitions)
    sidecars = sorted(path.stat().st_size for path in folder.glob("0*.json"))
    index = sum(path.stat().st_size for path in folder.glob("*.index"))
    return [
        ("synthetic log: open and plan, CPU", f"{cpu:.2f} s", "2 s"),
        ("peak memory of the process", f"{peak:.0f} MB, {before:.0f} MB before", "300 MB"),
        ("largest pickled partition", f"{partition:,} bytes", "2 KB"),
        ("sidecar, median", f"{sidecars[len(sidecars) // 2]:,} bytes", "4 KB and what changed"),
        ("index, a segment", f"{index / len(sidecars):,.0f} bytes", ""),
    ]


def _plan_remote(data: Path, size: str) -> list[Line]:
    found = []
    for delay in (0.0, DELAY):
        with object_server.serve(data, delay) as server:
            uri = f"{server.uri}/{SYNTHETIC}{server.options}"
            times = [_plan(uri, SIZES[size].tables)[2] for _ in range(ROUNDS[size])]
            found.append((median(times), server.requests // ROUNDS[size]))
    (at_once, _), (late, requests) = found
    name = f"in an object store, {DELAY * 1000:.0f} ms a request"
    return [(name, f"{late:.2f} s ({at_once:.2f} s without delay), {requests} requests", "5 s")]


def _small_table(data: Path, size: str) -> list[Line]:
    folder = data / SMALL
    found = log.Log(folder)
    (oid,) = (each.oid for each in found.relations if each.name == large_log_data.SMALL_TABLE)
    options: dict[str, Any] = {"types": "native"}

    def skipping() -> int:
        read = log.Log(folder).read(large_log_data.SMALL_TABLE, **options)
        return sum(batch.to_arrow().num_rows for batch in read)

    def scanning() -> int:
        read = log.Log(folder).read(**options)
        return sum(batch.to_arrow().num_rows for batch in read if batch.relation.oid == oid)

    rows = SIZES[size].scanned // large_log_data.SMALL_SHARE
    times: dict[Callable[[], int], list[float]] = {scanning: [], skipping: []}
    for _ in range(ROUNDS[size]):
        for read, seconds in times.items():
            start = perf_counter()
            assert read() == rows
            seconds.append(perf_counter() - start)
    with object_server.serve(data, 0.0) as server:
        remote = log.Log(f"{server.uri}/{SMALL}{server.options}")
        assert sum(map(len, remote.read(large_log_data.SMALL_TABLE, **options))) == rows
        share = server.bytes_sent / _size(folder)
    ratio = median(times[scanning]) / median(times[skipping])
    each = f"{median(times[skipping]) * 1000:,.0f} ms, {median(times[scanning]):.2f} s"
    return [
        ("small table: bytes read", f"{share:.1%}", "5 %"),
        ("time, and by scanning all", f"{each}: {ratio:,.0f} × faster", "20 ×"),
    ]


def _large(data: Path, size: str) -> list[Line]:
    from pyspark.sql import Observation, functions

    made = SIZES[size]
    costs = {}  # seconds a row
    with local_spark(BOTH_COMPILERS) as spark:
        for name, count in ((ONE, made.rows), (LARGE, made.large)):
            read = spark.read.format("pgoutput").option("table", large_log_data.TABLE)
            counted = Observation()
            rows = read.load(str(data / name)).observe(counted, functions.count("*").alias("rows"))
            start = perf_counter()
            _write(rows)
            costs[name] = (perf_counter() - start) / count
            assert counted.get["rows"] == count
        processes = psutil.Process().children(recursive=True)
        workers = [high_water(each.pid) for each in processes if "python" in each.name()]
    size_of_messages = sum(each.message_bytes for each in log.Log(data / LARGE).segments)
    seconds = costs[LARGE] * made.large
    figure = (
        f"{seconds:,.0f} s: {size_of_messages / 1e6 / seconds:,.0f} MB/s, "
        f"{costs[LARGE] / costs[ONE]:.2f} × a row of the small log"
    )
    return [
        (f"large log: {size_of_messages / 1e9:,.1f} GB of messages, read once", figure, ""),
        ("large log: peak memory of a Python worker", f"{max(workers) / 1e6:,.0f} MB", ""),
    ]


def _on_disk(data: Path, size: str) -> list[Line]:
    found = []
    with tempfile.TemporaryDirectory() as place:
        for name, path in streams(Path(place), STREAMED[size]):
            (share,) = log_cost.cost(str(path), {}, rounds=1)["size"]
            found.append((f"bytes on disk: {name}", f"{share:.2f} of the messages'", "0.5"))
    return found


def _write(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


if __name__ == "__main__":
    main(*sys.argv[1:])
