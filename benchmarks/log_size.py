"""Measures logs on disk: their size, and the cost of writing and reading them, by compression.

Called as ``python -m benchmarks.log_size [ROWS [FOLDER]]``, by ``make bench-log``. FOLDER has
another version, built in place, which is measured with its default compression. Versions and
compressions take turns in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import log_cost
from benchmarks.grid import Grid
from benchmarks.log_streams import streams

HERE = Path(__file__).parents[1]
TURNS = 4
ROUNDS = 3  # of a turn

HEAD = ("stream", "log", "of the messages' bytes", "write, ns a message", "read, CPU",
        "read, its thread", "read, by the clock")  # fmt: skip

NOTES = """\
Nanoseconds are minima. Reading is decoding to record batches, of files in memory. `its thread` is
the CPU time of the thread that decodes, without that of the one that reads ahead: it is the time by
the clock, if a core is free."""

Version = tuple[Path, dict[str, Any]]


def main(rows: str = "300000", other: str | None = None) -> None:
    versions: dict[str, Version] = {} if other is None else {"before": (Path(other), {})}
    versions["default"] = HERE, {}
    versions |= {str(each): (HERE, {"compression": each}) for each in (None, "lz4", "zstd")}
    lines = []
    with tempfile.TemporaryDirectory() as place:
        for name, path in streams(Path(place), int(rows)):
            for label, found in _compared(versions, path).items():
                keys = ("write", "read", "read thread", "read clock")
                figures = [f"{min(found[key]):.0f}" for key in keys]
                lines.append([name, label, f"{found['size'][0]:.3f}", *figures])
                print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
    print(Grid(HEAD, lines).markdown(), NOTES, sep="\n\n")


def _compared(versions: dict[str, Version], path: Path) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {label: {} for label in versions}
    for turn in range(TURNS):
        for label in list(versions)[:: 1 if turn % 2 else -1]:
            for key, values in _cost(*versions[label], path).items():
                found[label].setdefault(key, []).extend(values)
    return found


def _cost(version: Path, options: dict[str, Any], path: Path) -> dict[str, list[float]]:
    program = Path(log_cost.__file__).read_text("utf-8")
    # The current directory is the first that Python imports from.
    done = subprocess.run(
        [sys.executable, "-c", program, path, json.dumps(options), str(ROUNDS)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PGWIRE_CODEC_IMPL": "cython", "PYTHONPATH": ""},
        cwd=version,
        check=True,
    )
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
