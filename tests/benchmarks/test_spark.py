"""Spark's benchmark runs, on tiny data, and its page has all that is compared."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def test_tiny_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the session of the tests: to start another takes longer than all that is measured."""
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    from benchmarks import spark as benchmark

    monkeypatch.setattr(
        benchmark, "local_spark", lambda: contextlib.nullcontext(spark.newSession())
    )
    benchmark.main("tiny", str(tmp_path))
    page = (tmp_path / "benchmarks-spark.md").read_text("utf-8")
    assert page.strip() in capsys.readouterr().out
    lines = [line.split(" | ")[0] for line in page.splitlines()]
    for job in ("ready-made Arrow batches", "mapInArrow identity", "the survey", "from_json"):
        assert f"| {job}" in lines
    for job in ('format("pgoutput")', "decode_changes", "messages in, ready-made rows out"):
        assert lines.count(f"| {job}") >= 2
