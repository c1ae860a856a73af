"""The commands of a soak: capture, mirror and compare."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.harness import COMMAND
from tests.soak.plan import MIN_FREE
from tests.support.proxy import Proxy
from tests.support.servers import Database


@dataclass(frozen=True)
class Commands:
    """Commands for a database; the capture reaches it through proxies.

    Attributes
    ----------
    log, folder, position : Path
        The log; the folder of everything else; the file with the position of another consumer.
    options : dict
        Options of the plugin.
    """

    made: Database
    proxies: list[Proxy]
    log: Path
    folder: Path
    position: Path
    options: dict[str, Any]
    has_mirror: bool

    def capture(self) -> list[str]:
        """Return a capture, with a short retention."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        dsn = (
            f"postgresql://postgres@{hosts}/{self.made.name}"
            "?target_session_attrs=read-write&sslmode=disable&gssencmode=disable"
        )
        recorded = self.folder / "checkpoint" / "lsn"
        checkpoint = [f"--consumer=file:{recorded}"] if self.has_mirror else []
        return [
            *(sys.executable, "-c", COMMAND, "capture", "--json", "--dsn", dsn),
            *("--slot", self.made.slot, "--publication", "p", "--snapshot", "--failover"),
            *("--log", str(self.log), "--min-free", str(MIN_FREE), "--keep", "60s"),
            *("--max-bytes", "64MiB", "--segment-bytes", str(4 << 20), "--segment-seconds", "30"),
            *("--streaming", self.options["streaming"], f"--consumer=file:{self.position}"),
            *checkpoint,
            *(["--two-phase"] if self.options["two_phase"] else []),
            *(["--binary"] if self.options["binary"] else []),
        ]

    @property
    def lake(self) -> Path:
        """Folder of the mirror's tables."""
        return self.folder / "lake"

    def mirror(self, checkpoint: str = "checkpoint") -> list[str]:
        return [
            *self._of_lake("mirror"),
            *("--checkpoint", str(self.folder / checkpoint)),
            *("--conf", "spark.driver.memory=1g"),
            # Touched at the start, so that the memory shows what grows beside the heap. A leak in
            # the heap ends the process.
            *("--conf", "spark.driver.extraJavaOptions=-Xms1g -XX:+AlwaysPreTouch"),
        ]

    def compare(self) -> list[str]:
        return [*self._of_lake("compare"), "--runner", "local", "--dsn", self.made.dsn]

    def _of_lake(self, name: str) -> list[str]:
        return [
            *(sys.executable, "-c", COMMAND, name, "--json", "--log", str(self.log)),
            *("--to", f"delta:{self.lake}"),
        ]
