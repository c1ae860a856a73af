"""The benchmark of the age of rows, for a few seconds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("cpuinfo", reason="needs pytest-benchmark")
pytest.importorskip("psutil", reason="needs the extra bench")
pytest.importorskip("deltalake", reason="needs the extra bench")

from benchmarks import fresh_rows, lake_page, sections


def test_each_update_is_of_a_row_of_its_own() -> None:
    rows: dict[tuple[str, int], int] = {}
    for number in range(4_000):
        statement, values = fresh_rows._statement(number)
        table = statement.split()[2 if statement.startswith("INSERT") else 1]
        if statement.startswith("INSERT"):
            key, n, *_ = values
            assert (table, key) not in rows
        else:
            n, _, key = values
            assert rows[table, int(str(key))] % 2 == 0
        rows[table, int(str(key))] = int(str(n))
    assert len(rows) < 3_000


def test_a_section_replaces_itself(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    sections.write_all(page, "# Page\n\nText.\n\n## One\n\n1\n\n## Two\n\n2\n")
    sections.write(page, "Own", "3\n")
    sections.write_all(page, "# Page\n\nNew.\n\n## One\n\n4\n\n## Two\n\n5\n")
    expected = "# Page\n\nNew.\n\n## One\n\n4\n\n## Two\n\n5\n\n## Own\n\n3\n"
    assert page.read_text("utf-8") == expected


@pytest.mark.slow
@pytest.mark.thorough
def test_a_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fresh_rows, "_WINDOW", 1.0)
    monkeypatch.setattr(fresh_rows, "_WARM_UP", 0.2)
    fresh_rows.main("0.05", "local", str(tmp_path))
    page = (tmp_path / lake_page.PAGE).read_text("utf-8")
    assert f"## {fresh_rows.HEADING}" in page
    assert len(re.findall(r"^\| [\d.]+ \| [\d.]+ \| [\d.]+ \|", page, re.MULTILINE)) == 3
    assert "All 300 transactions" in page
    assert page.strip().endswith(capsys.readouterr().out.strip())
