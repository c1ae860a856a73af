"""Every step on TPC-H's lineitem: 16 columns, in text and in binary form."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import pgwire_codec as pgc
from benchmarks import steps, tables
from benchmarks.measure import measure, measure_stream
from benchmarks.streams import Stream

KEY_AND_DATE = (0, 10)  # two columns of 16

pytestmark = pytest.mark.parametrize("form", ["text", "binary"])
in_batches = pytest.mark.parametrize(
    "rows", [10_000, 50_000, None], ids=["10000", "50000", "at once"]
)
Streams = Callable[[str], Stream]


@pytest.fixture
def lineitem(streams: Streams, form: str) -> Stream:
    return streams(f"lineitem {form}")


@in_batches
def bench_limit(benchmark: BenchmarkFixture, lineitem: Stream, rows: int | None) -> None:
    cut = steps.batches(lineitem, rows)
    measure_stream(benchmark, steps.limit(cut), lineitem, cut, name="limit", batch=rows)


@in_batches
def bench_scan(benchmark: BenchmarkFixture, lineitem: Stream, rows: int | None) -> None:
    cut = steps.batches(lineitem, rows)
    measure_stream(benchmark, steps.scan(cut), lineitem, cut, name="scan", batch=rows)


@in_batches
def bench_tuples(benchmark: BenchmarkFixture, lineitem: Stream, rows: int | None) -> None:
    cut = steps.batches(lineitem, rows)
    step = steps.tuples(lineitem, cut)
    measure_stream(benchmark, step, lineitem, cut, name="tuples", batch=rows)


@in_batches
def bench_decode(benchmark: BenchmarkFixture, lineitem: Stream, rows: int | None) -> None:
    cut = steps.batches(lineitem, rows)
    step = steps.decode(lineitem, cut)
    measure_stream(benchmark, step, lineitem, cut, name="decode", batch=rows)


@in_batches
def bench_decode_two(benchmark: BenchmarkFixture, lineitem: Stream, rows: int | None) -> None:
    cut = steps.batches(lineitem, rows)
    step = steps.decode(lineitem, cut, wanted=KEY_AND_DATE)
    measure_stream(benchmark, step, lineitem, cut, name="decode 2 of 16", batch=rows)


@in_batches
def bench_to_arrow(benchmark: BenchmarkFixture, lineitem: Stream, rows: int | None) -> None:
    cut = steps.batches(lineitem, rows)
    step = steps.to_arrow(lineitem, rows)
    measure_stream(benchmark, step, lineitem, cut, name="to_arrow", batch=rows)


def bench_decode_message(benchmark: BenchmarkFixture, lineitem: Stream, form: str) -> None:
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


def bench_encode_batch(benchmark: BenchmarkFixture, form: str, size: str) -> None:
    made = tables.lineitem(tables.SIZES[size])
    encoded = pa.array(pgc.encode_batch(made.relation, made.rows, binary=form == "binary"))
    chunks = made.rows.combine_chunks().to_batches(max_chunksize=50_000)

    def step() -> None:
        for chunk in chunks:
            pgc.encode_batch(made.relation, chunk, binary=form == "binary")

    measure(
        benchmark,
        step,
        name="encode_batch",
        rows=len(encoded),
        size=encoded.buffers()[2].size,
        table="lineitem",
        form=form,
        operation="insert",
        batch=50_000,
    )
