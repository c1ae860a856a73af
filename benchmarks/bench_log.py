"""Benchmark of reading a log, with and without checksums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import pgwire_codec as pgc
from benchmarks.change_sets import ChangeSet
from benchmarks.measure import measure
from pgwire_codec import log

TRANSACTION = 10_000  # rows


def write(change_set: ChangeSet, folder: Path) -> None:
    """Write the changes as a log of transactions, with the default sizes of a capture."""
    source = log.LogSource("1", 1, "benchmark", "slot", 180_000)
    time = np.datetime64("2026-01-01", "us")
    with log.LogWriter(folder, source) as writer:
        for number, first in enumerate(range(0, len(change_set.messages), TRANSACTION), 1):
            lsn = 1000 * number
            messages = [
                pgc.encode_message(pgc.Begin(lsn, 0, number)),
                pgc.encode_message(change_set.relation),
                *change_set.messages.slice(first, TRANSACTION).to_pylist(),
                pgc.encode_message(pgc.Commit(0, lsn, lsn + 8, 0)),
            ]
            count = len(messages)
            writer.append(messages, np.full(count, lsn, np.uint64), np.full(count, time))


@pytest.fixture(params=["text", "binary"])
def form(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def folder(change_sets: Callable[[str], ChangeSet], form: str, tmp_path: Path) -> Path:
    write(change_sets(f"lineitem {form}"), tmp_path / "log")
    return tmp_path / "log"


def bench_read(benchmark: BenchmarkFixture, folder: Path, form: str) -> None:
    partitions = log.Log(folder).plan().partitions

    def read() -> None:
        for partition in partitions:
            for batch in partition.decode():
                batch.to_arrow()

    def read_unchecked() -> None:
        with mock.patch("pgwire_codec.log.ipc_file.check_extent"):
            read()

    segments = log.Log(folder).segments
    measure(
        benchmark,
        read,
        kind="log",
        name="log",
        rows=sum(count.inserts for each in segments for count in each.tables),
        size=sum(each.message_bytes for each in segments),
        beside=read_unchecked,
        table="lineitem",
        form=form,
        operation="insert",
    )
