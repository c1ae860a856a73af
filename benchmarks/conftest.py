"""How large the data are, and one core for everyone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from benchmarks.streams import Stream, stream
from benchmarks.tables import SIZES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--size", choices=list(SIZES), default="quick", help="of the data")


def pytest_configure(config: pytest.Config) -> None:
    if pgc.IMPL != "cython":
        raise pytest.UsageError("the benchmarks are of the compiled core, which is not built")
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
def streams(size: str) -> Callable[[str], Stream]:
    """Streams by name, of the run's size; each is read once."""
    read: dict[str, Stream] = {}

    def get(name: str) -> Stream:
        if name not in read:
            read[name] = stream(name, size)
        return read[name]

    return get
