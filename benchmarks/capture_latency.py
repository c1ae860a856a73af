"""Measures the time from a commit until a capture has made it durable and readable in the log.

Called by ``benchmarks.capture_speed``; by itself as ``python -m benchmarks.capture_latency
[ROUNDS]``. Small transactions are committed at a fixed rate. For each, the clock starts when COMMIT
returns. It stops when a reader of the log, or of pg_recvlogical's output, can read the transaction,
or when Debezium's engine hands it to its consumer.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers import engine
from benchmarks.peers.programs import NotMeasuredError
from pgwire_codec import log
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.errors import LogError
from pgwire_codec.log.bounds import watermark_from_bytes

RATE = 100  # transactions a second
SECONDS = 10.0
WARM_UP = 1.0  # seconds before them: the first transaction begins a segment, a JVM compiles
ROUNDS = 3
_POLL = 0.0005  # seconds between looks of the reader
_WAIT = 20.0  # seconds for a program to begin, or to catch up
_MARK = b"note "  # in each message with a row

PIPE = "pg_recvlogical into a pipe, not durable"
FILE = "pg_recvlogical into a file, durable after up to 1 s"
ENGINE = f"Debezium's engine, polled every {engine.POLL_MS} ms, to its consumer"
DEFAULT = "pgwire-codec capture"
SLOW = "the same, --flush-seconds 0.05"

HEADER = [
    "| | p50, ms | p99, ms | maximum, ms | CPU, ms a second | log bytes a transaction |",
    "|---|--:|--:|--:|--:|--:|",
]


def table(server: EmbeddedServer, place: Path, rounds: int = ROUNDS) -> list[str]:
    """Return the lines of a table with the latency of each program."""
    _execute(
        server,
        "CREATE TABLE tick (k bigint, note text)",
        "CREATE PUBLICATION tick FOR TABLE tick",
    )
    programs: dict[str, Callable[..., _Run]] = {
        PIPE: _recvlogical_pipe,
        FILE: _recvlogical_file,
        ENGINE: _engine,
        DEFAULT: _capture,
        SLOW: partial(_capture, options=("--flush-seconds", "0.05")),
    }
    runs: dict[str, list[_Run]] = {name: [] for name in programs}
    reasons: dict[str, str] = {}
    for number in range(rounds):
        for index, (name, measure) in enumerate(programs.items()):
            if name in reasons:
                continue
            try:
                runs[name].append(measure(server, place, f"tick_{number}_{index}"))
            except NotMeasuredError as reason:
                reasons[name] = f"| {name} | not measured: {reason} | | | | |"
    return HEADER + [reasons.get(name) or _line(name, found) for name, found in runs.items()]


class _Run:
    """Latencies of one run in milliseconds, CPU of the program in ms a second, bytes of the log."""

    def __init__(self, latencies: Any, cpu: float, size: float | None) -> None:
        latencies = latencies[int(RATE * WARM_UP) :]
        self.p50, self.p99 = np.percentile(latencies, [50, 99]) * 1e3
        self.maximum = float(np.max(latencies)) * 1e3
        self.cpu = cpu
        self.size = size


def _line(name: str, runs: list[_Run]) -> str:
    p50, p99, maximum, cpu = (
        median(getattr(run, field) for run in runs) for field in ("p50", "p99", "maximum", "cpu")
    )
    sizes = [run.size for run in runs if run.size is not None]
    size = f"{median(sizes):,.0f}" if sizes else ""
    return f"| {name} | {p50:.1f} | {p99:.1f} | {maximum:.0f} | {cpu:.0f} | {size} |"


def _capture(
    server: EmbeddedServer,
    place: Path,
    slot: str,
    options: Sequence[str] = (),
) -> _Run:
    folder = place / slot
    command = [
        *(sys.executable, "-c", "from pgwire_codec.cli import main; main()", "capture"),
        *("--dsn", server.dsn, "--slot", slot, "--publication", "tick", "--log", str(folder)),
        *("--json", "--report-seconds", "1000", "--no-messages", *options),
    ]
    seen: list[tuple[float, int]] = []  # when the log was read to which commit LSN

    def look(last: list[bytes]) -> None:
        try:
            data = (folder / "watermark.json").read_bytes()
            delivered = watermark_from_bytes(data, "the watermark").delivered_lsn
        except (FileNotFoundError, LogError):  # not yet, or while it is overwritten
            return
        if [data] != last:
            seen.append((time.perf_counter(), delivered))
            last[:] = [data]

    with _slot(server, slot), _program(server, slot, command) as process:
        last: list[bytes] = []
        with _watching(lambda: look(last)):
            committed, cpu = _commit(server, process.pid)
            time.sleep(1)
        process.terminate()
        process.wait(_WAIT)
    batches = list(log.Log(folder).read("public.tick"))
    lsns = np.unique(np.concatenate([batch.commit_lsn for batch in batches]))
    if len(lsns) != len(committed):
        raise AssertionError(f"the log has {len(lsns)} of {len(committed)} transactions")
    times, ends = np.array([at for at, _ in seen]), np.array([lsn for _, lsn in seen], np.uint64)
    readable = times[np.searchsorted(ends, lsns)]
    size = sum(file.stat().st_size for file in folder.glob("*.arrow"))
    return _Run(readable - committed, cpu, size / len(committed))


def _recvlogical_pipe(server: EmbeddedServer, place: Path, slot: str) -> _Run:
    seen: list[float] = []

    def look(output: Any) -> None:
        while data := output.read1(1 << 16):
            seen.extend([time.perf_counter()] * data.count(_MARK))

    command = _recvlogical(server, slot, "-")
    with _slot(server, slot), _program(server, slot, command, subprocess.PIPE) as process:
        thread = threading.Thread(target=look, args=[process.stdout])
        thread.start()
        committed, cpu = _commit(server, process.pid)
        time.sleep(1)
        process.terminate()
        thread.join()
    return _Run(np.array(seen[: len(committed)]) - committed, cpu, None)


def _recvlogical_file(server: EmbeddedServer, place: Path, slot: str) -> _Run:
    seen: list[float] = []
    path = place / f"{slot}.messages"

    def look() -> None:
        seen.extend([time.perf_counter()] * output.read().count(_MARK))

    command = _recvlogical(server, slot, path, "--fsync-interval", "1")
    with _slot(server, slot), _program(server, slot, command) as process:
        with path.open("rb") as output, _watching(look):
            committed, cpu = _commit(server, process.pid)
            time.sleep(1)
        process.terminate()
        process.wait(_WAIT)
    return _Run(np.array(seen) - committed, cpu, None)


def _recvlogical(server: EmbeddedServer, slot: str, file: str | Path, *options: str) -> list[Any]:
    return [
        *(server.bin_path / "pg_recvlogical", "--dbname", server.dsn, "--slot", slot),
        *("--start", "--file", file, *options),
        *("--option", "proto_version=1", "--option", "publication_names=tick"),
    ]


def _engine(server: EmbeddedServer, place: Path, slot: str) -> _Run:
    offsets = place / f"{slot}.offsets"
    command = engine.command(engine.classes(), server.dsn, slot, "tick", offsets)
    seen: list[bytes] = []
    with _slot(server, slot), _program(server, slot, command, subprocess.PIPE) as process:
        assert process.stdout is not None
        thread = threading.Thread(target=seen.extend, args=[process.stdout])
        thread.start()
        committed, cpu = _commit(server, process.pid)
        time.sleep(1)
        process.terminate()
        thread.join()
    keys, nanoseconds = np.array([line.split() for line in seen], np.int64).T
    if keys.tolist() != list(range(len(committed))):
        raise AssertionError(f"the engine handed over {len(keys)} of {len(committed)} rows")
    return _Run(nanoseconds / 1e9 - committed, cpu, None)  # both clocks are the monotonic one


def _commit(server: EmbeddedServer, pid: int) -> tuple[Any, float]:
    """Commit at the rate; return when each COMMIT returned, and the program's CPU ms a second."""
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        cursor = connection.cursor()
        committed = []
        begun = time.perf_counter()
        for number in range(int(RATE * (WARM_UP + SECONDS))):
            if number == int(RATE * WARM_UP):
                measured, cpu = time.perf_counter(), _cpu_seconds(pid)
            time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            cursor.execute(
                "INSERT INTO tick VALUES (%s, %s)", (number, f"{_MARK.decode()}{number}")
            )
            committed.append(time.perf_counter())
        used = _cpu_seconds(pid) - cpu
        return np.array(committed), used / (time.perf_counter() - measured) * 1e3
    finally:
        connection.close()


