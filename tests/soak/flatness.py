"""Verdict on the memory and the descriptors of processes: flat, or not.

A window has the median of its samples: a process has more of both while it works, and fewer
descriptors while the server is away. It is as long as a round of faults: memory differs between
parts of a round, because it differs between faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from tests.soak.recorder import Sample

#: Age from which a process is judged, and length of a window, in seconds.
SETTLED = 600.0
WINDOW = 300.0
#: Age at which processes that were killed are compared with one another.
_EQUAL_AGE = (45.0, 75.0)
_TOLERANCE = 0.05
_DESCRIPTORS = 3  # of a few, one more is a large part
_MEASURES = ("rss", "descriptors")


@dataclass(frozen=True)
class Verdict:
    """Values of windows, of which the first is the reference; they are only shown or judged."""

    process: str
    measure: str
    what: str  # are the windows
    values: tuple[float, ...]
    is_judged: bool

    @property
    def is_flat(self) -> bool | None:
        """None if there are too few windows, or they are only shown."""
        if len(self.values) < 2 or not self.is_judged:
            return None
        tolerance = _TOLERANCE * self.values[0]
        if self.measure == "descriptors":
            tolerance = max(tolerance, _DESCRIPTORS)
        return all(abs(each - self.values[0]) <= tolerance for each in self.values[1:])

    def __str__(self) -> str:
        words = {None: "not judged", True: "flat", False: "NOT FLAT"}
        scale = 1 if self.measure == "descriptors" else 1 << 20
        unit = "" if self.measure == "descriptors" else " MiB"
        shown = ", ".join(f"{each / scale:.1f}".removesuffix(".0") for each in self.values)
        change = ""
        if len(self.values) > 1:
            low, high = (each(self.values) / self.values[0] - 1 for each in (min, max))
            change = f" ({low:+.1%} to {high:+.1%} of the first)"
        return (
            f"{words[self.is_flat]}: {self.measure} of {self.process}, {self.what}: "
            f"{shown or 'none'}{unit if shown else ''}{change}"
        )


def judge(samples: Iterable[Sample]) -> Iterator[Verdict]:
    """Yield two verdicts for each process and measure.

    One is on the process that lived longest, by windows from the age of ten minutes on. The other
    shows all processes of the name at the same age of about a minute, when none has settled: one
    that needs more with each start, as when the log that it reads grows, is seen there.
    """
    ordered = sorted(samples, key=lambda each: (each.process, each.pid, each.seconds))
    for process, of_process in groupby(ordered, key=lambda each: each.process):
        lives = [list(life) for _, life in groupby(of_process, key=lambda each: each.pid)]
        lives.sort(key=lambda life: life[0].seconds)
        longest = max(lives, key=lambda life: life[-1].age)
        for measure in _MEASURES:
            windows = tuple(median(each) for each in _windows(longest, measure))
            what = f"the longest-lived process, each {WINDOW:.0f} s from {SETTLED:.0f} s on"
            yield Verdict(process, measure, what, windows, is_judged=True)
            low, high = _EQUAL_AGE
            young = (
                [getattr(each, measure) for each in life if low <= each.age <= high]
                for life in lives
            )
            what = f"each process at the age of {low:.0f} to {high:.0f} s"
            values = tuple(median(life) for life in young if life)
            yield Verdict(process, measure, what, values, is_judged=False)


def _windows(life: list[Sample], measure: str) -> Iterator[list[int]]:
    """Yield the samples of each whole window."""
    start = SETTLED
    while start + WINDOW <= life[-1].age:
        inside = [getattr(each, measure) for each in life if start <= each.age < start + WINDOW]
        if inside:
            yield inside
        start += WINDOW
