"""Benchmarks of input of many shapes, from messages to record batches."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import pgwire_codec as pgc
from benchmarks.datasets import SIZES
from benchmarks.limit import skip_over
from benchmarks.measure import measure
from benchmarks.shapes import Shape, shapes

ROUNDS = 5
NAMES = [each.name for each in shapes(100)]


@pytest.fixture(scope="module")
def made(size: str) -> dict[str, Shape]:
    return {each.name: each for each in shapes(min(SIZES[size].accounts, 100_000))}


@pytest.mark.parametrize("name", NAMES)
def bench_shape(benchmark: BenchmarkFixture, made: dict[str, Shape], name: str) -> None:
    if name not in made:
        pytest.skip("the data of this size do not have as many subtransactions")
    shape = made[name]

    decoder = pgc.Decoder()

    def prepare() -> None:
        nonlocal decoder
        decoder = pgc.Decoder()
        for messages in shape.known:
            decoder.decode(messages)

    def step() -> None:
        for messages in shape.calls:
            changes = decoder.decode(messages)
            if shape.step == "to_arrow":
                for batch in changes:
                    batch.to_arrow()

    measure(
        benchmark,
        step,
        name=name,
        rows=shape.count,
        prepare=prepare,
        beside=None if shape.changes is None else skip_over(shape),
        rounds=ROUNDS,
        kind="shape",
        how=shape.unit,
    )
