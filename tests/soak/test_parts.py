"""The parts of a soak that need no server: plan, verdicts, chart, small disk, services."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen

import pytest

from tests.soak import chart
from tests.soak.flatness import SETTLED, Verdict, judge
from tests.soak.plan import KILLS, KILLS_UNTIL, OTHERS, Plan
from tests.soak.recorder import Recorder, Sample
from tests.soak.services import Service
from tests.support.small_disk import NoSmallDiskError, small_disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a soak reads Linux's /proc")

_SAMPLE = Sample(0.0, "capture", 1, 0.0, 100 << 20, 90 << 20, 50 << 20, 20, 5)
_STEP = 5.0


def _life(rss: float, growth: float, *, length: float = 1500.0, pid: int = 1) -> list[Sample]:
    """A process whose memory, in MiB, grows by a part of it in an hour."""
    ages = [_STEP * number for number in range(int(length / _STEP) + 1)]
    return [
        replace(
            _SAMPLE, pid=pid, age=age, seconds=1000 * pid + age,
            rss=int(rss * (1 + growth * age / 3600)) << 20,
        )
        for age in ages
    ]  # fmt: skip


def _verdicts(samples: list[Sample]) -> dict[tuple[str, bool], Verdict]:
    """Verdicts by their measure, and whether they are on the process that lived longest."""
    return {(each.measure, "longest" in each.what): each for each in judge(samples)}


def test_every_round_has_every_fault_in_an_order_that_the_seed_chooses() -> None:
    plans = [Plan(Random(seed), 3600) for seed in (1, 1, 2)]
    first = [list(plan.round(0)) for plan in plans]
    assert sorted(first[0]) == sorted((*KILLS, *OTHERS))
    assert first[0] == first[1] != first[2]


def test_no_process_is_killed_in_the_later_part() -> None:
    plan = Plan(Random(1), 3600)
    assert set(plan.round(KILLS_UNTIL * 3600)) == set(OTHERS)
    assert not plan.is_over(3599)
    assert plan.is_over(3600)


@pytest.mark.parametrize(("growth", "flat"), [(0.0, True), (0.1, True), (0.5, False)])
def test_memory_that_grows_is_not_flat(growth: float, flat: bool) -> None:
    verdict = _verdicts(_life(200, growth))["rss", True]
    assert verdict.is_flat is flat
    assert len(verdict.values) == 3  # of five minutes each, from ten minutes to 25


def test_memory_that_grew_before_is_flat() -> None:
    life = [
        replace(each, rss=each.rss // 2) if each.age < SETTLED else each for each in _life(200, 0)
    ]
    assert _verdicts(life)["rss", True].is_flat is True


def test_a_short_life_is_not_judged() -> None:
    verdict = _verdicts(_life(200, 0, length=SETTLED + 150))["rss", True]
    assert verdict.is_flat is None
    assert str(verdict).startswith("not judged")


def test_processes_are_shown_at_equal_age() -> None:
    lives = [*_life(100, 0.3, length=900), *_life(150, 0.3, length=100, pid=2)]
    verdict = _verdicts(lives)["rss", False]
    assert [value / (1 << 20) for value in verdict.values] == [100, 150]
    assert verdict.is_flat is None
    assert "+50.0%" in str(verdict)


@pytest.mark.parametrize(("more", "flat"), [(3, True), (4, False)])
def test_a_few_more_descriptors_are_flat(more: int, flat: bool) -> None:
    life = [
        replace(each, descriptors=each.descriptors + more) if each.age > 1000 else each
        for each in _life(100, 0)
    ]
    assert _verdicts(life)["descriptors", True].is_flat is flat


def test_descriptors_of_work_and_of_an_outage_are_no_leak() -> None:
    life = [
        replace(each, descriptors=(300, 5, 20, 20, 20)[number % 5])
        for number, each in enumerate(_life(100, 0))
    ]
    assert _verdicts(life)["descriptors", True].values == (20,) * 3


def test_the_chart_has_a_line_for_each_process_and_each_fault(tmp_path: Path) -> None:
    samples = [*_life(100, 0), *_life(110, 0, pid=2)]
    chart.draw(tmp_path / "chart.svg", samples, [(700.0, "network <stall>")])
    drawn = (tmp_path / "chart.svg").read_text()
    assert drawn.count("<polyline") == 4  # of memory and descriptors
    assert drawn.count("network &lt;stall&gt;") == 2


_OPENS_A_FILE = """
import sys, time
time.sleep(0.2)
print(flush=True)
input()
with open(sys.argv[1], "w"):
    print(flush=True)
    input()
"""


def test_a_process_is_recorded(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPENS_A_FILE, str(tmp_path / "one more")]
    # Not the tests' own process, which may have a child of Java's, and Spark's sockets.
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        path = tmp_path / "samples.csv"
        recorder = Recorder(path, time.monotonic(), lambda: {"opener": process.pid}, 0.01)
        process.stdout.readline()
        [sample] = recorder.look()
        process.stdin.write("\n")
        process.stdout.readline()
        [after] = recorder.look()
        recorder.start()
        deadline = time.monotonic() + 60
        while not recorder.samples and time.monotonic() < deadline:
            time.sleep(0.01)
        recorder.stop()
        process.communicate("\n", timeout=60)
    assert sample.rss >= sample.pss > 1 << 20
    assert sample.rss >= sample.anonymous > 1 << 20
    assert 60 > sample.age >= 0.2
    assert after.descriptors == sample.descriptors + 1
    lines = path.read_text().splitlines()
    assert lines[0].startswith("seconds,process,pid,age,rss,pss,")
    assert len(lines) == 1 + len(recorder.samples) > 1


def test_a_small_disk_is_full_until_it_is_emptied(tmp_path: Path) -> None:
    with ExitStack() as entered:
        try:
            disk = entered.enter_context(small_disk(tmp_path, 8 << 20))
        except NoSmallDiskError as error:
            pytest.skip(str(error))
        disk.fill(1 << 20)
        assert disk.free == 1 << 20
        disk.fill()
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (disk.path / "file").write_bytes(bytes(1 << 16))
        disk.empty()
        (disk.path / "file").write_bytes(bytes(1 << 20))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [0, 4])
def test_a_service_that_ends_otherwise_than_it_may_is_a_failure(
    status: int, tmp_path: Path
) -> None:
    code = f"import sys; print('gone', file=sys.stderr); sys.exit({status})"
    service = Service("it", [sys.executable, "-c", code], tmp_path, print)
    service.join(30)
    with pytest.raises(AssertionError, match=f"status {status}: gone"):
        service.check()
    service.end()


def test_a_service_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    code = (
        "import pathlib, sys, time; mark = pathlib.Path('mark'); there = mark.exists();"
        " mark.touch(); there and time.sleep(600); sys.exit(3)"
    ).replace("'mark'", repr(str(tmp_path / "mark")))
    service = Service("it", [sys.executable, "-c", code], tmp_path, said.append)
    deadline = time.monotonic() + 60
    while service.restarts == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    service.kill(0, group=True)
    service.check()
    service.end()
    assert (service.restarts, len(said)) == (1, 1)
