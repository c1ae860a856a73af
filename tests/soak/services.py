"""Processes that are kept running, as a service manager does."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pgwire_codec.cli import RETRY
from tests.support.processes import kill_tree

_POLL = 0.1
_RESTART_SECONDS = 1.0
_TAIL_BYTES = 1 << 16


class Service(threading.Thread):
    """A command that is started again after it was killed, or ended with the status for that.

    Any other end is a failure, which :meth:`check` raises. Its output is appended to files.

    Attributes
    ----------
    process : subprocess.Popen
        The last process.
    restarts : int
        Number of times that it ended by itself, and was started again.
    """

    process: subprocess.Popen[bytes]

    def __init__(
        self, name: str, arguments: list[str], folder: Path, say: Callable[[str], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.restarts = 0
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        self._arguments = arguments
        self._say = say
        self._failure: str | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # held while the process is replaced
        self._launch()
        self.start()

    def run(self) -> None:
        while not self._stopping.wait(_POLL):
            with self._lock:
                status = self.process.poll()
                if status is None or self._stopping.is_set():
                    continue
                if status != RETRY:
                    self._failure = f"{self.name} ended with status {status}"
                    return
                self.restarts += 1
                self._say(f"{self.name} ended with status {RETRY}, and is started again")
                kill_tree(self.process.pid)
                time.sleep(_RESTART_SECONDS)
                self._launch()

    def check(self) -> None:
        """Raise ``AssertionError`` if the process ended other than it may."""
        if self._failure is not None:
            raise AssertionError(f"{self._failure}: {_tail(self.err)}")

    def last_line(self) -> str:
        """Return the last line of its output that is complete."""
        with self.out.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return lines[-2] if len(lines) > 1 else ""

    def kill(self, pause: float, *, group: bool) -> None:
        """Kill the process, with SIGKILL, and start it again after a pause.

        ``group``: also what it started, at the same time. Otherwise that is killed after the pause,
        if it is still there.
        """
        with self._lock:
            if group:
                kill_tree(self.process.pid)
            self.process.kill()
            self.process.wait()
            time.sleep(pause)
            kill_tree(self.process.pid)
            self._launch()

    def stop(self, seconds: float) -> None:
        """End the process with SIGTERM, and check that it ends as it should."""
        self._stopping.set()
        self.join()
        self.check()
        if self.process.poll() == RETRY:
            return
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(seconds)
        # The signal itself ends a process that is still starting.
        if status not in (0, -signal.SIGTERM):
            raise AssertionError(f"{self.name} ended with status {status}: {_tail(self.err)}")

    def end(self) -> None:
        """End what is left of it, at once."""
        self._stopping.set()
        self.join()
        kill_tree(self.process.pid)
        self.process.wait()

    def _launch(self) -> None:
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                self._arguments, stdout=out, stderr=err, start_new_session=True
            )


def _tail(path: Path, lines: int = 20) -> str:
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])
