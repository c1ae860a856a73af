"""The end of a soak: the log and the mirror's tables, compared with the server; the evidence."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pgwire_codec import log
from pgwire_codec.format import format_count, format_size
from tests.crash.random_workload import settle
from tests.soak.commands import Commands
from tests.soak.log_follower import LogFollower
from tests.support.servers import Database
from tests.support.standbys import Node

_SECONDS = 900.0  # for each command
#: Of a comparison: a table that the soak dropped is gone.
_GOOD = ("equal", "gone")


def differences(
    made: Database, follower: LogFollower, commands: Commands, say: Callable[[str], None]
) -> Iterator[str]:
    """Capture and mirror what is left, and yield what differs from the server."""
    settle(made.dsn)
    yield from _run([*commands.capture(), "--until-lsn", "now", "--max-retries", "10"])
    follower.advance()
    found = [*follower.faults, *follower.differences(made)]
    yield from found
    left = log.Log(commands.log)
    size = sum(each.stat().st_size for each in commands.log.iterdir())
    say(
        f"the log was compared: {format_count(len(found), 'difference')}. It has "
        f"{format_count(len(left), 'segment')} of {format_size(size)} left, from message "
        f"{left.begin.ordinal:,} of {left.end.ordinal:,} on"
    )
    yield from map(str, log.verify(commands.log).damage)
    if commands.has_mirror:
        yield from _run([*commands.mirror(), "--once"])
        tables: list[dict[str, Any]] = []
        yield from _run(commands.compare(), tables)
        say("mirror: " + ", ".join(f"{each['table']} {each['state']}" for each in tables))


def _run(arguments: list[str], tables: list[dict[str, Any]] | None = None) -> Iterator[str]:
    """Run a command to its end, and yield its failure; a comparison's ``tables`` are added."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=_SECONDS)
    if tables is None:
        if done.returncode != 0:
            yield f"status {done.returncode} of {arguments}: {done.stderr}"
        return
    tables += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not tables:
        yield f"no table was compared: {done.stderr}"
    yield from (f"mirror: {each}" for each in tables if each["state"] not in _GOOD)


def keep(folder: Path, nodes: Iterable[Node], log_folder: Path) -> None:
    """Copy the servers' logs and the log into a folder, before they are removed."""
    for node in nodes:
        server_log = node.directory / "log"
        if server_log.exists():
            shutil.copy(server_log, folder / f"server-{node.directory.name}.log")
    if log_folder.exists() and not (folder / "log").exists():
        shutil.copytree(log_folder, folder / "log")
