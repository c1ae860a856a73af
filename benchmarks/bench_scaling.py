"""What a row costs among many, what memory it takes, and what a second core gives."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import steps
from benchmarks.measure import measure, measure_stream
from benchmarks.steps import Step
from benchmarks.streams import Stream, path_of
from benchmarks.tables import SIZES

BATCH = 10_000
LEAST_ROWS = 200_000  # of a round
Streams = Callable[[str], Stream]


@pytest.mark.parametrize("how", ["in batches", "at once"])
@pytest.mark.parametrize("rows", [10_000, 100_000, 1_000_000, 10_000_000])
def bench_cost_of_a_row(
    benchmark: BenchmarkFixture, streams: Streams, size: str, rows: int, how: str
) -> None:
    """Typed decode of lineitem, in batches of 10,000 rows, or all rows in one call."""
    if rows > SIZES[size].most_rows:
        pytest.skip(f"--size={size} goes up to {SIZES[size].most_rows:,} rows")
    # A round is long enough to be measured, and never decodes the same rows twice: the processor
    # would learn them.
    stream = streams("lineitem text").repeated(max(rows, LEAST_ROWS))
    cut = steps.batches(stream, BATCH if how == "in batches" else rows)
    step = steps.decode(stream, cut)
    name = f"decode {rows} {how}"
    measure_stream(benchmark, step, stream, cut, name=name, kind="cost", of=rows, how=how, rounds=5)


@pytest.mark.parametrize("form", ["text", "binary"])
def bench_memory(benchmark: BenchmarkFixture, streams: Streams, size: str, form: str) -> None:
    """The most memory that a process has while it decodes all of lineitem at once."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the high-water mark is read from /proc")
    streams(f"lineitem {form}")
    told: list[dict[str, int]] = []

    def step() -> None:
        path = path_of(f"lineitem {form}", size)
        command = [sys.executable, "-m", "benchmarks.memory", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        told.append(json.loads(done.stdout))

    measure(
        benchmark,
        step,
        name="memory",
        rows=len(streams(f"lineitem {form}").messages),
        kind="memory",
        table="lineitem",
        form=form,
        rounds=5,
        told=told,
    )


@pytest.mark.parametrize("name", ["decode", "to_arrow"])
@pytest.mark.parametrize("how", ["threads=2", "two decoders"])
def bench_two_threads(benchmark: BenchmarkFixture, streams: Streams, name: str, how: str) -> None:
    """All of lineitem by two threads; beside it by one."""
    stream = streams("lineitem text")

    def made(part: Stream, rows: int | None, **options: object) -> Step:
        if name == "decode":
            return steps.decode(part, steps.batches(part, rows), **options)
        return steps.to_arrow(part, rows, **options)

    if how == "threads=2":
        one, two = made(stream, None), made(stream, None, threads=2)
    else:
        half = len(stream.messages) // 2
        work = [made(stream.first(half), BATCH), made(stream.rest(half), BATCH)]

        def one() -> None:
            for each in work:
                each()

        def two() -> None:
            threads = [threading.Thread(target=each) for each in work]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    measure(
        benchmark,
        two,
        name=f"{name}, {how}",
        rows=len(stream.messages),
        beside=one,
        kind="threads",
        table="lineitem",
        form="text",
    )
