"""``python -m tests.soak``: a soak, its events as they happen, and its result."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.soak import chart
from tests.soak.plan import KILLS, OTHERS
from tests.soak.run import Outcome, Soak

_TAIL = 15


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="time with faults (default: 1)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="of the records")
    parser.add_argument("--no-mirror", action="store_true", help="only a capture, without Spark")
    kinds = sorted({*KILLS, *OTHERS})
    parser.add_argument("--without", choices=kinds, action="append", default=[], help="leave out")
    asked = parser.parse_args()
    folder = asked.folder.absolute() / f"seed-{asked.seed}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    say = Events(folder / "events.txt")
    say(f"seed {asked.seed}, {asked.hours:g} hours, in {folder}")
    soak = Soak(
        folder,
        asked.seed,
        3600 * asked.hours,
        has_mirror=not asked.no_mirror,
        without=tuple(asked.without),
        say=say,
    )
    failed = False
    try:
        with soak:
            soak.run()
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  (a soak that fails is a result)
        failed = True
        say(traceback.format_exc())
    chart.draw(folder / "chart.svg", soak.recorder.samples, soak.outcome.faults)
    _report(soak.outcome, say)
    if failed or not soak.outcome.is_good:
        for path in sorted(folder.glob("*.err")):
            lines = path.read_text("utf-8", "replace").splitlines()[-_TAIL:]
            say("\n".join([f"the end of {path.name}:", *lines]))
        say(f"FAILED: seed {asked.seed}; everything is in {folder}")
        return 1
    for name in ("lake", "checkpoint", "log", "disk"):
        shutil.rmtree(folder / name, ignore_errors=True)
    say(f"good: records and chart are in {folder}")
    return 0


class Events:
    """Prints lines with the time since the beginning, and writes them to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        minutes, seconds = divmod(time.monotonic() - self._started, 60)
        line = f"{int(minutes):3}:{seconds:04.1f} {text}"
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            print(line, flush=True)
            print(line, file=file)


def _report(outcome: Outcome, say: Events) -> None:
    kinds = Counter(kind for _, kind in outcome.faults)
    say("faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    say(
        f"{outcome.transactions:,} transactions, {outcome.changes:,} changes, "
        f"{len(outcome.differences)} differences; ended by themselves: {outcome.restarts}"
    )
    for line in outcome.differences:
        say(f"difference: {line}")
    for verdict in outcome.verdicts:
        say(str(verdict))


if __name__ == "__main__":
    sys.exit(main())
