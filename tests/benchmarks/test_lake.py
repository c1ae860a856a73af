"""The benchmark of the lake on tiny data."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cpuinfo", reason="needs pytest-benchmark")
pytest.importorskip("psutil", reason="needs the extra bench")
pytest.importorskip("deltalake", reason="needs the extra bench")

from benchmarks import lake_commands, lake_cost, lake_data, lake_peers, lake_scan, lake_speed
from benchmarks.lake_page import PAGE
from benchmarks.peers.programs import NotMeasuredError

TINY = lake_speed.SIZES["tiny"]
PAIR = r"[\d.]+ / [\d.]+"


def missing(*arguments: Any) -> Any:
    raise NotMeasuredError("it is left out")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in this process, because imports in others take longer than all measurements."""

    def run(job: Callable[..., Any], *arguments: Any) -> Any:
        return job(*arguments)

    monkeypatch.setattr(lake_speed, "in_child", run)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_without_spark_and_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_lines(*arguments: Any) -> Iterator[str]:
        yield from ()

    monkeypatch.setattr(lake_speed.lake_spark, "mirror_twice", missing)
    monkeypatch.setattr(lake_speed.lake_spark, "turns", missing)
    monkeypatch.setattr(lake_commands, "check_spark", missing)
    monkeypatch.setattr(lake_scan, "by_duckdb", missing)
    monkeypatch.setattr(lake_peers, "snapshots", no_lines)
    monkeypatch.setattr(lake_peers, "merges", no_lines)
    monkeypatch.setitem(lake_speed.SIZES, "full", TINY)
    lake_speed.main("full", str(tmp_path))
    page = (tmp_path / PAGE).read_text("utf-8")
    assert page.strip() == capsys.readouterr().out.strip()
    reason = "not measured: it is left out"
    mirrors = re.findall(
        rf"^\| (.+): (.+) \| ([\d,]+) \| {PAIR} \| (?:{PAIR} \| \d+%|– \| –) \| {reason} ",
        page,
        re.MULTILINE,
    )
    steps = {
        "snapshot of lineitem": "2,000",
        "snapshot of a table": "2,000",
        "changes of a table": "500",
        "snapshot of 4 tables": "400",
        "changes of 4 tables": "200",
    }
    forms = ("Delta", "Parquet", "Iceberg")
    assert mirrors == [(step, form, changes) for step, changes in steps.items() for form in forms]
    assert re.search(rf"^\| --runner local \| 6 \| 600 \| {PAIR} \| \d+% \|$", page, re.MULTILINE)
    assert f"| --runner spark | 6 | 600 | {reason} |" in page
    turns = re.findall(rf"^\| local \| (.+?) \| {PAIR} \| [\d.]+ \| \d+ \|$", page, re.MULTILINE)
    assert turns == ["11 to 20", "15 to 24"]
    assert f"| Spark | {reason} |" in page
    scans = re.findall(rf"^\| (.+) \| \d+ \| [\d.]+ \| {reason} \|$", page, re.MULTILINE)
    assert scans == ["after all turns", "written at once"]


@pytest.mark.slow
@pytest.mark.thorough
def test_spark(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")
    lake_data.write_lineitem(tmp_path / "log", TINY.lineitem)
    for line in lake_speed._mirrored(tmp_path, "snapshot", 0, TINY.lineitem):
        reason = r"not measured: Iceberg has no runtime .*|not measured: mvn is .*"
        assert re.search(rf"( \| {PAIR}){{3}} \| \d+% \|$|: Iceberg .*({reason})", line), line
    for line in lake_speed.turns(tmp_path / "turns", *TINY.scattered):
        assert re.match(rf"\| (local|Spark) \| \d+ to \d+ \| {PAIR} \| ", line), line
    for line in lake_speed.scans(tmp_path / "turns" / "local"):
        assert re.search(r"( \| [\d.]+){3} \|$", line), line


@pytest.mark.slow
@pytest.mark.thorough
def test_peers(tmp_path: Path) -> None:
    """Peers whose packages or jars are missing have the reason in place of figures."""
    pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    for name, lines in (
        ("commands", lake_speed.commands(_new(tmp_path / "shop"), *TINY.shop)),
        ("snapshots", lake_peers.snapshots(_new(tmp_path / "server"), TINY.lineitem)),
        ("merges", lake_peers.merges(_new(tmp_path / "m"), *TINY.backlog, lake_speed.ALL_KINDS)),
    ):
        made = list(lines)
        assert len(made) == {"commands": 3, "snapshots": 6, "merges": 5}[name]
        for line in made:
            assert re.search(rf" \| {PAIR} \| .*\d+% \|$| \| not measured: .+ \|$", line), line


def test_a_child_is_another_process() -> None:
    assert lake_cost.in_child(os.getpid) != os.getpid()


@pytest.mark.slow
def test_a_command_counts_processes_that_outlive_it() -> None:
    busy = "import time\nwhile time.process_time() < 0.6: pass"
    start = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {busy!r}])"
    assert lake_cost.command([sys.executable, "-c", start]).cpu > 0.6


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder
