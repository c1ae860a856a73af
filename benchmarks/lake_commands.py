"""Commands that are measured from a cold start: the package's own, and programs of peers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.lake_cost import Cost, command
from benchmarks.lake_spark import SETTINGS, check_spark
from benchmarks.peers.programs import NotMeasuredError

RUNNERS = ("local", "spark")

CLI = (sys.executable, "-c", "from pgwire_codec.cli import main; main()")


def capture(dsn: str, slot: str, log: Path) -> list[str]:
    """Return the command that copies the tables of the publication ``p`` into a log."""
    source = ["--dsn", dsn, "--slot", slot, "--publication", "p", "--log", str(log)]
    return [*CLI, "capture", *source, "--snapshot", "--until-lsn", "now", "--json"]


def mirror(log: Path, target: Path, runner: str) -> list[str]:
    """Return the command that brings a Delta lake to the end of a log.

    Raises ``NotMeasuredError`` without what the runner needs.
    """
    options = []
    if runner == "spark":
        check_spark()
        options = ["--checkpoint", str(target.with_suffix(".checkpoint"))]
        for name, value in SETTINGS.items():
            options += ["--conf", f"{name}={value}"]
    source = ["--log", str(log), "--to", f"delta:{target}", "--runner", runner]
    return [*CLI, "mirror", *source, "--once", "--json", *options]


def peer(name: str, *arguments: str | Path) -> list[str]:
    """Return the command of a function of ``lake_programs``."""
    return [sys.executable, "-m", "benchmarks.lake_programs", name, *map(str, arguments)]


def need(*modules: str) -> None:
    """Raise ``NotMeasuredError`` if a module is missing."""
    for name in modules:
        if find_spec(name) is None:
            raise NotMeasuredError(f"{name} is not installed; the extra bench has it")


def attempt(programs: Callable[[], list[list[str]]]) -> Cost | str:
    """Measure commands that run one after the other, or return why they cannot be measured."""
    try:
        made = programs()
    except NotMeasuredError as reason:
        return f"not measured: {reason}"
    return command(*made)
