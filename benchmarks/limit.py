"""The limit of a decoder: a loop in C that skips over columns, compiled at first use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import pgwire_codec as pgc
from benchmarks.shapes import Shape
from pgwire_codec.codec.message_array import to_message_arrays

_SOURCE: Final = Path(__file__).with_name("limit.c")
_BUILDS: Final = Path(__file__).parents[1] / "build" / "benchmarks"


def skip_columns(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> int:
    """Return the number of bytes skipped; the messages must be whole changes."""
    skipped: int = _loop()(data.ctypes.data, offsets.ctypes.data, len(offsets) - 1)
    return skipped


def skip_over(shape: Shape) -> Callable[[], None]:
    """Return the limit's step: skip over every column of every change."""
    arrays = to_message_arrays(shape.changes, pgc.Decoder.codec)

    def step() -> None:
        for array in arrays:
            skip_columns(array.data, array.offsets)

    return step


def rounds_of(step: Callable[[], None], rounds: int) -> list[float]:
    """Return the CPU seconds of each round of a step, after one unmeasured round."""
    seconds = []
    for _ in range(1 + rounds):
        start = process_time()
        step()
        seconds.append(process_time() - start)
    return seconds[1:]


@cache
def _loop() -> Any:
    """Return the compiled loop, which an earlier run may have built."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, "-O3", "-shared", "-fPIC", str(_SOURCE), "-o"]
    digest = hashlib.sha256(repr(command).encode() + _SOURCE.read_bytes()).hexdigest()
    library = _BUILDS / f"limit-{digest[:16]}.so"
    if not library.exists():
        _BUILDS.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, str(unfinished)], check=True)
        unfinished.replace(library)
    loop = ctypes.CDLL(str(library)).skip_columns
    loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    loop.restype = ctypes.c_int64
    return loop
