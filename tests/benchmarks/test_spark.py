"""Spark's benchmark on tiny data, and the figures on its page."""

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
    """Run in the session of the tests, because a start takes longer than all measurements."""
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    from benchmarks import spark_speed as benchmark

    monkeypatch.setattr(
        benchmark, "local_spark", lambda: contextlib.nullcontext(spark.newSession())
    )
    benchmark.main("tiny", str(tmp_path))
    page = (tmp_path / "benchmarks-spark.md").read_text("utf-8")
    assert page.strip() in capsys.readouterr().out
    lines = [line.split(" | ")[0] for line in page.splitlines()]
    for job in ("ready-made Arrow batches", "mapInArrow identity", "summary pass", "from_json"):
        assert f"| {job}" in lines
    for job in ('format("pgoutput")', "decode_changes", "messages in, ready-made rows out"):
        assert lines.count(f"| {job}") >= 2
