"""The captures under tests/corpus: real pgoutput streams, and the server's own values.

tests/corpus/README.md describes each. Listing reads file names only; a capture's messages
are read at the first use and kept.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DIRECTORY = Path(__file__).parents[1] / "corpus"
_SUFFIX = ".jsonl.gz"


@dataclass(frozen=True)
class Capture:
    """One run of a scenario, as one slot with one set of options delivered it."""

    name: str  # "types.pg16.v1-text"
    scenario: str  # "types"
    major: int  # 16
    options: str  # "v1-text"; under the scenario "settings", the setting: "german"
    directory: Path = DIRECTORY

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        return self.directory / (self.name + _SUFFIX)

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        with gzip.open(self.path, "rt", encoding="ascii") as file:
            return [json.loads(line) for line in file]

    @property
    def pgoutput(self) -> dict[str, str]:
        """The options that the server's output plugin was given."""
        return dict(self._lines[0]["options"])

    @property
    def session(self) -> tuple[str, ...]:
        """Settings of the session beside the usual pins; empty but under "settings"."""
        return tuple(self._lines[0].get("session", ()))

    @cached_property
    def messages(self) -> list[bytes]:
        return [bytes.fromhex(line["data"]) for line in self._lines[1:]]

    @cached_property
    def lsns(self) -> npt.NDArray[np.uint64]:
        return np.array([line["lsn"] for line in self._lines[1:]], dtype=np.uint64)

    @cached_property
    def xids(self) -> npt.NDArray[np.uint32]:
        return np.array([line["xid"] for line in self._lines[1:]], dtype=np.uint32)


@cache
def captures_in(directory: Path) -> tuple[Capture, ...]:
    """The captures of a folder that is like tests/corpus."""
    found = []
    for path in sorted(directory.glob("*" + _SUFFIX)):
        name = path.name.removesuffix(_SUFFIX)
        scenario, server, options = name.split(".")
        found.append(Capture(name, scenario, int(server.removeprefix("pg")), options, directory))
    return tuple(found)


def captures(
    scenario: str | None = None, options: str | None = None, major: int | None = None
) -> list[Capture]:
    """The captures of a scenario, an option set, a server major; of all where one is not named."""
    return [
        capture
        for capture in captures_in(DIRECTORY)
        if scenario in (None, capture.scenario)
        and options in (None, capture.options)
        and major in (None, capture.major)
    ]


def oldest_and_newest() -> list[Capture]:
    """Of each scenario and option set, the oldest server's capture and the newest's.

    For what takes its time with each: servers differ little, options and scenarios much.
    """
    found: dict[tuple[str, str], list[Capture]] = {}
    for each in captures():
        found.setdefault((each.scenario, each.options), []).append(each)
    chosen = {end for several in found.values() for end in (several[0], several[-1])}
    return [each for each in captures() if each in chosen]


def is_newest(capture: Capture) -> bool:
    """Return True for PostgreSQL 18, of which each scenario and option set has a capture."""
    return capture.major == 18


def capture(name: str) -> Capture:
    """The capture of that name; KeyError if it is missing."""
    return {capture.name: capture for capture in captures_in(DIRECTORY)}[name]


@cache
def _truth(path: Path) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def truth(capture: Capture) -> dict[str, Any]:
    """The server's own answer after the run: table name to rows. Not to be changed."""
    name = f"{capture.scenario}.pg{capture.major}.truth.json.gz"
    return _truth(capture.directory / name)
