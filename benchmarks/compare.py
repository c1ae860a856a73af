"""Comparison of two runs, which fails if a change made a step slower.

Called as ``python -m benchmarks.compare MAIN.json CHANGE.json``. Two runs on one machine are
compared by each step's ratio to the limit, measured in the same run and the same moment. The speed
of the machine does not matter.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.grid import Grid
from benchmarks.results import Result, Run
from benchmarks.results_page import STEPS

TOLERANCE = 0.10


def main(before: str, after: str) -> int:
    """Print the comparison; return 1 if a step is slower by more than the tolerance."""
    pairs = matched(Run.read(Path(before)), Run.read(Path(after)))
    if not pairs:
        print("The runs have no measurement in common.")
        return 1
    rows = [
        [
            f"{new.table} {new.operation} {new.form}",
            STEPS[new.step],
            f"{new.rows_per_call:,}",
            f"{old.ratio:.3f}",
            f"{new.ratio:.3f}",
            f"{100 * change(old, new):+.0f} %" + ("  slower" if is_slower(old, new) else ""),
        ]
        for old, new in pairs
    ]
    head = ["changes", "step", "rows a call", "main, of the limit", "change", ""]
    print(Grid(head, rows).markdown())
    slower = sum(is_slower(old, new) for old, new in pairs)
    if slower:
        print(f"\n{slower} of {len(pairs)} steps are slower by more than {TOLERANCE:.0%}.")
    return 1 if slower else 0


def matched(before: Run, after: Run) -> list[tuple[Result, Result]]:
    """Return the pairs of steps that both runs measured beside the limit."""
    pairs = []
    for new in after.select(kind="speed", who="cython"):
        same = {
            name: getattr(new, name) for name in ("step", "table", "form", "operation", "batch")
        }
        old = before.find(kind="speed", who="cython", **same)
        if old is not None and old.ratio and new.ratio and new.step != "limit":
            pairs.append((old, new))
    return pairs


def change(old: Result, new: Result) -> float:
    """Return the gain in speed as a part of the old one's speed."""
    assert old.ratio is not None
    assert new.ratio is not None
    return new.ratio / old.ratio - 1


def is_slower(old: Result, new: Result) -> bool:
    return change(old, new) < -TOLERANCE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
