"""Other shapes of tables, updates and deletes, and transactions of one change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import pgwire_codec as pgc
from benchmarks import steps
from benchmarks.measure import measure, measure_stream
from benchmarks.streams import STREAMS, Stream, small_transactions
from pgwire_codec._core.wire.scan import scan
from pgwire_codec.codec.message_array import to_message_arrays

ROWS = 10_000  # of a batch
others = pytest.mark.parametrize(
    "name", [name for name in STREAMS if name not in ("lineitem text", "lineitem binary")]
)
Streams = Callable[[str], Stream]


@others
def bench_decode(benchmark: BenchmarkFixture, streams: Streams, name: str) -> None:
    stream = streams(name)
    cut = steps.batches(stream, ROWS)
    step = steps.decode(stream, cut)
    measure_stream(benchmark, step, stream, cut, name="decode", batch=ROWS)


@others
def bench_to_arrow(benchmark: BenchmarkFixture, streams: Streams, name: str) -> None:
    stream = streams(name)
    cut = steps.batches(stream, ROWS)
    step = steps.to_arrow(stream, ROWS)
    measure_stream(benchmark, step, stream, cut, name="to_arrow", batch=ROWS)


@pytest.mark.parametrize("name", ["scan", "scan and resolve"])
def bench_small_transactions(benchmark: BenchmarkFixture, size: str, name: str) -> None:
    """Begin, Insert, Commit, and again: what counts as a row here is a message."""
    array = small_transactions(size)
    messages = to_message_arrays(array)[0]

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
