"""Measuring one step, and the limit beside it, round by round.

Each round measures the limit on the same messages, and then the step: what slows the machine slows
both, and their ratio is that of the same moment. CPU time is taken beside the time of the clock:
on a busy machine it still is the step's own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Any, Final

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.steps import Batch, Step, limit
from benchmarks.streams import Stream

ROUNDS: Final = 7


def measure(
    benchmark: BenchmarkFixture,
    step: Step,
    *,
    name: str,
    rows: int,
    size: int = 0,
    beside: Step | None = None,
    rounds: int = ROUNDS,
    **about: Any,
) -> None:
    """Measure a step.

    Parameters
    ----------
    name : str
        Of the step, in the table of results.
    rows, size : int
        How many rows, and bytes of messages, the step reads.
    beside : callable, optional
        What is measured just before the step in each round: the limit.
    about
        What else tells this measurement from others.
    """
    cpu: list[float] = []
    other: list[tuple[float, float]] = []  # by the clock, of CPU

    def before() -> None:
        if beside is not None:
            start, cpu_start = perf_counter(), process_time()
            beside()
            other.append((perf_counter() - start, process_time() - cpu_start))

    def run() -> None:
        start = process_time()
        step()
        cpu.append(process_time() - start)

    benchmark.pedantic(run, setup=before, rounds=rounds, warmup_rounds=1)
    benchmark.extra_info.update(
        step=name,
        rows=rows,
        bytes=size,
        cpu_seconds=cpu[-rounds:],
        beside_seconds=[clock for clock, _ in other[-rounds:]],
        beside_cpu_seconds=[of_cpu for _, of_cpu in other[-rounds:]],
        load=os.getloadavg()[0],
        **about,
    )


def measure_stream(
    benchmark: BenchmarkFixture, step: Step, stream: Stream, cut: Sequence[Batch], **about: Any
) -> None:
    """Measure a step that goes over batches of a stream, with the limit beside it."""
    measure(
        benchmark,
        step,
        rows=sum(len(batch.rows) for batch in cut),
        size=sum(batch.size for batch in cut),
        beside=limit(cut),
        table=stream.table,
        form=stream.form,
        operation=stream.operation,
        **about,
    )
