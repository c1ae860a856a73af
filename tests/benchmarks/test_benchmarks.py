"""The benchmarks on tiny data, and the pages with their figures."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(
        not all(map(find_spec, ["adbc_driver_postgresql", "matplotlib"])),
        reason="needs the extra bench",
    ),
    pytest.mark.skipif(
        find_spec("pgwire_codec._core.wire.scan") is None, reason="needs the compiled core"
    ),
]


def run(*arguments: str | Path, status: int = 0) -> str:
    environment = {**os.environ, "PGWIRE_CODEC_IMPL": "cython"}
    environment.pop("PYTEST_XDIST_WORKER", None)  # it is not a worker of these tests
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_tiny_run_is_reported(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    json_option = f"--benchmark-json={results}"
    run("pytest", "benchmarks", "--size=tiny", json_option, "--benchmark-quiet", "-q")
    printed = run("benchmarks.results_page", results, tmp_path / "docs")

    measured = json.loads(results.read_text("utf-8"))["benchmarks"]
    assert all(len(each["extra_info"]["cpu_seconds"]) >= 5 for each in measured)
    files = {path.stem: csv_rows(path) for path in (tmp_path / "docs" / "benchmarks").iterdir()}
    assert {"speed", "targets", "cost", "log", "threads"} <= files.keys()
    assert len(files["speed"]) == sum(each["extra_info"].get("kind", "speed") == "speed"
                                      for each in measured)  # fmt: skip
    steps = {each["step"] for each in files["speed"]}
    assert {"scan", "tuples", "messages to record batches"} <= steps
    assert {each["decoder"] for each in files["speed"]} >= {"pgwire_codec", "reference", "adbc"}
    for name, rows in files.items():
        lines = [
            [cell.strip() for cell in line[2:-2].split(" | ")] for line in printed.splitlines()
        ]
        assert [list(row.values()) in lines for row in rows] == [True] * len(rows), name
    page = (tmp_path / "docs" / "benchmarks.md").read_text("utf-8")
    assert all(f"(benchmarks/{name}.csv)" in page for name in files)
    shown = re.findall(r"^\| (.+?) +\| +([\d,]+) \| +([\d.]+) \|", page, re.MULTILINE)
    assert len(shown) == 5 + (find_spec("pypgoutput") is not None) + 4
    names = [text for text, _, _ in shown]
    whole = next(i for i, name in enumerate(names) if "`Decoder.decode` and `to_arrow()`" in name)
    assert whole < next(i for i, name in enumerate(names) if name.startswith("`scan`"))
    chart = ElementTree.parse(tmp_path / "docs" / "benchmarks.svg")
    assert "adbc" in "".join(chart.getroot().itertext())

    machines = tmp_path / "machines"
    run("benchmarks.machines_page", machines, f"x86-64={results}", f"aarch64={results}")
    written = (machines / "index.html").read_text("utf-8")
    assert "<h2>x86-64</h2>" in written
    assert "<h2>aarch64</h2>" in written
    assert "aarch64" in "".join(ElementTree.parse(machines / "speedup.svg").getroot().itertext())

    assert "slower" not in run("benchmarks.compare", results, results)
    slow = json.loads(results.read_text("utf-8"))
    for each in slow["benchmarks"]:
        if each["extra_info"]["step"] == "tuples":
            each["extra_info"]["cpu_seconds"] = [
                1.2 * seconds for seconds in each["extra_info"]["cpu_seconds"]
            ]
    slower = tmp_path / "slower.json"
    slower.write_text(json.dumps(slow), "utf-8")
    compared = run("benchmarks.compare", results, slower, status=1)
    assert all("tuples" in line for line in compared.splitlines() if line.endswith("slower |"))
    assert "steps are slower by more than 10%" in compared


def test_peers_are_measured_and_reported(tmp_path: Path) -> None:
    """Peers whose compiler is not installed are rows with the reason."""
    from benchmarks.results_page import peers  # imports Matplotlib, which every run would collect

    beside = tmp_path / "benchmarks"
    printed = run("benchmarks.peers", "tiny", beside, "1")
    rows = csv_rows(beside / "peers.csv")
    assert {row["decoder"].split()[0].strip(",") for row in rows} == {
        "pgwire_codec", "elefant-client", "pg_walstream", "pglogrepl"
    }  # fmt: skip
    for row in rows:
        costs = [cost for name, cost in row.items() if ", transactions of " in name]
        assert len(costs) == 4
        assert any(costs) != row["result"].startswith("not measured: "), row
        for cost in filter(None, costs):
            middle, least = map(int, re.fullmatch(r"(\d+) \((\d+)\)", cost).groups())
            assert middle >= least > 0
    assert all(rows[0].values())
    page = peers(beside / "peers.csv")
    table = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in page.splitlines()]
    assert [list(row.values()) in table for row in rows] == [True] * len(rows)
    assert all(line in page for line in printed.splitlines() if line.startswith("| "))
    assert peers(tmp_path / "none.csv") == ""


def test_a_capture_is_measured(tmp_path: Path) -> None:
    printed = run("benchmarks.capture_speed", "tiny", tmp_path, "1")
    assert printed.rstrip() == (tmp_path / "benchmarks-capture.md").read_text("utf-8").rstrip()
    speed, _, latency = printed.partition("## Latency")
    speeds = re.findall(r"^\| (.+?) \|.*\| (\d+) \| [\d,]+ \|$", speed, re.MULTILINE)
    assert [name.split()[0] for name, _ in speeds] == ["pg_recvlogical", "pgwire-codec", "the"]
    assert all(int(speed) > 0 for _, speed in speeds)
    latencies = re.findall(r"^\| (\w[^|]+) \| ([\d.]+) \| ([\d.]+) \|", latency, re.MULTILINE)
    names = [name.split()[0] for name, *_ in latencies]
    if "not measured: " in latency:  # needs Maven and a JDK
        assert re.search(r"^\| Debezium's engine.* \| not measured: \w.* \|", latency, re.MULTILINE)
    else:
        assert names.pop(2) == "Debezium's"
    assert names == ["pg_recvlogical", "pg_recvlogical", "pgwire-codec", "the"]
    assert all(0 < float(p50) <= float(p99) for _, p50, p99 in latencies)
