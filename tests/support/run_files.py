"""Files of ``pgwire-codec run`` for a database of the tests, and the processes of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.deployment import COMMAND, ROOT
from tests.support.lakehouse import delta_rows
from tests.support.processes import kill_tree
from tests.support.servers import Database

FILE = """
log = "{place}shop.log"

[capture]
dsn = {dsn}
slot = "{slot}"
publication = "{publication}"
{capture}

[mirror]
to = "delta:lake"
runner = "local"
checkpoint = "{place}checkpoint"
"""


def run_file(made: Database, folder: Path, capture: str = "", place: str = "") -> Path:
    """Write the file of a database, with further options of the capture.

    Log and checkpoint are in ``place``, which ends with a slash, or else beside the file.
    """
    path = folder / "shop.toml"
    text = FILE.format(
        dsn=json.dumps(made.dsn),
        slot=made.slot,
        publication=made.publication,
        capture=capture,
        place=place,
    )
    path.write_text(text, encoding="utf-8")
    return path


class Run:
    """A run of a file, whose output goes to files beside it."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self._folder = folder

    @property
    def errors(self) -> str:
        return (self._folder / "stderr").read_text(encoding="utf-8")

    @property
    def output(self) -> str:
        return (self._folder / "stdout").read_text(encoding="utf-8")

    def child(self, name: str) -> psutil.Process | None:
        """Return the process of a command, if it runs."""
        children = psutil.Process(self.process.pid).children()
        return next((each for each in children if each.cmdline()[-1:] == [name]), None)

    def stop(self) -> int:
        """End it as a service manager does; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def run_of(path: Path, *options: str) -> Iterator[Run]:
    """Run a file; kill what is left of it at the end."""
    folder = path.parent
    with (
        (folder / "stdout").open("wb") as output,
        (folder / "stderr").open("wb") as errors,
        subprocess.Popen(
            [*COMMAND, "run", *options, str(path)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        ) as process,
    ):
        try:
            yield Run(process, folder)
        finally:
            kill_tree(process.pid)


def mirrored_keys(folder: Path) -> list[Any]:
    """Return the keys of table t in the lake, in order; none if it does not exist."""
    path = folder / "lake" / "public" / "t"
    is_committed = any((path / "_delta_log").glob("*.json"))
    return sorted(delta_rows(path)["k"].to_pylist()) if is_committed else []
