"""CPU seconds of tests are those of all their processes, and are shown beside budgets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import budgets
from tests.support import costs

#: Uses a third of a second of CPU time, and goes on.
BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ntime.sleep(60)"


@pytest.mark.skipif(sys.platform != "linux", reason="running processes are counted on Linux")
def test_running_descendants_are_counted() -> None:
    before = costs.spent()
    shell = f'"{sys.executable}" -c "$0" & echo $!; wait'
    with subprocess.Popen(["sh", "-c", shell, BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.stdout.readline()
        assert costs.spent() - before >= 0.2  # in ticks of the clock
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("budget", "limit", "status"), [("test", 1, 0), ("thorough", 1, 1), ("thorough", 100, 0)]
)
def test_a_folder_over_its_budget(
    budget: str, limit: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the gate it is shown, and `make thorough` fails."""
    monkeypatch.setitem(budgets.BUDGETS, budget, {"tests/cli": limit, "tests/test_format.py": 9})
    run = costs.Costs(budget)
    for test, seconds in (
        ("tests/cli/test_log.py::test_a[1]", 2.0),
        ("tests/cli/test_report.py::test_b", 3.5),
        ("tests/test_format.py::test_c", 0.25),
    ):
        run.pytest_runtest_logreport(report(test, seconds))
    written: list[str] = []
    run.pytest_terminal_summary(Terminal(written))
    assert written[:3] == [
        "     3.5  tests/cli/test_report.py::test_b",
        "     2.0  tests/cli/test_log.py::test_a[1]",
        "     0.2  tests/test_format.py::test_c",
    ]
    over = "  over its budget" if limit == 1 else ""
    assert written[-2] == f"     5.5 {limit:8}  tests/cli{over}"
    assert written[-1] == "     0.2        9  tests/test_format.py"
    session = Session()
    run.pytest_sessionfinish(session)
    assert session.exitstatus == status


def test_every_folder_has_a_budget() -> None:
    tests = Path(__file__).parent
    found = {f"tests/{path.parent.name}" for path in tests.glob("*/test_*.py")}
    found |= {f"tests/{path.name}" for path in tests.glob("test_*.py")}
    assert set(budgets.BUDGETS["test"]) <= found
    assert set(budgets.BUDGETS["thorough"]) <= found


def report(test: str, seconds: float) -> Any:
    made = pytest.TestReport(test, ("", 0, ""), {}, "passed", None, "teardown")
    made.user_properties.append((costs.PROPERTY, seconds))
    return made


class Terminal:
    def __init__(self, written: list[str]) -> None:
        self._written = written

    def section(self, title: str) -> None:
        assert title == "CPU seconds"

    def write_line(self, line: str, **markup: bool) -> None:
        self._written.append(line)


class Session:
    exitstatus = pytest.ExitCode.OK
    config = object()
