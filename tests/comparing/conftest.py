"""Fixtures of the tests of comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compared_shop import Shop, fill
from tests.support.lakehouse import usable_format
from tests.support.servers import database


@pytest.fixture(params=["local", "iceberg"])
def engine(request: pytest.FixtureRequest) -> str:
    """Writer of the tables that are compared, with whose runner they are."""
    return usable_format(request.param)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> Iterator[Shop]:
    spark = None if engine == "local" else request.getfixturevalue("spark")
    with database(request.getfixturevalue("pg18")) as made:
        fill(made)
        yield Shop(made, spark, tmp_path, engine)
