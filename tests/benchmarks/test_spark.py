"""Spark's benchmark on tiny data, and the figures on its page."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.thorough
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
        benchmark, "local_spark", lambda _: contextlib.nullcontext(spark.newSession())
    )
    benchmark.main("tiny", str(tmp_path))
    page = (tmp_path / "benchmarks-spark.md").read_text("utf-8")
    assert page.strip() in capsys.readouterr().out
    lines = [line.split(" | ")[0] for line in page.splitlines()]
    for job in ("ready-made Arrow batches", "mapInArrow identity", "summary pass", "from_json"):
        assert f"| {job}" in lines
    for job in ('format("pgoutput")', "decode_changes", "messages in, ready-made rows out"):
        assert lines.count(f"| {job}") >= 2


@pytest.mark.slow
@pytest.mark.thorough
def test_large_logs(tmp_path: Path) -> None:
    """In processes of their own, whose memory is measured."""
    pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    page = tmp_path / "benchmarks-spark.md"
    page.write_text("# Page\n\n## Large logs\n\nold\n\n## More\n\nkept\n", "utf-8")
    command = [sys.executable, "-m", "benchmarks.large_logs", "tiny", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    first, section, other = page.read_text("utf-8").split("## ")
    assert (first, other) == ("# Page\n\n", "More\n\nkept\n")
    assert section.removeprefix("Large logs\n\n").strip() == done.stdout.strip()
    figures = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert len(figures) == 17
    names = (
        "scanning",
        "CPU",
        "pickled partition",
        "requests",
        "bytes read",
        "read once",
        "20 tables",
        "on disk",
    )
    for name in names:
        assert any(name in " ".join(line) for line in figures), name


def test_sections_of_a_page(tmp_path: Path) -> None:
    from benchmarks import sections

    page = tmp_path / "folder" / "page.md"
    sections.write(page, "B", "b\n")
    sections.write(page, None, "# Title\n\nText.\n")
    sections.write(page, "C", "c\n")
    sections.write(page, "B", "new\n")
    assert page.read_text("utf-8") == "# Title\n\nText.\n\n## B\n\nnew\n\n## C\n\nc\n"
