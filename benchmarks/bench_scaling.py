"""Cost of a row by the number of rows, peak memory, and the gain of a second core."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import timed_steps
from benchmarks.change_sets import ChangeSet, path_of
from benchmarks.datasets import SIZES
from benchmarks.measure import measure, measure_change_set
from benchmarks.timed_steps import Step

BATCH = 10_000
MIN_ROWS = 200_000  # of a round
ChangeSets = Callable[[str], ChangeSet]


@pytest.mark.parametrize("how", ["in batches", "at once"])
@pytest.mark.parametrize("rows", [10_000, 100_000, 1_000_000, 10_000_000])
def bench_cost_of_a_row(
    benchmark: BenchmarkFixture, change_sets: ChangeSets, size: str, rows: int, how: str
) -> None:
    """Measure typed decode of lineitem, in batches of 10,000 rows or in one call."""
    if rows > SIZES[size].max_rows:
        pytest.skip(f"--size={size} goes up to {SIZES[size].max_rows:,} rows")
    # A round is long enough to be measured, and never decodes the same rows twice, because branch
    # prediction would learn them.
    change_set = change_sets("lineitem text").repeated(max(rows, MIN_ROWS))
    cut = timed_steps.batches(change_set, BATCH if how == "in batches" else rows)
    step = timed_steps.decode(change_set, cut)
    name = f"decode {rows} {how}"
    measure_change_set(
        benchmark, step, change_set, cut, name=name, kind="cost", of=rows, how=how, rounds=5
    )


@pytest.mark.parametrize("form", ["text", "binary"])
def bench_memory(
    benchmark: BenchmarkFixture, change_sets: ChangeSets, size: str, form: str
) -> None:
    """Measure the peak memory of a process that decodes all of lineitem at once."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the high-water mark is read from /proc")
    change_sets(f"lineitem {form}")
    sizes: list[dict[str, int]] = []

    def step() -> None:
        path = path_of(f"lineitem {form}", size)
        command = [sys.executable, "-m", "benchmarks.peak_memory", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        sizes.append(json.loads(done.stdout))

    measure(
        benchmark,
        step,
        name="memory",
        rows=len(change_sets(f"lineitem {form}").messages),
        kind="memory",
        table="lineitem",
        form=form,
        rounds=5,
        sizes=sizes,
    )


@pytest.mark.parametrize("name", ["decode", "to_arrow"])
@pytest.mark.parametrize("how", ["threads=2", "two decoders"])
def bench_two_threads(
    benchmark: BenchmarkFixture, change_sets: ChangeSets, name: str, how: str
) -> None:
    """Measure all of lineitem by two threads, and beside it by one."""
    change_set = change_sets("lineitem text")

    def made(part: ChangeSet, rows: int | None, **options: object) -> Step:
        if name == "decode":
            return timed_steps.decode(part, timed_steps.batches(part, rows), **options)
        return timed_steps.to_arrow(part, rows, **options)

    if how == "threads=2":
        one, two = made(change_set, None), made(change_set, None, threads=2)
    else:
        half = len(change_set.messages) // 2
        work = [made(change_set.first(half), BATCH), made(change_set.rest(half), BATCH)]

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
        rows=len(change_set.messages),
        beside=one,
        kind="threads",
        table="lineitem",
        form="text",
    )
