"""Size of the data, one core for all libraries, and cached change sets."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from benchmarks.change_sets import ChangeSet, change_set
from benchmarks.datasets import SIZES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--size", choices=list(SIZES), default="quick", help="of the data")


def pytest_configure(config: pytest.Config) -> None:
    if pgc.IMPL != "cython":
        raise pytest.UsageError("the benchmarks need the compiled core, which is not built")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[object], output_json: dict[str, object]
) -> None:
    output_json["size"] = config.getoption("--size")


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> str:
    chosen: str = request.config.getoption("--size")
    return chosen


@pytest.fixture(scope="session")
def change_sets(size: str) -> Callable[[str], ChangeSet]:
    """Return a function that reads a change set of the run's size by name, once."""
    read: dict[str, ChangeSet] = {}

    def get(name: str) -> ChangeSet:
        if name not in read:
            read[name] = change_set(name, size)
        return read[name]

    return get
