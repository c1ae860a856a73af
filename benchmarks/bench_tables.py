"""Benchmarks of other tables, of updates and deletes, and of transactions of one change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import pgwire_codec as pgc
from benchmarks import timed_steps
from benchmarks.change_sets import CHANGE_SETS, ChangeSet, small_transactions
from benchmarks.measure import measure, measure_change_set
from pgwire_codec._core.wire.scan import scan
from pgwire_codec.codec.message_array import to_message_arrays

ROWS = 10_000  # of a batch
others = pytest.mark.parametrize(
    "name", [name for name in CHANGE_SETS if name not in ("lineitem text", "lineitem binary")]
)
ChangeSets = Callable[[str], ChangeSet]


@others
def bench_decode(benchmark: BenchmarkFixture, change_sets: ChangeSets, name: str) -> None:
    change_set = change_sets(name)
    cut = timed_steps.batches(change_set, ROWS)
    step = timed_steps.decode(change_set, cut)
    measure_change_set(benchmark, step, change_set, cut, name="decode", batch=ROWS)


@others
def bench_to_arrow(benchmark: BenchmarkFixture, change_sets: ChangeSets, name: str) -> None:
    change_set = change_sets(name)
    cut = timed_steps.batches(change_set, ROWS)
    step = timed_steps.to_arrow(change_set, ROWS)
    measure_change_set(benchmark, step, change_set, cut, name="to_arrow", batch=ROWS)


@pytest.mark.parametrize("name", ["scan", "scan and resolve"])
def bench_small_transactions(benchmark: BenchmarkFixture, size: str, name: str) -> None:
    """Measure repeated Begin, Insert and Commit; each message counts as a row."""
    array = small_transactions(size)
    messages = to_message_arrays(array, pgc.Decoder.codec)[0]

    def only_scan() -> None:
        scan(messages)

    def resolve() -> None:
        pgc.Decoder().decode(array)

    measure(
        benchmark,
        only_scan if name == "scan" else resolve,
        name=name,
        rows=len(messages),
        size=int(messages.offsets[-1]),
        table="accounts",
        form="text",
        operation="transactions of one",
    )
