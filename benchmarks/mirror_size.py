"""Measures a mirror of many tables: time, memory of its driver, and bytes that it reads.

Called as ``python -m benchmarks.mirror_size SIZE [ENGINE]``, by ``make bench-mirror``. A log has
the snapshot of many tables, and then changes of each. ``pgwire-codec mirror --once`` applies one
after the other; then one Structured Streaming query a table does the same, for a few of the tables.
The mirror's executor is a process of its own, so that the driver's memory is the driver's alone.
The log is in an object store on this machine, which counts the bytes that are read.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import object_server
from benchmarks.machine import machine
from benchmarks.snapshot_speed import connected
from pgwire_codec import log
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.demo.steps import local_spark
from pgwire_codec.spark import merge_into

#: Tables, rows of all in the snapshot, and changes of all.
SIZES = {
    "tiny": (4, 400, 200),
    "quick": (20, 200_000, 100_000),
    "full": (200, 2_000_000, 1_000_000),
}
MORE = 10  # times as many rows, for the driver's memory
FEW = 10  # tables that a query each is measured for
MASTER = "local-cluster[1,2,4096]"
_SAMPLE_SECONDS = 0.2


@dataclass
class Run:
    """Seconds by the clock, bytes of the driver's two processes, and bytes read.

    Of both processes, it is the resident bytes, and of Java's heap, which grows to its limit before
    it is collected, the bytes in use after a collection; each is the largest number.
    """

    seconds: float
    python: int
    java: int
    heap: int
    read: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:8.1f} s, driver: Python {self.python / 1e6:,.0f} MB, "
            f"Java {self.java / 1e6:,.0f} MB with a heap of {self.heap / 1e6:,.0f} MB, "
            f"read {self.read / 1e6:,.1f} MB of the log"
        )


def main(size: str, engine: str = "delta-rs") -> None:
    tables, rows, changes = SIZES[size]
    print(
        f"{engine}, {tables} tables, snapshot of {rows:,} rows, {changes:,} changes, {MASTER} on "
        f"{machine()}",
        flush=True,
    )
    for factor in (1, MORE):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            with EmbeddedServer(settings={"fsync": "off", "max_wal_size": "8GB"}) as server:
                _fill(server, tables, rows * factor)
                _capture(server, place, "--snapshot")
                print(f"× {factor}: snapshot {_mirror(place, engine)}", flush=True)
                _change(server, tables, changes)
                _capture(server, place)
            print(f"× {factor}: changes  {_mirror(place, engine)}", flush=True)
            if factor == 1:
                few = min(FEW, tables)
                run = _queries(place, few)
                print(
                    f"one query a table, for {few} of them: {run.seconds:.1f} s, "
                    f"read {run.read / 1e6:,.1f} MB of the log",
                    flush=True,
                )


def _fill(server: EmbeddedServer, tables: int, rows: int) -> None:
    each = rows // tables
    with connected(server) as cursor:
        for number in range(tables):
            cursor.execute(
                f"CREATE TABLE t{number} (id int PRIMARY KEY, at timestamptz, "
                "amount numeric(12, 2), note text)"
            )
            cursor.execute(
                f"INSERT INTO t{number} SELECT i, now(), i / 7.0, 'note ' || i "
                f"FROM generate_series(1, {each}) i"
            )
        cursor.execute("CREATE PUBLICATION p FOR ALL TABLES")


def _change(server: EmbeddedServer, tables: int, changes: int) -> None:
    """Update, insert and delete rows of each table: 60, 30 and 10 % of the changes."""
    each = changes // tables
    updates, inserts, deletes = (each * share // 10 for share in (6, 3, 1))
    with connected(server) as cursor:
        for number in range(tables):
            cursor.execute(
                f"UPDATE t{number} SET amount = amount + 1 "
                f"WHERE id IN (SELECT id FROM t{number} ORDER BY id LIMIT {updates})"
            )
            cursor.execute(
                f"INSERT INTO t{number} SELECT -i, now(), i, 'new' "
                f"FROM generate_series(1, {inserts}) i"
            )
            cursor.execute(
                f"DELETE FROM t{number} "
                f"WHERE id IN (SELECT id FROM t{number} ORDER BY id DESC LIMIT {deletes})"
            )


def _capture(server: EmbeddedServer, place: Path, *options: str) -> None:
    _run(
        "capture", "--dsn", server.dsn, "--slot", "s", "--publication", "p",
        "--log", str(place / "store" / "log"), "--until-lsn", "now", *options,
    )  # fmt: skip


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from pgwire_codec.cli import main; main()", *arguments]


def _run(*arguments: str) -> None:
    subprocess.run(_command(*arguments), check=True, stdout=subprocess.DEVNULL)


def _mirror(place: Path, engine: str) -> Run:
    collections = place / "collections"
    with _measured(place) as (uri, run):
        command = _command(
            "mirror", "--log", uri, "--to", f"delta:{place / 'lake'}", "--engine", engine,
            "--checkpoint", str(place / "checkpoint"), "--once", "--json",
            "--conf", f"spark.master={MASTER}", "--conf", "spark.executor.memory=4g",
            "--conf", f"spark.driver.extraJavaOptions=-Xlog:gc:file={collections}",
        )  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                _sample(psutil.Process(process.pid), run)
                time.sleep(_SAMPLE_SECONDS)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    after = re.findall(r" \d+M->(\d+)M\(", collections.read_text())
    run.heap = max(map(int, after)) << 20
    return run


def _sample(driver: psutil.Process, run: Run) -> None:
    """Record the memory of a driver and of its JVM, unless they have just ended."""
    try:
        run.python = max(run.python, driver.memory_info().rss)
        for child in driver.children():
            if child.name() == "java":
                run.java = max(run.java, child.memory_info().rss)
    except psutil.NoSuchProcess:
        return


def _queries(place: Path, few: int) -> Run:
    """Apply all changes of a few tables by a query for each, one after the other."""
    with _measured(place) as (uri, run), local_spark() as spark:
        for number in range(few):
            path = place / "queries" / f"t{number}"

            def merge(rows: Any, batch: int, path: Path = path) -> None:
                merge_into(rows, str(path), keys=["id"])

            rows = spark.readStream.format("pgoutput").option("table", f"public.t{number}")
            query = (
                rows.load(uri)
                .writeStream.foreachBatch(merge)
                .option("checkpointLocation", f"{path}.checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
    return run


@contextmanager
def _measured(place: Path) -> Iterator[tuple[str, Run]]:
    """Serve the log; yield its URI, and a run that has the time and the bytes read at the end."""
    run = Run(0.0, 0, 0, 0, 0)
    with object_server.serve(place / "store", 0.0) as server:
        log.Log(f"{server.uri}/log{server.options}")  # the server answers
        before, start = server.bytes_sent, time.perf_counter()
        yield f"{server.uri}/log{server.options}", run
        run.seconds, run.read = time.perf_counter() - start, server.bytes_sent - before


if __name__ == "__main__":
    main(*sys.argv[1:])
