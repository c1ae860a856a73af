"""The faults of a soak; each returns when it is over, with what was done."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.crash.restores import restore, wait_for_changes
from tests.soak.commands import Commands
from tests.soak.plan import MIN_FREE, Plan
from tests.soak.schema_changes import SchemaChanges
from tests.soak.services import Service
from tests.support.proxy import Proxy
from tests.support.servers import Database
from tests.support.small_disk import SmallDisk
from tests.support.standbys import Cluster

#: Seconds in which a mirror notices a restore, and is at the log's end again.
_MIRROR_SECONDS = 600.0

_RESTORED = ("accounts", "notes", "pgbench_tellers")


@dataclass
class Faults:
    """The faults, and the parts of a soak that they act on; it may lack a disk and a mirror."""

    chance: Random
    plan: Plan
    pair: Cluster
    made: Database
    proxies: list[Proxy]
    schema: SchemaChanges
    commands: Commands
    capture: Service
    mirror: Service | None
    disk: SmallDisk | None

    def cause(self, kind: str) -> str:
        """Cause a fault, and return its description."""
        by_kind: dict[str, Callable[[], str]] = {
            "kill capture": self._kill_capture,
            "kill mirror": self._kill_mirror,
            "full disk": lambda: self._fill(0),
            "nearly full disk": lambda: self._fill(self.chance.randrange(MIN_FREE // 2, MIN_FREE)),
            "server restart": lambda: self._restart("fast"),
            "server crash": lambda: self._restart("immediate"),
            "promotion": self._promote,
            "network stall": self._stall,
            "network reset": self._reset,
            "network cut": self._cut,
            "schema change": self.schema.apply,
            "second mirror": self._mirror_twice,
            "restore": self._restore,
        }
        return by_kind[kind]()

    def _hold(self) -> str:
        seconds = self.plan.hold()
        time.sleep(seconds)
        return f"for {seconds:.1f} s"

    def _kill_capture(self) -> str:
        pause = self.plan.hold() / 3
        self.capture.kill(pause, group=True)
        return f"started again after {pause:.1f} s"

    def _kill_mirror(self) -> str:
        assert self.mirror is not None
        pause, with_java = self.plan.hold() / 3, self.chance.random() < 0.5
        self.mirror.kill(pause, group=with_java)
        what = "with Java" if with_java else "Python only"
        return f"{what}, started again after {pause:.1f} s"

    def _fill(self, leave: int) -> str:
        assert self.disk is not None
        self.disk.fill(leave)
        try:
            return f"{leave >> 10} KiB free {self._hold()}"
        finally:
            self.disk.empty()

    def _restart(self, mode: str) -> str:
        self.pair.restart_primary("immediate" if mode == "immediate" else "fast")
        return mode

    def _promote(self) -> str:
        """Promote the standby, and make one of the former primary."""
        self.pair.wait_for_slot(self.made.slot, self.capture.check)
        mode = self.chance.choice(("fast", "immediate"))
        self.pair.stop_primary(mode)  # type: ignore[arg-type]
        self.pair.promote()
        held = self._hold()
        self.pair.make_standby()
        return f"of {self.pair.primary.directory.name}, {mode} stop, without a standby {held}"

    def _stall(self) -> str:
        """Forward nothing; afterwards connections go on, or are reset with what they held."""
        for proxy in self.proxies:
            proxy.frozen.set()
        held = self._hold()
        lost = self.chance.random() < 0.5
        for proxy in self.proxies:
            if lost:
                proxy.reset()
            proxy.frozen.clear()
        return f"{held}, then {'reset' if lost else 'all was forwarded'}"

    def _reset(self) -> str:
        count = self.chance.randint(1, 3)
        for _ in range(count):
            for proxy in self.proxies:
                proxy.reset()
            time.sleep(self.plan.hold() / 5)
        return f"{count} times"

    def _cut(self) -> str:
        for proxy in self.proxies:
            proxy.cutting.set()
        held = self._hold()
        for proxy in self.proxies:
            proxy.cutting.clear()
        return held

    def _mirror_twice(self) -> str:
        """Run a mirror into the same lake, again and again."""
        end, count = time.monotonic() + self.plan.hold(), 0
        while count == 0 or time.monotonic() < end:
            command = [*self.commands.mirror("second"), "--once", "--runner", "local"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
            count += 1
        return f"{count} times"

    def _restore(self) -> str:
        """Restore a table, and wait until the mirror has applied the changes since then."""
        assert self.mirror is not None
        table = restore(self.commands.lake, self.commands.log, self.chance, _RESTORED)
        if table is None:
            return "nothing, since the log lacks the changes"
        begun = time.monotonic()
        wait_for_changes(table, _MIRROR_SECONDS, self.mirror.check)
        return f"of {table.name}, changes applied again after {time.monotonic() - begun:.1f} s"
