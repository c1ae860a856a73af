"""The programs that are compared: how each is built, and how it is called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
BUILT: Final = SOURCES.parents[1] / "build" / "peers"


class NotMeasuredError(Exception):
    """The reason why a peer has no figures."""


@dataclass(frozen=True)
class Program:
    """A program, or one of its ways to decode.

    Attributes
    ----------
    name : str
    result : str
        The values that it makes of a change.
    command : callable
        Builds the program, if it has to be, and returns its command without arguments. Raises
        ``NotMeasuredError`` if that is impossible.
    last : sequence of str
        Last argument, which selects the way.
    is_typed : bool
    forms : sequence of str
        Forms of values that it reads.
    """

    name: str
    result: str
    command: Callable[[], list[str]]
    last: Sequence[str] = ()
    is_typed: bool = False
    forms: Sequence[str] = ("text", "binary")


def _package() -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers.record_batches"]


def _rust(folder: str, binary: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        target = BUILT / folder
        build("cargo", "build", "--release", "--quiet", at=folder,
             CARGO_TARGET_DIR=str(target))  # fmt: skip
        return [str(target / "release" / binary)]

    return command


def _go(folder: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        built = str(BUILT / folder / folder)
        build("go", "build", "-o", built, ".", at=folder)
        return [built]

    return command


def build(command: str, *arguments: str, at: str, **environment: str) -> None:
    """Run a tool in a folder of the sources; raise ``NotMeasuredError`` if that fails."""
    path = shutil.which(command)
    if path is None:
        raise NotMeasuredError(f"{command} is not installed")
    done = subprocess.run(
        [path, *arguments],
        cwd=SOURCES / at,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise NotMeasuredError(f"{command} failed: {lines[-1]}")


_ELEFANT: Final = _rust("elefant", "elefant-peer")
_WALSTREAM: Final = _rust("pg_walstream", "pg-walstream-peer")
_PGLOGREPL: Final = _go("pglogrepl")

PROGRAMS: Final = (
    Program("pgwire_codec, 100,000 messages a call", "Arrow record batches", _package, ("100000",),
            is_typed=True),
    Program("pgwire_codec, 10,000 messages a call", "Arrow record batches", _package, ("10000",),
            is_typed=True),
    Program("elefant-client (Rust)", "borrowed text or bytes", _ELEFANT),
    Program("pg_walstream (Rust)", "shared bytes", _WALSTREAM),
    Program("pg_walstream (Rust)", "structs by serde, of text alone", _WALSTREAM, ("typed",),
            is_typed=True, forms=("text",)),
    Program("pglogrepl (Go)", "copied bytes", _PGLOGREPL),
    Program("pglogrepl (Go)", "values by pgtype", _PGLOGREPL, ("typed",), is_typed=True),
)  # fmt: skip
