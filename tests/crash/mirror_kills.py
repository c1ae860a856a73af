"""One run: a mirror that is killed under a workload, and the checks of its lake.

In most runs, a second mirror writes the same tables meanwhile, which are restored to earlier
versions between two kills.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pgwire_codec.capture import SegmentOptions
from pgwire_codec.log import LsnFile, Retention, retain
from tests.crash.harness import COMMAND, random_options
from tests.crash.lake_checks import Lake
from tests.crash.mirror_workload import SETUP, MirrorWorkload
from tests.crash.restores import restore, wait_for_changes
from tests.soak.services import Service
from tests.support.log_captures import capture_into, running
from tests.support.processes import kill_tree
from tests.support.servers import Database

_SEGMENT_BYTES = 50_000

_LIMIT = 1200.0  # seconds for a first micro-batch, or for the end of a process

_SECOND = 0.7  # part of the runs that have a second mirror
_RESTORED = ("keyed", "bag", "moved", "journal")  # others are replaced by new tables of their names

#: Spark's error on a machine that is so busy that a Python process takes 10 s to start.
_TOO_BUSY = "Python worker failed to connect back"

_CONF = (
    "spark.master=local[2]",
    "spark.driver.memory=1g",
    "spark.sql.shuffle.partitions=2",
)
#: Java's second compiler costs more than it saves in a short life.
_JAVA = {"JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


@dataclass(frozen=True)
class MirrorOutcome:
    """Result of a run."""

    mirror_kills: int
    without_checkpoint: int  # kills after which the mirror begins without it
    second: int  # 1 if a second mirror was there
    restores: int  # of tables, to earlier versions
    pruned: int  # segments of the log
    transactions: int
    commits: int  # of the lake's tables, with changes
    statuses: int  # versions of the status table
    faults: list[str]


def run(made: Database, folder: Path, seed: int, kills: int) -> MirrorOutcome:
    """Kill the mirror so many times, with all that is random from the seed.

    After the first of three kills, the checkpoint is removed. After the second one, a table is
    restored if there is a second mirror. After the third one, the log is pruned up to the LSN that
    the mirrors have recorded.
    """
    chance, pruned, forgotten, restores = random.Random(seed), 0, 0, 0
    made.execute(*SETUP)
    options = random_options(chance) | {"segments": SegmentOptions(segment_bytes=_SEGMENT_BYTES)}
    has_second = chance.random() < _SECOND
    capture = capture_into(made, folder / "log", snapshot=True, **options)
    mirror = Mirror(folder, chance)
    with running(capture) as failed, ExitStack() as stack:
        while capture.status.state != "streaming":
            assert not failed, failed
            time.sleep(0.05)
        if has_second:
            second = Service("second", mirror.second(), folder, print)
            stack.callback(second.end)
        with MirrorWorkload(made, seed) as workload:
            for number in range(kills):
                mirror.run_and_kill()
                if number % 3 == 0:
                    forgotten += mirror.forget()
                if number % 3 == 1 and has_second:
                    table = restore(mirror.lake, folder / "log", chance, _RESTORED)
                    if table is not None:
                        wait_for_changes(table, _LIMIT, second.check)
                        restores += 1
                if number % 3 == 2:
                    pruned += mirror.prune()
        if has_second:
            second.stop(_LIMIT)
    assert not failed, failed
    capture.run(until_lsn="now")
    faults = [*mirror.finish(), *mirror.compare(made.dsn)]
    lake = Lake(mirror.lake, has_second=has_second)
    return MirrorOutcome(
        mirror_kills=kills,
        without_checkpoint=forgotten,
        second=int(has_second),
        restores=restores,
        pruned=pruned,
        transactions=workload.committed,
        commits=sum(map(len, lake.applied.values())),
        statuses=lake.statuses,
        faults=[*faults, *lake.faults()],
    )


class Mirror:
    """Processes of one mirror."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.lake = folder / "lake"
        self.checkpoint = folder / "checkpoint"
        self._second = folder / "second"  # there with a second mirror
        self._log = folder / "log"
        self._printed = folder / "printed"
        self._chance = chance
        self._start_seconds = 0.0

    def run_and_kill(self) -> None:
        """Start the mirror, and kill it with its JVM at a random moment.

        That is as it starts, or soon after its first micro-batch. On a busy machine, the mirror may
        end before, and is started again.
        """
        while not self._run_and_kill():
            print(f"{_TOO_BUSY}: started again", flush=True)

    def _run_and_kill(self) -> bool:
        with self._printed.open("wb") as printed:
            process = subprocess.Popen(
                self._command("mirror", "--checkpoint", str(self.checkpoint)),
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=os.environ | _JAVA | {"PYTHONUNBUFFERED": "1"},
            )
        try:
            if not self._start_seconds or self._chance.random() < 0.7:
                began = time.monotonic()
                self._wait_for_batch(process)
                self._start_seconds = time.monotonic() - began
                time.sleep(self._chance.uniform(0, self._start_seconds / 2))
            else:
                time.sleep(self._chance.uniform(0, self._start_seconds))
            if process.poll() is not None:
                assert _TOO_BUSY in self._printed.read_text(), self._printed.read_text()
                return False
        finally:
            kill_tree(process.pid)
            process.wait()
        return True

    def forget(self) -> bool:
        """Remove the checkpoint; return whether there was one."""
        existed = self.checkpoint.exists()
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return existed

    def prune(self) -> int:
        """Remove segments that the mirrors have; return their number."""
        folders = [self.checkpoint, *self._second.parent.glob(self._second.name)]
        recorded = [folder / "lsn" for folder in folders]
        if not all(file.exists() for file in recorded):  # killed before its first micro-batch
            return 0
        return len(retain(self._log, Retention(consumers=tuple(map(LsnFile, recorded)))))

    def second(self) -> list[str]:
        """Return the command of another mirror into the same lake, without Spark."""
        self._second.mkdir()
        checkpoint = ["--checkpoint", str(self._second)]
        return self._command("mirror", "--runner", "local", "--every", "0.3 seconds", *checkpoint)

    def finish(self) -> list[str]:
        """Apply what is left in the log; return the fault if that fails."""
        done = self._run("mirror", "--checkpoint", str(self.checkpoint), "--once")
        return [] if done.returncode == 0 else [f"the last mirror failed: {done.stderr}"]

    def compare(self, dsn: str) -> list[str]:
        """Compare the tables with the server's; return the faults."""
        done = self._run("compare", "--runner", "local", "--dsn", dsn, "--wait", "1")
        lines = map(json.loads, done.stdout.splitlines())
        faults = [f"{line['table']}: {line}" for line in lines if line["state"] != "equal"]
        return faults if faults or done.returncode == 0 else [f"compare failed: {done.stderr}"]

    def _command(self, name: str, *options: str) -> list[str]:
        return [
            sys.executable, "-c", COMMAND, name, "--json",
            "--log", str(self._log), "--to", f"delta:{self.lake}",
            *(part for setting in _CONF for part in ("--conf", setting)),
            *options,
        ]  # fmt: skip

    def _run(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        while True:
            done = subprocess.run(
                self._command(name, *options),
                capture_output=True,
                text=True,
                env=os.environ | _JAVA,
                timeout=_LIMIT,
            )
            if _TOO_BUSY not in done.stderr:
                return done

    def _wait_for_batch(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _LIMIT
        while b'"batch"' not in self._printed.read_bytes() and process.poll() is None:
            assert time.monotonic() < deadline, "no micro-batch: " + self._printed.read_text()
            time.sleep(0.05)
