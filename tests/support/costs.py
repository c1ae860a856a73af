"""CPU seconds of the tests, of all their processes, beside the budgets of their folders.

A server that ``pg_ctl`` starts does not belong to the test's processes, and is not counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.budgets import BUDGETS

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PROPERTY = "cpu seconds"

#: Tests of the table.
SHOWN = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pgwire_codec")
    group.addoption(
        "--budget",
        choices=sorted(BUDGETS),
        help="show the costliest tests, and each folder's CPU seconds beside this budget",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--budget"):
        config.pluginmanager.register(Costs(config.getoption("--budget")), "costs")


def spent() -> float:
    """Return the CPU seconds of this process and of its descendants, ended ones included."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    try:
        if not Path("/proc/self/task", str(os.getpid()), "children").read_bytes():
            return total
    except OSError:
        return total  # not Linux: descendants count when they have ended
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(fields[1]), []).append(int(process.name))
        used[int(process.name)] = sum(map(int, fields[11:15])) / _TICK
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        total += used[pid]
        found += children.get(pid, ())
    return total


class Costs:
    """CPU seconds of the tests of a run: workers measure them, their controller shows the sums."""

    def __init__(self, budget: str) -> None:
        self._budget = budget
        self._before = 0.0
        self._tests: Counter[str] = Counter()

    def pytest_collection_finish(self) -> None:
        self._before = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # A fixture of the session belongs to the first test that has it.
        if report.when == "teardown":
            now = spent()
            report.user_properties.append((PROPERTY, max(now - self._before, 0.0)))
            self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += dict(report.user_properties).get(PROPERTY, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        for test, seconds in self._tests.most_common(SHOWN):
            write(f"{seconds:8.1f}  {test}")
        write("")
        write(f"{'used':>8} {'budget':>8}  folder")
        for folder, seconds, limit in self._folders():
            line = f"{seconds:8.1f} {limit:8}  {folder}"
            write(line + ("  over its budget" if seconds > limit else ""), red=seconds > limit)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # A worker of xdist has its own tests only; more than the gate's run may take its time.
        if self._budget == "thorough" and not hasattr(session.config, "workerinput"):
            is_over = any(seconds > limit for _, seconds, limit in self._folders())
            if is_over and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _folders(self) -> list[tuple[str, float, int]]:
        """Return each folder, its seconds and its budget, the costliest first."""
        folders: Counter[str] = Counter()
        for test, seconds in self._tests.items():
            folders["/".join(test.partition("::")[0].split("/")[:2])] += seconds
        limits = BUDGETS[self._budget]
        return [(name, used, limits.get(name, 0)) for name, used in folders.most_common()]
