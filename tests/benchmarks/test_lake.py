"""The benchmark of a mirror in one process on tiny data."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cpuinfo", reason="needs pytest-benchmark")

from benchmarks import lake_speed


@pytest.mark.slow
@pytest.mark.thorough
def test_tiny_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run in this process, because imports in others take longer than all measurements."""

    def here(job: Callable[..., Any], *arguments: Any) -> Any:
        return job(*arguments)

    monkeypatch.setattr(lake_speed, "_in_child", here)
    monkeypatch.setitem(lake_speed.SIZES, "full", lake_speed.SIZES["tiny"])
    lake_speed.main("full", str(tmp_path))
    page = (tmp_path / lake_speed.PAGE).read_text("utf-8")
    assert page.strip() == capsys.readouterr().out.strip()
    speeds = re.findall(r"^\| (.+) of (.+): (.+?) \| ([\d,]+) \|.* (\d+)% \|$", page, re.MULTILINE)
    assert [tuple(speed[:4]) for speed in speeds] == [
        ("snapshot", "lineitem", "limit", "2,000"),
        ("snapshot", "lineitem", "into an empty Delta table", "2,000"),
        ("snapshot", "lineitem", "into a Parquet history", "2,000"),
        ("snapshot", "a table", "limit", "2,000"),
        ("snapshot", "a table", "into Delta", "2,000"),
        ("changes", "a table", "limit", "500"),
        ("changes", "a table", "into Delta", "500"),
        ("snapshot", "4 tables", "limit", "400"),
        ("snapshot", "4 tables", "into Delta", "400"),
        ("changes", "4 tables", "limit", "200"),
        ("changes", "4 tables", "into Delta", "200"),
    ]
    assert all(share == "100" for *_, name, _, share in speeds if name == "limit")
    turns = re.findall(
        r"^\| (\d+ to \d+) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE
    )
    assert [first for first, *_ in turns] == ["4 to 13", "5 to 14"]
    assert all(float(cpu) > 0 and float(size) > 0 for _, cpu, size in turns)


def test_a_child_is_another_process() -> None:
    assert lake_speed._in_child(os.getpid) != os.getpid()
