"""Supervisor: commands as processes, which are started again after failures that can pass."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import IO, Final

import click

from pgwire_codec.capture.connection.backoff import Backoff
from pgwire_codec.cli import PERMANENT, RETRY, USAGE
from pgwire_codec.cli.notifications import Notifications
from pgwire_codec.cli.service_manager import METRICS_PORT, ServiceManager
from pgwire_codec.format import printable

_POLL_SECONDS: Final = 0.1
_STEADY_SECONDS: Final = 60.0  # a process that ran for this long resets the backoff
_SILENT_SECONDS: Final = 120.0  # without a sign of life, after which a process is killed
_LONGEST_LINE: Final = 1 << 16
_CHUNK: Final = 1 << 16

#: Program of a child. Modules in the folder of the file are not imported.
_PROGRAM: Final = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from pgwire_codec.cli.child import main; main()"
)


class Supervisor:
    """Runs commands until they fail for good, or until it is stopped.

    A later command starts when the first one is ready, or with ``once`` after the one before it.

    Parameters
    ----------
    commands : mapping of str to sequence of str
        Names of commands, and the arguments of each.
    folder : Path
        Working directory of the processes.
    once : bool
        Each command ends by itself, and the next one starts if it has succeeded.
    stop_seconds : float
        Time in which a process has to end when it is stopped.
    silent_seconds : float
        Time without a sign of life after which a process is killed.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        folder: Path,
        *,
        once: bool,
        stop_seconds: float,
        silent_seconds: float = _SILENT_SECONDS,
    ) -> None:
        self._once = once
        self._stop_seconds = stop_seconds
        self._selector = selectors.DefaultSelector()
        width = max(map(len, commands))
        self._children = [
            _Child(name, arguments, folder, f"{name:<{width}} | ", self._selector, silent_seconds)
            for name, arguments in commands.items()
        ]
        self._prefix = f"{'run':<{width}} | "
        self._manager = ServiceManager()
        self._status = 0
        self._deadline: float | None = None  # of the end

    @property
    def metrics_ports(self) -> dict[str, int | None]:
        """Port of the metrics of each process; None before it listens. Any thread may read it."""
        return {child.name: child.metrics_port for child in self._children}

    def run(self, signalled: Sequence[int]) -> int:
        """Run until all processes have ended; return the exit status.

        They are stopped as soon as there is an item in ``signalled``.
        """
        with ExitStack() as entered:
            entered.callback(self._selector.close)
            for child in self._children:
                entered.enter_context(child.notifications)
            self._children[0].due = monotonic()
            while self._deadline is None or any(each.is_running for each in self._children):
                if signalled:
                    self._stop()
                self._pass_on(_POLL_SECONDS)
                for child in self._children:
                    self._look_at(child)
                self._notify()
            while self._pass_on(0):
                pass
        return self._status

    def _pass_on(self, seconds: float) -> bool:
        """Read what has arrived; return whether something had."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def _look_at(self, child: _Child) -> None:
        """Start, kill, or note the end of a process, if it is time for that."""
        now = monotonic()
        if child.is_running:
            status = child.poll()
            if status is not None:
                self._ended(child, status, now)
            elif child.is_killed:
                pass
            elif self._deadline is not None and now >= self._deadline:
                self._say(f"{child.name} has not ended for {self._stop_seconds:g} s: killing it")
                child.kill()
            elif child.is_silent(now):
                self._say(f"{child.name} shows no sign of life: killing it")
                child.kill()
        elif self._deadline is None and child.due is not None and now >= child.due:
            child.start()
            self._say(f"started {child.name}, process {child.pid}")
        if child is self._children[0] and child.is_ready and not self._once:
            for other in self._children[1:]:
                other.begin(now)

    def _ended(self, child: _Child, status: int, now: float) -> None:
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        if self._deadline is not None:
            self._say(f"{child.name} ended with {how}")
            # One that has just started ends by the signal itself.
            if status != -signal.SIGTERM:
                self._status = self._status or _exit_status(status)
        elif self._once:
            self._say(f"{child.name} ended with {how}")
            following = self._children.index(child) + 1
            if status == 0 and following < len(self._children):
                self._children[following].begin(now)
            else:
                self._status = _exit_status(status)
                self._stop()
        elif status in (USAGE, PERMANENT):
            self._say(f"{child.name} ended with {how}, which a new start does not change")
            self._status = status
            self._stop()
        else:
            wait = child.retry(now)
            self._say(f"{child.name} ended with {how}: starting it again in {wait:.1f} s")

    def _stop(self) -> None:
        """Have all processes end; nothing is started any more."""
        if self._deadline is None:
            self._deadline = monotonic() + self._stop_seconds
            self._manager.stopping()
            for child in self._children:
                child.terminate()

    def _notify(self) -> None:
        self._manager.status("; ".join(f"{each.name}: {each.status}" for each in self._children))
        if self._children[0].is_ready:
            self._manager.ready()
        self._manager.alive()

    def _say(self, text: str) -> None:
        click.echo(printable(f"{self._prefix}{text}"), err=True)


def _exit_status(status: int) -> int:
    """Return the exit status for that of a process; one that was killed can be started again."""
    return status if status >= 0 else RETRY


class _Child:
    """A command, and its process while it runs.

    Attributes
    ----------
    name : str
    due : float or None
        Time of the next start; None if it is not to start.
    is_ready : bool
        Whether a process of it has completed its start.
    is_killed : bool
        Whether :meth:`kill` was called for its last process.
    metrics_port : int or None
        Port of the metrics of the process, once it has reported that.
    status : str
        Status of the process in a line of text.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        prefix: str,
        selector: selectors.BaseSelector,
        silent_seconds: float,
    ) -> None:
        self.name = name
        self.due: float | None = None
        self.is_ready = False
        self.is_killed = False
        self.metrics_port: int | None = None
        self.status = "not started"
        self.notifications = Notifications()
        self._arguments = arguments
        self._folder = folder
        self._prefix = prefix
        self._selector = selector
        self._silent_seconds = silent_seconds
        self._environment = os.environ | {
            "NOTIFY_SOCKET": self.notifications.address,
            "WATCHDOG_USEC": str(round(silent_seconds * 1e6)),
        }
        self._environment.pop("WATCHDOG_PID", None)
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff()
        self._started = 0.0
        self._alive: float | None = None  # time of the last sign of life, once it is ready
        selector.register(self.notifications, selectors.EVENT_READ, self._notified)

    @property
    def is_running(self) -> bool:
        """True until :meth:`poll` has returned the exit status of the process."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """ID of the process, which runs."""
        assert self._process is not None
        return self._process.pid

    def begin(self, now: float) -> None:
        """Have it started, unless it was before."""
        if not self._started and self.due is None:
            self.due = now

    def start(self) -> None:
        """Start a process."""
        self.due, self._started, self._alive = None, monotonic(), None
        self.is_killed, self.status = False, "starting"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            env=self._environment,
            # A terminal's Ctrl-C is for the supervisor, which stops the others.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        # Its other end is closed if the process has ended, and that has a status.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([*self._arguments]).encode() + b"\n")
            self._process.stdin.flush()
        for output, err in ((self._process.stdout, False), (self._process.stderr, True)):
            assert output is not None
            self._selector.register(output, selectors.EVENT_READ, self._lines(output, err))

    def poll(self) -> int | None:
        """Return the exit status of a process that has ended; negative for a signal."""
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process, self.metrics_port = None, None
            self.status = "ended"
        return status

    def retry(self, now: float) -> float:
        """Have it started again after a time, which is returned."""
        if now - self._started >= _STEADY_SECONDS:
            self._backoff.succeed()
        wait = self._backoff.fail()
        assert wait is not None, "the number of retries is unlimited"
        self.due, self.status = now + wait, "waiting for a new start"
        return wait

    def terminate(self) -> None:
        """Ask the process to end, if it runs."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        assert self._process is not None
        self.is_killed = True
        self._process.kill()

    def is_silent(self, now: float) -> bool:
        """Return whether the process was ready, and shows no sign of life."""
        return self._alive is not None and now - self._alive >= self._silent_seconds

    def _notified(self) -> None:
        for name, value in self.notifications.read():
            if name == "STATUS":
                self.status = value
            elif name == METRICS_PORT:
                self.metrics_port = int(value)
            elif name == "READY":
                self.is_ready = True
                self._alive = monotonic()
            elif name == "WATCHDOG" and self._alive is not None:
                self._alive = monotonic()

    def _lines(self, output: IO[bytes], err: bool) -> Callable[[], None]:
        """Return the function that passes on what has arrived, with the prefix of the command."""
        rest = b""

        def read() -> None:
            nonlocal rest
            data = os.read(output.fileno(), _CHUNK)
            *lines, rest = (rest + data).split(b"\n")
            if rest and (not data or len(rest) >= _LONGEST_LINE):
                lines, rest = [*lines, rest], b""
            for line in lines:
                click.echo(f"{self._prefix}{printable(line.decode('utf-8', 'replace'))}", err=err)
            if not data:
                self._selector.unregister(output)
                output.close()

        return read
