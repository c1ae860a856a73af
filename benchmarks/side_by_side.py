"""Comparison of this version with another one, on every shape of input, in one run.

Called as ``python -m benchmarks.side_by_side FOLDER [WORDS]``. The folder has the other version,
built in place. Of the shapes, those are measured whose names contain one of the words. The
versions take turns in processes of their own, and get the same messages.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks import call_rounds
from benchmarks.grid import Grid, number
from benchmarks.limit import rounds_of, skip_over
from benchmarks.shapes import Shape, shapes

HERE = Path(__file__).parents[1]
CHANGES = 100_000
TURNS = 4
ROUNDS = 3  # of a turn


def main(other: str, *words: str) -> None:
    rows = []
    for shape in shapes(CHANGES):
        if words and not any(word in shape.name for word in words):
            continue
        seconds: dict[Path, list[float]] = {Path(other): [], HERE: []}
        for turn in range(TURNS):
            for version in sorted(seconds, reverse=turn % 2 == 0):
                seconds[version] += _measured(version, shape)
        before, after = (median(seconds[each]) for each in (Path(other), HERE))
        limit = None if shape.changes is None else median(rounds_of(skip_over(shape), ROUNDS))
        rows.append(
            [
                shape.name,
                shape.unit,
                *(f"{1e9 * each / shape.count:,.0f}" for each in (before, after)),
                f"{after / before:.2f}",
                number(limit and limit / before, ".2f"),
                number(limit and limit / after, ".2f"),
            ]
        )
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    head = ["input", "ns a", "before", "after", "ratio", "of the limit, before", "after"]
    print(Grid(head, rows).markdown())


def _measured(version: Path, shape: Shape) -> list[float]:
    """Return the seconds of each round of a turn."""
    work = {
        "known": shape.known,
        # A slice is pickled with all that it was cut from, a copy is not.
        "calls": [
            each if isinstance(each, list) else pa.concat_arrays([each]) for each in shape.calls
        ],
        "to_arrow": shape.step == "to_arrow",
        "rounds": ROUNDS,
    }
    # The current directory is the first that Python imports from.
    done = subprocess.run(
        [sys.executable, "-c", Path(call_rounds.__file__).read_text("utf-8")],
        input=pickle.dumps(work),
        stdout=subprocess.PIPE,
        env={**os.environ, "PGWIRE_CODEC_IMPL": "cython"},
        cwd=version,
        check=True,
    )
    seconds: list[float] = json.loads(done.stdout)
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
