"""Prunings by several processes at once: one after the other, and the log stays whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from pgwire_codec import log
from pgwire_codec.log import local_store
from pgwire_codec.log.prune import exclusive
from tests.support import build
from tests.support.logs import SOURCE

SEGMENTS = 20

#: Prunes a log up to each of its commit LSNs that is a multiple of a number: a process.
PRUNER = """
import sys
from pgwire_codec import log
folder, step, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.stdin.readline()
print(sum(len(log.prune(folder, lsn)) for lsn in range(step, last + 1, step)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_segments(tmp_path, SEGMENTS)


def write_segments(tmp_path: Path, count: int) -> Path:
    """Write a log of many segments, with a transaction each, at LSN 1, 2, …."""
    relation = build.relation(1, build.column("id", "int4", key=True))
    with log.LogWriter(tmp_path / "log", SOURCE) as writer:
        for lsn in range(1, count + 1):
            inside = [relation, build.insert(1, str(lsn))]
            messages = build.wire(build.transaction(*inside, lsn=lsn))
            nothing = np.zeros(len(messages), np.uint64)
            writer.append(messages, nothing, nothing.astype("datetime64[us]"))
            writer.seal()
    return tmp_path / "log"


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(120, marks=pytest.mark.thorough)])
def test_processes(count: int, tmp_path: Path) -> None:
    """Readers find a whole log all the time; each segment is removed by one of the processes."""
    folder, steps = write_segments(tmp_path, count), (1, 2, 3)
    with ExitStack() as running:
        pruners = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PRUNER, folder, str(step), str(count - 1)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for step in steps
        ]
        for pruner in pruners:
            assert pruner.stdin is not None
            pruner.stdin.write("\n")
            pruner.stdin.flush()
        for rows in read_repeatedly(folder, pruners):
            assert rows == list(range(rows[0], count + 1))
        ended = [(pruner.communicate(), pruner.returncode) for pruner in pruners]
    assert [status for _, status in ended] == [0] * len(steps), ended
    assert sum(int(output) for (output, _), _ in ended) == count - 1
    assert log.verify(folder).is_sound
    assert log.Log(folder).begin.lsn == count - 1


def read_repeatedly(folder: Path, pruners: list[subprocess.Popen[str]]) -> Iterator[list[int]]:
    """Yield the log's rows until the processes end, if it is not pruned while they are read."""
    while any(pruner.poll() is None for pruner in pruners):
        try:
            found = log.Log(folder).read("public.t")
            yield [key for each in found for key in each.new["id"].to_pylist()]
        except log.LogError as error:
            if "pruned" not in str(error):
                raise


def test_it_waits_for_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_store, "_PRUNING_SECONDS", 0.1)
    with exclusive(folder, None):
        words = r"is being pruned by another thread of this process \(pid \d+\) — hint: Prune it"
        with pytest.raises(log.LogError, match=words) as raised:
            log.prune(folder, 10)
        assert raised.value.is_transient
        with pytest.raises(log.LogError, match=words):
            log.retain(folder, log.Retention(max_bytes=0))
        assert len(log.Log(folder)) == SEGMENTS
    assert len(log.prune(folder, 10)) == 10


def test_the_writer_is_not_excluded(folder: Path) -> None:
    with log.LogWriter(folder, SOURCE), exclusive(folder, None):
        assert len(log.Log(folder)) == SEGMENTS


def test_no_log(tmp_path: Path) -> None:
    """Nothing is created in its place."""
    with pytest.raises(log.LogError, match="is not a log"):
        log.prune(tmp_path / "log", 1)
    assert list(tmp_path.iterdir()) == []
