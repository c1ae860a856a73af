"""Spark's benchmark runs, on tiny data, and its page has all that is compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


def test_tiny_run(tmp_path: Path) -> None:
    for module in ("pyspark", "matplotlib"):
        pytest.importorskip(module, reason="needs the extras spark and bench")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark", "tiny", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "benchmarks-spark.md").read_text("utf-8")
    assert page.strip() in done.stdout
    lines = [line.split(" | ")[0] for line in page.splitlines()]
    for job in ("ready-made Arrow batches", "mapInArrow identity", "the survey", "from_json"):
        assert f"| {job}" in lines
    for job in ('format("pgoutput")', "decode_changes"):
        assert lines.count(f"| {job}") >= 2
