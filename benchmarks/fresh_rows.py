"""Measures the age of rows in a lake beside a living server: from COMMIT to the Delta commit.

Called as ``python -m benchmarks.fresh_rows MINUTES RUNNER FOLDER [OPTION …]``, by ``make
bench-fresh``; the options are those of ``mirror``. It prints a section, and writes it to
``FOLDER/benchmarks-lake.md``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import lake_page, sections
from benchmarks.lake_commands import CLI
from benchmarks.lake_cost import process_cpu
from benchmarks.machine import machine
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.demo.server import EmbeddedServer

TABLES = 10
RATE = 100  # transactions a second
_OLD = 500  # pairs of transactions between the insert of a row and its update
_WINDOW = 30.0  # seconds of a line
_START = 60.0  # seconds for a program to begin, or to catch up
_WARM_UP = 5.0

HEADING = "The age of rows beside a living server"

TEXT = """\
`make bench-fresh MINUTES={minutes:g} RUNNER={runner}` writes this section ({date}, on {machine};
load average before it {load:.1f}). A client commits {rate} transactions a second, each with an
insert or an update of one row of {tables} tables. `capture` and `mirror --runner {runner}` run
beside the server. The age of a row is the time from the return of COMMIT to the modification time
of the Delta commit that has it.

{lines}

- CPU is milliseconds a second. Memory is the resident memory at the end of the half minute.
- All {count:,} transactions: p50 {p50:.2f} s, p99 {p99:.2f} s. {commits:.1f} commits a second and
  table.
