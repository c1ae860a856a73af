"""A streaming query that is killed, and fails, gives every change to Delta tables exactly once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support import spark_logs
from tests.support.histories import History, to_messages
from tests.support.lakehouse import delta_rows
from tests.support.processes import kill_tree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(not spark_logs.HAS_LIMITS, reason="Spark 4.2 and later have limits"),
]

ROOT = Path(__file__).parents[2]
PIECES = 3


def transactions(history: History) -> list[list[Any]]:
    """The changes in pieces that end with a transaction: what a session leaves is sent again."""
    begins = [number for number, change in enumerate(history.changes) if change[10] == 0]
    bounds = [begins[len(begins) * piece // PIECES] for piece in range(PIECES)]
    ends = [*bounds[1:], len(history.changes)]
    return [history.changes[start:end] for start, end in zip(bounds, ends, strict=True)]


class Job:
    """The query of ``streaming_job.py``, in a process of its own."""

    def __init__(self, folder: Path, seed: int, how: str) -> None:
        self._printed = folder / f"printed-{seed}"
        paths = [str(folder / name) for name in ("log", "target", "checkpoint")]
        with self._printed.open("w") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.streaming_job", *paths, str(seed), how],
                cwd=ROOT,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def kill(self, moment: float) -> None:
        """Kill it and its JVM so many seconds from now; it must not have ended before."""
        time.sleep(moment)
        assert self._process.poll() is None, self.printed
        kill_tree(self._process.pid)
        self._process.wait()

    def finish(self) -> None:
        assert self._process.wait(timeout=240) == 0, self.printed


def commits(deltalake: Any, target: Path) -> int:
    """How many batches were merged."""
    is_there = deltalake.DeltaTable.is_deltatable(str(target))
    return deltalake.DeltaTable(str(target)).version() if is_there else 0


def test_a_killed_stream_gives_every_change_once(tmp_path: Path) -> None:
    """Each process fails once, in the middle of its first batch; two of three are killed."""
    pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")
    deltalake = pytest.importorskip("deltalake")
    random = Random()
    history = History(12)
    for number in range(8):
        history.transaction(number % 4, 6)
    pieces = transactions(history)
    merged = tmp_path / "target" / "merged"
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        messages = to_messages(piece)
        # The second process sees its log grow.
        job = Job(tmp_path, number, "follow") if number == 1 else None
        spark_logs.write(tmp_path / "log", messages, part_bytes=200, flushes=20)
        job = job or Job(tmp_path, number, "finish" if is_last else "follow")
        if is_last:
            job.finish()
            assert "failed, and again" in job.printed
        else:
            before, deadline = commits(deltalake, merged), time.monotonic() + 120
            while commits(deltalake, merged) == before:
                assert time.monotonic() < deadline, job.printed
                time.sleep(0.1)
            job.kill(2 * random.random())

    changes = delta_rows(tmp_path / "target" / "changes")
    places = zip(*(changes[name].to_pylist() for name in ("_commit_lsn", "_seq")), strict=True)
    assert sorted(places) == [(change[8], change[10]) for change in history.changes]
    rows = delta_rows(merged).to_pylist()
    found = {(row.pop("shelf"), row.pop("id")): row for row in rows}
    expected = history.expected()
    for row in expected.values():
        row["tags"] = None if row["tags"] is None else str(row["tags"])
    assert found == expected
