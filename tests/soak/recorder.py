"""Memory and file descriptors of processes, recorded into a file."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

_SECONDS = 5.0


@dataclass(frozen=True)
class Sample:
    """A process at a moment; ``seconds`` since the soak began, ``age`` of the process.

    ``anonymous`` is the part of ``rss`` that is not of files, such as programs.
    """

    seconds: float
    process: str
    pid: int
    age: float
    rss: int
    pss: int
    anonymous: int
    descriptors: int
    threads: int


class Recorder(threading.Thread):
    """Records, every few seconds, the processes that a function returns, and their Spark's."""

    def __init__(
        self,
        path: Path,
        begun: float,
        processes: Callable[[], dict[str, int]],
        interval: float = _SECONDS,
    ) -> None:
        super().__init__(name="recorder", daemon=True)
        self.samples: list[Sample] = []
        self._path = path
        self._begun = begun
        self._processes = processes
        self._interval = interval
        self._stopping = threading.Event()

    def run(self) -> None:
        with self._path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([field.name for field in fields(Sample)])
            while not self._stopping.wait(self._interval):
                for sample in self.look():
                    self.samples.append(sample)
                    writer.writerow(astuple(sample))
                file.flush()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def look(self) -> Iterator[Sample]:
        """Yield a sample of each process."""
        seconds = round(time.monotonic() - self._begun, 1)
        for name, pid in self._processes().items():
            for each, number in [(name, pid), *_of_spark(name, pid)]:
                # A process that ends meanwhile, or has ended, has no sample.
                with suppress(OSError, KeyError, psutil.NoSuchProcess):
                    yield _sample(seconds, each, number)


def _sample(seconds: float, name: str, pid: int) -> Sample:
    process = psutil.Process(pid)
    memory = _memory(pid)
    return Sample(
        seconds=seconds,
        process=name,
        pid=pid,
        age=round(time.time() - process.create_time(), 1),
        rss=memory["Rss"],
        pss=memory["Pss"],
        anonymous=memory["Anonymous"],
        descriptors=process.num_fds(),
        threads=process.num_threads(),
    )


def _memory(pid: int) -> dict[str, int]:
    """Return the bytes of a process by their kind, of which psutil has not all."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        found[name.rstrip(":")] = int(value) << 10
    return found


def _of_spark(name: str, pid: int) -> Iterator[tuple[str, int]]:
    """Yield the processes of a Spark that a process has started: Java, and Python's."""
    for java in _children(pid, "java"):
        yield f"{name} (Java)", java
        for daemon in _children(java, "pyspark.worker"):
            for worker in _children(daemon, ""):
                yield f"{name} (worker)", worker


def _children(pid: int, part: str) -> Iterator[int]:
    """Yield the children of a process that have a text in their command line."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):
                if part in " ".join(child.cmdline()):
                    yield child.pid
