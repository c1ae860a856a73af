"""Measurement of one step, and of the limit beside it, in rounds.

Each round measures the limit on the same messages, and then the step. A slower machine slows both,
and their ratio belongs to the same moment. CPU time is measured beside the clock's, because other
programs do not add to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Any, Final

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.change_sets import ChangeSet
from benchmarks.timed_steps import Batch, Step, limit

ROUNDS: Final = 7


def measure(
    benchmark: BenchmarkFixture,
    step: Step,
    *,
    name: str,
    rows: int,
    size: int = 0,
    prepare: Step | None = None,
    beside: Step | None = None,
    rounds: int = ROUNDS,
    **about: Any,
) -> None:
    """Measure a step.

    Parameters
    ----------
    name : str
        Name of the step in the results.
    rows, size : int
        Number of rows and bytes of messages that the step reads.
    prepare : callable, optional
        Step that comes first in each round and is not measured.
    beside : callable, optional
        Step measured directly before in each round: the limit.
    about
        Other attributes of :class:`benchmarks.results.Result`.
    """
    cpu: list[float] = []
    other: list[tuple[float, float]] = []  # by the clock, of CPU

    def before() -> None:
        if prepare is not None:
            prepare()
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


def measure_change_set(
    benchmark: BenchmarkFixture,
    step: Step,
    change_set: ChangeSet,
    cut: Sequence[Batch],
    **about: Any,
) -> None:
    """Measure a step on batches of a change set, with the limit beside it."""
    measure(
        benchmark,
        step,
        rows=sum(len(batch.rows) for batch in cut),
        size=sum(batch.size for batch in cut),
        beside=limit(cut),
        table=change_set.table,
        form=change_set.form,
        operation=change_set.operation,
        **about,
    )
