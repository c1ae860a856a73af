"""Fixtures of the mirror's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lakehouse import usable_format
from tests.support.mirrors import MirrorOf, Writer


@pytest.fixture(params=["local", "delta", "iceberg"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each runner and format of a mirror."""
    return usable_format(request.param)


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> MirrorOf:
    """A mirror of the log that the writer writes."""
    spark = None if engine == "local" else request.getfixturevalue("spark")
    return MirrorOf(spark, tmp_path, engine)


@pytest.fixture
def mirror(made: MirrorOf) -> MirrorOf:
    """The same mirror, beside a database that is made."""
    return made


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Writer of a log."""
    return Writer(tmp_path)