- At the end the lake has {files:,} files with {lake_bytes:.1f} MB, and the log {log_bytes:.1f} MB.
"""

HEADER = [
    "| from minute | p50, s | p99, s | largest, s | capture: CPU | memory, MB | mirror: CPU "
    "| memory, MB |",
    "|---|--:|--:|--:|--:|--:|--:|--:|",
]


@dataclass(frozen=True)
class _Sample:
    """CPU seconds and resident bytes of capture and mirror at one time."""

    time: float
    cpu: list[float]
    resident: list[int]


def main(minutes: str, runner: str, folder: str, *options: str) -> None:
    load = psutil.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="pgwire-bench-") as place:
        figures = _measure(Path(place), float(minutes) * 60, runner, options)
    text = TEXT.format(
        minutes=float(minutes),
        runner=runner,
        date=date.today().isoformat(),
        machine=machine(),
        load=load,
        rate=RATE,
        tables=TABLES,
        **figures,
    )
    print(text)
    sections.write(Path(folder, lake_page.PAGE), HEADING, text)


def _measure(
    place: Path, seconds: float, runner: str, options: tuple[str, ...]
) -> dict[str, object]:
    """Run the load, and return the figures of the section."""
    log, lake = place / "log", place / "lake"
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        _create(server)
        source = ["--dsn", server.dsn, "--slot", "s", "--publication", "p"]
        quiet = ["--json", "--report-seconds", "1000"]
        capture = _program(place, "capture", *source, "--log", str(log), *quiet)
        programs = [stack.enter_context(capture)]
        _wait(lambda: (log / "manifest.json").exists(), "capture")
        if runner == "spark":
            options = ("--checkpoint", str(place / "checkpoint"), *options)
        target = ["--log", str(log), "--to", f"delta:{lake}", "--runner", runner, "--json"]
        _commit(server, range(2 * TABLES))  # a mirror refuses names that no relation has
        mirror = _program(place, "mirror", *target, *options)
        programs.append(stack.enter_context(mirror))
        _wait(lambda: len(_commits(lake)) >= TABLES, "mirror")
        first = 2 * TABLES
        warm = _commit(server, range(first, first + int(RATE * _WARM_UP)))
        first += len(warm)
        with _sampling(programs) as samples:
            committed = _commit(server, range(first, first + int(RATE * seconds)))
            time.sleep(0.1)  # for the last sample
        number_of_commits = len(_commits(lake))
        deadline = time.monotonic() + _START
        while len(ages := _ages(lake, first, committed)) < len(committed):
            if time.monotonic() > deadline:
                raise AssertionError(f"the lake has {len(ages)} of {len(committed)} transactions")
            time.sleep(2)
        for program in programs:
            if program.poll() is not None:
                raise AssertionError(f"{program.args!r} has ended")
    files = [path for path in lake.rglob("*") if path.is_file()]
    p50, p99 = np.percentile(ages, [50, 99])
    return {
        "lines": "\n".join([*HEADER, *_lines(ages, committed, samples)]),
        "count": len(ages),
        "p50": p50,
        "p99": p99,
        "commits": number_of_commits / TABLES / (seconds + _WARM_UP),
        "files": len(files),
        "lake_bytes": sum(path.stat().st_size for path in files) / 1e6,
        "log_bytes": sum(path.stat().st_size for path in log.iterdir()) / 1e6,
    }


def _lines(
    ages: npt.NDArray[np.float64], committed: npt.NDArray[np.float64], samples: list[_Sample]
) -> Iterator[str]:
    """Yield a line for each half minute."""
    windows = np.arange(len(committed)) // int(RATE * _WINDOW)
    for number, (before, after) in enumerate(pairwise(samples)):
        found = ages[windows == number]
        p50, p99 = np.percentile(found, [50, 99])
        cells = [f"{number * _WINDOW / 60:g}", f"{p50:.2f}", f"{p99:.2f}", f"{found.max():.2f}"]
        for index in range(2):
            used = (after.cpu[index] - before.cpu[index]) / (after.time - before.time)
            cells += [f"{used * 1e3:.0f}", f"{after.resident[index] / 1e6:.0f}"]
        yield lake_page.cells(*cells)


def _create(server: EmbeddedServer) -> None:
    columns = "(k bigint PRIMARY KEY, n bigint, note text, amount numeric(12, 2), at timestamptz)"
    _execute(
        server,
        *(f"CREATE TABLE t{number} {columns}" for number in range(TABLES)),
        "CREATE PUBLICATION p FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )


def _execute(server: EmbeddedServer, *statements: str) -> None:
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        for statement in statements:
            connection.cursor().execute(statement)
    finally:
        connection.close()


def _commit(server: EmbeddedServer, numbers: range) -> npt.NDArray[np.float64]:
    """Commit transactions at the rate; return the time at which each COMMIT returned."""
    connection = connect(server.dsn)
    try:
        connection.autocommit = True
        cursor = connection.cursor()
        committed = []
        begun = time.perf_counter()
        for place, number in enumerate(numbers):
            time.sleep(max(0.0, begun + place / RATE - time.perf_counter()))
            cursor.execute(*_statement(number))
            committed.append(time.time())
        return np.array(committed)
    finally:
        connection.close()


def _statement(number: int) -> tuple[str, tuple[object, ...]]:
    """Return the statement of a transaction, whose number is in the column ``n`` for good.

    Each second one updates an old row that no other one updates.
    """
    pair, is_update = divmod(number, 2)
    table, key = f"t{pair % TABLES}", pair
    if is_update:
        key = pair - _OLD
        if key >= 0:
            statement = f"UPDATE {table} SET n = %s, note = %s, at = now() WHERE k = %s"
            return statement, (number, f"changed by {number}", key)
    statement = f"INSERT INTO {table} VALUES (%s, %s, %s, %s, now())"
    return statement, (key, number, f"note of {number}", number)


def _ages(lake: Path, first: int, committed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the ages of the rows of transactions from a first one on, as far as the lake has them.

    A row has its transaction's number. Rows that were written again count by their first commit.
    """
    times = np.full(len(committed), np.inf)
    for commit in _commits(lake):
        at, table = commit.stat().st_mtime, commit.parent.parent
        for line in commit.read_text("utf-8").splitlines():
            added: dict[str, Any] | None = json.loads(line).get("add")
            if added is None or not added.get("dataChange", True):
                continue
            column = pq.read_table(table / unquote(added["path"]), columns=["n"]).column("n")
            numbers = pc.cast(column, "int64").to_numpy() - first
            numbers = numbers[(numbers >= 0) & (numbers < len(times))]
            times[numbers] = np.minimum(times[numbers], at)
    known = np.isfinite(times)
    ages: npt.NDArray[np.float64] = (times - committed)[known]
    return ages


def _commits(lake: Path) -> list[Path]:
    """Return the commits of the mirrored tables."""
    return sorted(lake.glob("public/*/_delta_log/*.json"))


@contextmanager
def _sampling(programs: list[subprocess.Popen[bytes]]) -> Iterator[list[_Sample]]:
    """Collect a sample at the beginning, and one after each window."""
    samples: list[_Sample] = []
    ended = threading.Event()

    def sample() -> None:
        trees = [_tree(program.pid) for program in programs]
        cpu = [sum(map(process_cpu, tree)) for tree in trees]
        resident = [sum(map(_resident, tree)) for tree in trees]
        samples.append(_Sample(time.monotonic(), cpu, resident))

    def run() -> None:
        begun = time.monotonic()
        while not ended.wait(max(0.0, begun + len(samples) * _WINDOW - time.monotonic())):
            sample()

    sample()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


@contextmanager
def _program(place: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the package, and end it."""
    output = place / f"{arguments[0]}.out"
    with (
        output.open("wb") as file,
        subprocess.Popen([*CLI, *arguments], stdout=file, stderr=file) as process,
    ):
        try:
            yield process
        except BaseException:
            print(output.read_text("utf-8", "replace")[-4000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(_START)


def _wait(condition: Any, name: str) -> None:
    deadline = time.monotonic() + _START
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{name} did not begin")
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
