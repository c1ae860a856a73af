"""Says whether a change made a hot path slower.

Called as ``python -m benchmarks.compare MAIN.json CHANGE.json``. Two runs on one machine are
compared by each step's ratio to the limit, measured in the same run and the same moment: how fast
the machine is, or was, does not matter.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.report import STEPS, grid
from benchmarks.results import Result, Run

TOLERANCE = 0.10


def main(before: str, after: str) -> int:
    """Print the comparison; 1 if a step of the change reaches less of the limit by a tenth."""
    pairs = matched(Run.read(Path(before)), Run.read(Path(after)))
    if not pairs:
        print("The runs have no measurement in common.")
        return 1
    lines = [
        [
            f"{new.table} {new.operation} {new.form}",
            STEPS[new.step],
            f"{new.batch or new.rows:,}",
            f"{old.ratio:.3f}",
            f"{new.ratio:.3f}",
            f"{100 * change(old, new):+.0f} %" + ("  slower" if is_slower(old, new) else ""),
        ]
        for old, new in pairs
    ]
    print(grid(["changes", "step", "rows a call", "main, of the limit", "change", ""], lines))
    slower = sum(is_slower(old, new) for old, new in pairs)
    if slower:
        print(f"\n{slower} of {len(pairs)} steps are slower by more than {TOLERANCE:.0%}.")
    return 1 if slower else 0


def matched(before: Run, after: Run) -> list[tuple[Result, Result]]:
    """Pair what both runs measured beside the limit."""
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
    """How much faster the new one is, as a part of the old one's speed."""
    assert old.ratio is not None
    assert new.ratio is not None
    return new.ratio / old.ratio - 1


def is_slower(old: Result, new: Result) -> bool:
    return change(old, new) < -TOLERANCE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
