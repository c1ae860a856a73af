"""Measures captures into a log beside pg_recvlogical, from one server: speed, and latency.

Called as ``python -m benchmarks.capture_speed SIZE FOLDER [ROUNDS]``, by ``make bench-capture``. It
prints a page and writes it to ``FOLDER/benchmarks-capture.md``. Each run is a process that reads a
copy of the same slot, measured by the clock from its start to its end.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow.csv

from benchmarks import capture_latency, datasets, sections
from benchmarks.bench_peers import LINEITEM
from benchmarks.machine import machine
from pgwire_codec import log
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.demo.server import EmbeddedServer

ROUNDS = 3
TRANSACTION = 10_000  # rows
COPIES = 8  # of lineitem, so that the start of a process counts little
TARGET = 0.8

PAGE = "benchmarks-capture.md"
RECVLOGICAL = "pg_recvlogical into a file"
CAPTURE = "pgwire-codec capture into a log"
BINARY = "the same, in binary form"

DOCUMENT = """\
# Benchmarks of capture

`make bench-capture` writes this page and measures all of its figures in one run ({size} data,
{date}), on {machine}.

The stream has {rows:,} inserts of TPC-H's lineitem in transactions of {transaction:,}, from an
embedded PostgreSQL {major} on the same machine, with protocol version 1.

{table}

`pgwire-codec capture` reaches {ratio:.2f} of pg_recvlogical's MB/s (target: {target} or more).

- Figures are medians of {rounds} rounds by the clock, from the start of a process to its end. In a
  round the programs run one after the other, each on its own copy of one slot. MB are the bytes of
  messages.
- Both programs fsync their files. The capture also decodes the head of each message for the log's
  index.
- The server's walsender runs at the same time, on the same two cores.
"""

LATENCY = """\
The time from the return of COMMIT until the transaction is durable and readable in the log, or
handed to the consumer, at {rate} transactions of one row a second:

{latency}

- Figures are medians of {rounds} rounds of {seconds:.0f} seconds, after a second to warm up.
- pg_recvlogical calls fsync each second at the most often (`--fsync-interval 1`). Its time is that
  until the file or the pipe can be read.
- Debezium's engine hands over records that are not durable. Its consumer prints them.
- CPU is that of the program's own process, in milliseconds a second of the clock.
- A flush of one transaction writes a record batch of its own, of which about 300 bytes are not of
  the messages.
"""


def main(size: str = "full", folder: str = "docs", rounds: str = str(ROUNDS)) -> None:
    settings = {"logical_decoding_work_mem": "64MB", "max_wal_size": "8GB"}
    with EmbeddedServer(settings=settings) as server, tempfile.TemporaryDirectory() as place:
        rows, until = _fill(server, size)
        bytes_of: dict[str, int] = {}
        seconds: dict[str, list[float]] = {RECVLOGICAL: [], CAPTURE: [], BINARY: []}
        for number in range(int(rounds)):
            for name in seconds:
                slot = f"s{number}_{len(name)}"
                _execute(server, f"SELECT pg_copy_logical_replication_slot('origin', '{slot}')")
                target = Path(place) / slot
                command = _command(name, server, slot, target, until)
                start = perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                seconds[name].append(perf_counter() - start)
                if name != RECVLOGICAL:
                    bytes_of[name] = _received(target, rows)
                _execute(server, f"SELECT pg_drop_replication_slot('{slot}')")
        major = server.postgres_version
    with EmbeddedServer() as server, tempfile.TemporaryDirectory() as place:
        latency = capture_latency.table(server, Path(place), int(rounds))
    bytes_of[RECVLOGICAL] = bytes_of[CAPTURE]  # the same messages; its file has line ends, too
    speeds = {name: bytes_of[name] / median(times) / 1e6 for name, times in seconds.items()}
    lines = ["| | median, s | minimum, s | MB | MB/s | rows/s |", "|---|--:|--:|--:|--:|--:|"]
    lines += [
        f"| {name} | {median(times):.2f} | {min(times):.2f} | {bytes_of[name] / 1e6:,.0f} "
        f"| {speeds[name]:.0f} | {rows / median(times):,.0f} |"
        for name, times in seconds.items()
    ]
    document = DOCUMENT.format(
        size=size,
        date=date.today().isoformat(),
        machine=machine(),
        rows=rows,
        transaction=TRANSACTION,
        major=major,
        table="\n".join(lines),
        ratio=speeds[CAPTURE] / speeds[RECVLOGICAL],
        target=TARGET,
        rounds=rounds,
    )
    latencies = LATENCY.format(
        rounds=rounds,
        rate=capture_latency.RATE,
        seconds=capture_latency.SECONDS,
        latency="\n".join(latency),
    )
    page = Path(folder) / PAGE
    sections.write(page, None, document)
    sections.write(page, "Latency", latencies)
    print(page.read_text("utf-8"))


def _fill(server: EmbeddedServer, size: str) -> tuple[int, str]:
    """Create the slot and insert rows; return their number and the LSN after them."""
    made = datasets.lineitem(datasets.SIZES[size]).rows
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(LINEITEM.replace("UNLOGGED ", ""))
        cursor.execute("CREATE PUBLICATION p FOR TABLE lineitem")
        cursor.execute("SELECT pg_create_logical_replication_slot('origin', 'pgoutput')")
        for start in list(range(0, made.num_rows, TRANSACTION)) * COPIES:
            text = io.BytesIO()
            pyarrow.csv.write_csv(
                made.slice(start, TRANSACTION),
                text,
                pyarrow.csv.WriteOptions(include_header=False),
            )
            text.seek(0)
            cursor.copy_expert("COPY lineitem FROM STDIN (FORMAT csv)", text)
        cursor.execute("SELECT pg_current_wal_flush_lsn()")
        [until] = cursor.fetchone()
    finally:
        connection.close()
    return made.num_rows * COPIES, until


def _execute(server: EmbeddedServer, statement: str) -> None:
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        connection.cursor().execute(statement)
    finally:
        connection.close()


def _command(name: str, server: EmbeddedServer, slot: str, target: Path, until: str) -> list[Any]:
    if name == RECVLOGICAL:
        return [
            *(server.bin_path / "pg_recvlogical", "--dbname", server.dsn, "--slot", slot),
            *("--start", "--file", target, "--endpos", until),
            *("--option", "proto_version=1", "--option", "publication_names=p"),
        ]
    return [
        *(sys.executable, "-c", "from pgwire_codec.cli import main; main()", "capture"),
        *("--dsn", server.dsn, "--slot", slot, "--publication", "p", "--log", target),
        *("--until-lsn", until, "--json", "--report-seconds", "1000", "--no-messages"),
        *(["--binary"] if name == BINARY else []),
    ]


def _received(target: Path, rows: int) -> int:
    """Return the bytes of a log's messages; fail if it lacks rows."""
    found = log.statistics(target)
    inserts = sum(table.inserts for table in found.sent)
    if inserts != rows:
        raise AssertionError(f"the log has {inserts} of {rows} rows")
    return found.message_bytes


if __name__ == "__main__":
    main(*sys.argv[1:])
