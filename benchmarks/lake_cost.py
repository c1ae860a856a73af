"""Clock and CPU seconds of measurements, each in a process of its own (Linux)."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

_SET_CHILD_SUBREAPER = 36  # in linux/prctl.h


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, and CPU seconds."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} / {self.cpu:.2f}"

    def share(self, limit: Cost) -> str:
        """Return the share of a limit's speed, by CPU seconds."""
        return f"{limit.cpu / self.cpu:.0%}"


def measured(job: Callable[[], object], spent: Callable[[], float] = time.process_time) -> Cost:
    """Run a job; ``spent`` returns CPU seconds: of this process, or of its descendants, too."""
    begin, begin_cpu = time.perf_counter(), spent()
    job()
    seconds = time.perf_counter() - begin
    return Cost(seconds, spent() - begin_cpu)


def tree_cpu() -> float:
    """Return the CPU seconds of this process and of its descendants, ended ones included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + ended.ru_utime + ended.ru_stime
    return own + sum(map(process_cpu, psutil.Process().children(recursive=True)))


def process_cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its ended children."""
    with suppress(psutil.NoSuchProcess):  # its parent has its seconds now
        return sum(process.cpu_times()[:4])
    return 0.0


def in_child(job: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(job, *arguments).result()


def command(*programs: Sequence[str | os.PathLike[str]]) -> Cost:
    """Measure programs that run one after the other, from a cold start.

    The clock stops when the last one ends. Processes that outlive their program, such as Java, are
    waited for: the CPU seconds are those of all processes.
    """
    return in_child(_command, programs)


def _command(programs: Sequence[Sequence[str | os.PathLike[str]]]) -> Cost:
    # A process whose parent has ended becomes a child of this one.
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
    begin = time.perf_counter()
    for program in programs:
        _run(program)
    seconds = time.perf_counter() - begin
    with suppress(ChildProcessError):  # no child is left
        while True:
            os.wait()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, ended.ru_utime + ended.ru_stime)


def _run(program: Sequence[str | os.PathLike[str]]) -> None:
    # A file, because a process that outlives the program would keep a pipe open.
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(program, stdout=subprocess.DEVNULL, stderr=errors)
        if done.returncode:
            errors.seek(0)
            raise AssertionError(f"{program} failed: {errors.read()[-4000:]}")
