"""Measures a capture's snapshot beside ``COPY ... TO``, over as many connections.

Called as ``python -m benchmarks.snapshot_speed SIZE FOLDER [ROUNDS]``, by ``make bench-capture``.
It prints a section and writes it into ``FOLDER/benchmarks-capture.md``. Each run is measured by the
clock, from the start of its processes to their end. One more capture is killed three times.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from benchmarks import datasets, sections
from benchmarks.bench_peers import LINEITEM
from benchmarks.capture_speed import PAGE
from benchmarks.machine import machine
from pgwire_codec import log
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.demo.server import EmbeddedServer

HEADING = "Snapshot"
ROUNDS = 3
COPIES = 10  # of the rows of lineitem
CONNECTIONS = (1, 2)
KILLS = 3

COPY = "COPY … TO a file"
CAPTURE = "pgwire-codec capture --snapshot"

TEXT = """\
`make bench-capture` measures these figures, too ({size} data, {date}), on {machine}: a table of
{rows:,} rows of lineitem, {megabytes:,.0f} MB on the server, which is in the server's cache.

| | connections | median, s | minimum, s | rows/s |
|---|--:|--:|--:|--:|
{lines}

- Figures are medians of {rounds} rounds by the clock, from the start of the processes to their end.
- `COPY … TO` is run by psql, each connection for a range of `ctid`, into a file that is not synced.
- The capture writes an Insert message for each row into the log, which is synced and compressed.
- A capture over {connections} connections was killed (SIGKILL) {kills} times, and started again
  each time. It took {killed:.1f} s in all, and sent {again} rows twice, of which readers get one.
  The log then has the table's rows.
"""


def main(size: str = "full", folder: str = "docs", rounds: str = str(ROUNDS)) -> None:
    settings = {"max_wal_size": "8GB", "shared_buffers": "2GB", "fsync": "off"}
    with EmbeddedServer(settings=settings) as server, tempfile.TemporaryDirectory() as place:
        rows, megabytes = _fill(server, size)
        seconds: dict[tuple[str, int], list[float]] = {}
        for number in range(int(rounds)):
            for connections in CONNECTIONS:
                target = Path(place) / f"{number}-{connections}"
                for name, run in ((COPY, _copy), (CAPTURE, _capture)):
                    start = perf_counter()
                    run(server, target, connections)
                    seconds.setdefault((name, connections), []).append(perf_counter() - start)
                _check(server, target, rows)
        usual = median(seconds[CAPTURE, CONNECTIONS[-1]])
        killed = _killed(server, Path(place) / "killed", usual)
        sent = _check(server, Path(place) / "killed", rows)
    text = TEXT.format(
        size=size,
        date=date.today().isoformat(),
        machine=machine(),
        rows=rows,
        megabytes=megabytes,
        lines="\n".join(
            f"| {name} | {connections} | {median(times):.2f} | {min(times):.2f} "
            f"| {rows / median(times):,.0f} |"
            for (name, connections), times in seconds.items()
        ),
        rounds=rounds,
        connections=CONNECTIONS[-1],
        kills=KILLS,
        killed=killed,
        again=f"{sent - rows:,}",
    )
    print(text)
    sections.write(Path(folder) / PAGE, HEADING, text)


def _fill(server: EmbeddedServer, size: str) -> tuple[int, float]:
    """Insert the rows; return their number and the table's megabytes."""
    made = datasets.lineitem(datasets.SIZES[size]).rows
    text = io.BytesIO()
    pa.csv.write_csv(made, text, pa.csv.WriteOptions(include_header=False))
    with connected(server) as cursor:
        cursor.execute(LINEITEM.replace("UNLOGGED ", ""))
        for _ in range(COPIES):
            text.seek(0)
            cursor.copy_expert("COPY lineitem FROM STDIN (FORMAT csv)", text)
        cursor.execute("VACUUM ANALYZE lineitem")
        cursor.execute("CREATE PUBLICATION p FOR TABLE lineitem")
        cursor.execute("SELECT pg_relation_size('lineitem')")
        (table_size,) = cursor.fetchone()
    return made.num_rows * COPIES, table_size / 1e6


def _copy(server: EmbeddedServer, target: Path, connections: int) -> None:
    with connected(server) as cursor:
        cursor.execute("SELECT pg_relation_size('lineitem') / 8192")
        (pages,) = cursor.fetchone()
    cuts = [pages * number // connections for number in range(connections)] + [2**32 - 2]
    commands = []
    for number in range(connections):
        where = f"ctid >= '({cuts[number]},0)' AND ctid < '({cuts[number + 1]},0)'"
        copy = f"COPY (SELECT * FROM lineitem WHERE {where}) TO STDOUT"
        file = target.with_suffix(f".{number}.copy")
        commands.append([server.bin_path / "psql", "--quiet", "-c", copy, "-o", file, server.dsn])
    _all(commands)
    for file in target.parent.glob("*.copy"):
        file.unlink()


def _capture(server: EmbeddedServer, target: Path, connections: int) -> None:
    _all([_command(server, target, connections)])


def _command(server: EmbeddedServer, target: Path, connections: int) -> list[Any]:
    return [
        *(sys.executable, "-c", "from pgwire_codec.cli import main; main()", "capture"),
        *("--dsn", server.dsn, "--slot", _slot(target), "--publication", "p", "--log", target),
        *("--snapshot", "--jobs", str(connections), "--until-lsn", "now", "--json"),
        *("--report-seconds", "1000"),
    ]


def _slot(target: Path) -> str:
    return f"s{target.name}".replace("-", "_")


def _all(commands: Sequence[list[Any]]) -> None:
    """Run programs at the same time."""
    processes = [subprocess.Popen(each, stdout=subprocess.DEVNULL) for each in commands]
    for process in processes:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)


def _killed(server: EmbeddedServer, target: Path, usual: float) -> float:
    """Capture the snapshot with kills on the way; return the seconds of all attempts."""
    start = perf_counter()
    command = _command(server, target, CONNECTIONS[-1])
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sleep(usual / (KILLS + 1))
        if process.poll() is not None:
            raise AssertionError("the capture ended before it was killed")
        process.kill()
        process.wait()
    _capture(server, target, CONNECTIONS[-1])
    return perf_counter() - start


def _check(server: EmbeddedServer, target: Path, rows: int) -> int:
    """Raise an error unless a log has the table's rows; remove its slot, and return what it sent.

    Rows are compared by their number and by the sum of a column.
    """
    found = total = 0
    for batch in log.Log(target).read("public.lineitem"):
        if bytes([batch.op[0]]) == b"T":
            found = total = 0
            continue
        columns = batch.to_arrow()
        found += len(columns)
        total += pc.sum(columns.column("l_orderkey")).as_py()
    with connected(server) as cursor:
        cursor.execute("SELECT count(*), sum(l_orderkey) FROM lineitem")
        wanted = cursor.fetchone()
        cursor.execute(f"SELECT pg_drop_replication_slot('{_slot(target)}')")
    if (rows, total) != tuple(map(int, wanted)) or found != rows:
        raise AssertionError(f"the log has {found} rows with the sum {total}, not {wanted}")
    return sum(table.inserts for table in log.statistics(target).sent)


@contextmanager
def connected(server: EmbeddedServer) -> Iterator[Any]:
    """Open a cursor of a connection in autocommit mode."""
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        yield connection.cursor()
    finally:
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
