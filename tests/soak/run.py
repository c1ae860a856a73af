"""A soak: load, faults and records, and the comparison at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import gettempdir

from tests.crash.harness import random_options
from tests.soak import ending, flatness
from tests.soak.commands import Commands
from tests.soak.faults import Faults
from tests.soak.load import Load, create_tables
from tests.soak.log_follower import LogFollower
from tests.soak.plan import DISK_FAULTS, MIRROR_FAULTS, Plan
from tests.soak.recorder import Recorder
from tests.soak.schema_changes import SchemaChanges
from tests.soak.services import Service
from tests.support.proxy import Proxy
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.standbys import cluster, database_of

_DISK = 384 << 20
_SERVER = {"autovacuum": "on"}
_START_SECONDS = 600.0
_RECOVERY_SECONDS = 600.0
_STOP_SECONDS = 900.0  # the mirror ends its micro-batch


@dataclass
class Outcome:
    """Result of a soak, as far as it came."""

    faults: list[tuple[float, str]] = field(default_factory=list)
    transactions: int = 0
    changes: int = 0
    restarts: dict[str, int] = field(default_factory=dict)  # after a process ended by itself
    differences: list[str] = field(default_factory=list)
    verdicts: list[flatness.Verdict] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.differences and all(each.is_flat is not False for each in self.verdicts)


class Soak:
    """A soak in a folder; entering starts it, leaving ends all its processes.

    Parameters
    ----------
    folder : Path
    seed : int
    seconds : float
        Time for which faults are caused. The first round of faults is always complete.
    has_mirror : bool
    without : tuple of str
        Kinds of faults that are left out.
    say : callable
        Receives a line for each event.

    Attributes
    ----------
    recorder : Recorder
    outcome : Outcome
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        seconds: float,
        *,
        has_mirror: bool = True,
        without: tuple[str, ...] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        self.folder = folder
        self.outcome = Outcome()
        self._seed = seed
        self._say = say
        if not has_mirror:
            without = (*without, *MIRROR_FAULTS)
        self._has_mirror = has_mirror
        self._plan = Plan(Random(f"{seed} plan"), seconds, without)
        self._has_disk = not set(without) >= DISK_FAULTS
        self._services: dict[str, Service] = {}
        self._begun = time.monotonic()
        self.recorder = Recorder(folder / "samples.csv", self._begun, self._processes)
        self._entered = ExitStack()

    def __enter__(self) -> Soak:
        with ExitStack() as entered:
            self._begin(entered)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def run(self) -> Outcome:
        """Run the soak; the outcome has what was done, even if it raises."""
        try:
            with self._load:
                self._start("capture", self.commands.capture())
                self._wait_for_stream(_START_SECONDS)
                self._follower.start()
                mirror = None
                if self._has_mirror:
                    mirror_command = [*self.commands.mirror(), "--every", "10 seconds"]
                    mirror = self._start("mirror", mirror_command)
                self._cause_faults(mirror)
            self._say("the load has ended")
            for service in self._services.values():
                service.stop(_STOP_SECONDS)
            self.recorder.stop()
            self._follower.stop()
            for each in ending.differences(self._made, self._follower, self.commands, self._say):
                self.outcome.differences.append(each)
        finally:
            self.outcome.transactions = self._follower.transactions
            self.outcome.changes = self._follower.changes
            self.outcome.restarts = {
                service.name: service.restarts for service in self._services.values()
            }
            self.outcome.verdicts += flatness.judge(self.recorder.samples)
        return self.outcome

    def _begin(self, entered: ExitStack) -> None:
        """Start everything but the load and the processes that are tested."""
        self._disk: SmallDisk | None = None
        place = self.folder
        if self._has_disk:
            place = self.folder / "disk"
            place.mkdir()
            self._disk = entered.enter_context(small_disk(place, _DISK))
            place = self._disk.path
        self._pair = entered.enter_context(cluster(_SERVER, Path(gettempdir())))
        self._made = entered.enter_context(database_of(self._pair))
        entered.callback(self._keep_logs, place / "log")
        nodes = (self._pair.primary, self._pair.standby)
        self._proxies = [Proxy(f"{node.directory}/.s.PGSQL.5432") for node in nodes]
        for proxy in self._proxies:
            entered.callback(proxy.stop)
        pgbench = self._pair.primary.binaries / "pgbench"
        create_tables(self._made, pgbench)
        self._pair.make_standby()
        self._load = Load(self._made, self._seed, pgbench, self.folder)
        position = self.folder / "position"
        self._follower = LogFollower(place / "log", position)
        entered.callback(self._follower.stop)
        options = random_options(Random(f"{self._seed} options"))
        self.commands = Commands(
            self._made, self._proxies, place / "log", self.folder, position, options,
            self._has_mirror,
        )  # fmt: skip
        self.recorder.start()
        entered.callback(self.recorder.stop)

    def _cause_faults(self, mirror: Service | None) -> None:
        chance = Random(f"{self._seed} faults")
        schema = SchemaChanges(self._made.dsn, chance)
        faults = Faults(
            chance, self._plan, self._pair, self._made, self._proxies, schema,
            self.commands, self._services["capture"], mirror, self._disk,
        )  # fmt: skip
        begun = time.monotonic()
        is_first = True
        while is_first or not self._plan.is_over(time.monotonic() - begun):
            for kind in self._plan.round(time.monotonic() - begun):
                if not is_first and self._plan.is_over(time.monotonic() - begun):
                    break
                if self._plan.waits():
                    self._wait_for_stream(_RECOVERY_SECONDS)
                self._watch(self._plan.next_pause())
                self.outcome.faults.append((time.monotonic() - self._begun, kind))
                self._say(f"{kind} …")
                self._say(f"{kind}: {faults.cause(kind)}")
            is_first = False
        # The last fault must be survived, too.
        self._wait_for_stream(_RECOVERY_SECONDS)

    def _watch(self, seconds: float) -> None:
        """Wait, and raise what went wrong meanwhile."""
        end = time.monotonic() + seconds
        while True:
            for service in self._services.values():
                service.check()
            self._load.check()
            self._follower.check()
            if time.monotonic() >= end:
                return
            time.sleep(0.2)

    def _start(self, name: str, arguments: list[str]) -> Service:
        service = self._services[name] = Service(name, arguments, self.folder, self._say)
        self._entered.callback(service.end)
        return service

    def _wait_for_stream(self, seconds: float) -> None:
        """Wait until the capture streams: it has copied the tables, or survived a fault."""
        deadline = time.monotonic() + seconds
        while '"state": "streaming"' not in self._services["capture"].last_line():
            assert time.monotonic() < deadline, f"the capture does not stream in {seconds:.0f} s"
            self._watch(0.2)

    def _processes(self) -> dict[str, int]:
        return {name: service.process.pid for name, service in [*self._services.items()]}

    def _keep_logs(self, log: Path) -> None:
        """Copy what is gone after the end: the logs of both servers, and the log."""
        ending.keep(self.folder, [self._pair.primary, self._pair.standby], log)
