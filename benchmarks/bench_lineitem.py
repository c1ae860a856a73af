"""Benchmarks of every step on TPC-H's lineitem: 16 columns, in text and in binary form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import pgwire_codec as pgc
from benchmarks import timed_steps
from benchmarks.change_sets import ChangeSet
from benchmarks.measure import measure, measure_change_set

KEY_AND_DATE = (0, 10)  # two columns of 16

pytestmark = pytest.mark.parametrize("form", ["text", "binary"])
in_batches = pytest.mark.parametrize(
    "rows", [10_000, 50_000, None], ids=["10000", "50000", "at once"]
)
ChangeSets = Callable[[str], ChangeSet]


@pytest.fixture
def lineitem(change_sets: ChangeSets, form: str) -> ChangeSet:
    return change_sets(f"lineitem {form}")


@in_batches
def bench_limit(benchmark: BenchmarkFixture, lineitem: ChangeSet, rows: int | None) -> None:
    cut = timed_steps.batches(lineitem, rows)
    measure_change_set(benchmark, timed_steps.limit(cut), lineitem, cut, name="limit", batch=rows)


@in_batches
def bench_scan(benchmark: BenchmarkFixture, lineitem: ChangeSet, rows: int | None) -> None:
    cut = timed_steps.batches(lineitem, rows)
    measure_change_set(benchmark, timed_steps.scan(cut), lineitem, cut, name="scan", batch=rows)


@in_batches
def bench_tuples(benchmark: BenchmarkFixture, lineitem: ChangeSet, rows: int | None) -> None:
    cut = timed_steps.batches(lineitem, rows)
    step = timed_steps.tuples(lineitem, cut)
    measure_change_set(benchmark, step, lineitem, cut, name="tuples", batch=rows)


@in_batches
def bench_decode(benchmark: BenchmarkFixture, lineitem: ChangeSet, rows: int | None) -> None:
    cut = timed_steps.batches(lineitem, rows)
    step = timed_steps.decode(lineitem, cut)
    measure_change_set(benchmark, step, lineitem, cut, name="decode", batch=rows)


@in_batches
def bench_decode_two(benchmark: BenchmarkFixture, lineitem: ChangeSet, rows: int | None) -> None:
    cut = timed_steps.batches(lineitem, rows)
    step = timed_steps.decode(lineitem, cut, wanted=KEY_AND_DATE)
    measure_change_set(benchmark, step, lineitem, cut, name="decode 2 of 16", batch=rows)


@in_batches
def bench_to_arrow(benchmark: BenchmarkFixture, lineitem: ChangeSet, rows: int | None) -> None:
    cut = timed_steps.batches(lineitem, rows)
    step = timed_steps.to_arrow(lineitem, rows)
    measure_change_set(benchmark, step, lineitem, cut, name="to_arrow", batch=rows)


def bench_decode_message(benchmark: BenchmarkFixture, lineitem: ChangeSet, form: str) -> None:
    messages = lineitem.messages.slice(0, 50_000).to_pylist()

    def step() -> None:
        for message in messages:
            pgc.decode_message(message)

    measure(
        benchmark,
        step,
        name="decode_message",
        rows=len(messages),
        size=sum(map(len, messages)),
        table="lineitem",
        form=form,
        operation="insert",
    )
