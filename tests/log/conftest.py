"""Fixtures of the tests of compactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwire_codec.log import index_check, index_renewal, index_writer, joining
from tests.support.compaction import PART_BYTES, build_log


@pytest.fixture(scope="module")
def small_index() -> Iterator[None]:
    """Files of the index with three segments."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (index_writer, index_check, index_renewal):
            patch.setattr(module, "INDEXED_SEGMENTS", 3)
        yield


@pytest.fixture(params=PART_BYTES)
def part_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Size of a part of the joined segments."""
    chosen: int = request.param
    monkeypatch.setattr(joining, "PART_BYTES", chosen)
    return chosen


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log of eight small segments."""
    build_log(tmp_path / "log")
    return tmp_path / "log"