def _cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def _watching(look: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_POLL):
            look()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _slot(server: EmbeddedServer, slot: str) -> Iterator[None]:
    _execute(server, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    try:
        yield
    finally:
        deadline = time.monotonic() + _WAIT
        while _query(server, "SELECT active FROM pg_replication_slots WHERE slot_name = %s", slot):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        _execute(server, f"SELECT pg_drop_replication_slot('{slot}')")


@contextmanager
def _program(
    server: EmbeddedServer, slot: str, command: list[Any], output: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, once it receives from the slot, and end it."""
    with subprocess.Popen(command, stdout=output) as process:
        try:
            deadline = time.monotonic() + _WAIT
            streaming = "SELECT state = 'streaming' FROM pg_stat_replication WHERE pid = (SELECT "
            streaming += "active_pid FROM pg_replication_slots WHERE slot_name = %s)"
            while not _query(server, streaming, slot):
                if time.monotonic() > deadline or process.poll() is not None:
                    raise AssertionError(f"{command[0]} did not begin")
                time.sleep(0.05)
            time.sleep(0.5)
            yield process
        finally:
            process.terminate()


def _query(server: EmbeddedServer, statement: str, *values: str) -> Any:
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(statement, values)
        row = cursor.fetchone()
        return row and row[0]
    finally:
        connection.close()


def _execute(server: EmbeddedServer, *statements: str) -> None:
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        for statement in statements:
            connection.cursor().execute(statement)
    finally:
        connection.close()


if __name__ == "__main__":
    with EmbeddedServer() as running, tempfile.TemporaryDirectory() as folder:
        print("\n".join(table(running, Path(folder), *map(int, sys.argv[1:]))))
