"""The order of a soak's faults."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

#: Free bytes below which the capture waits.
MIN_FREE = 32 << 20

#: Faults that end a process.
KILLS = ("kill capture", "kill mirror", "full disk")
#: Faults that a process has to survive.
OTHERS = (
    "server restart",
    "server crash",
    "promotion",
    "nearly full disk",
    "network stall",
    "network reset",
    "network cut",
    "schema change",
    "schema change",
    "second mirror",
    "restore",
)
#: Those that need a mirror.
MIRROR_FAULTS = {"kill mirror", "second mirror", "restore"}
#: Those that need a small disk.
DISK_FAULTS = {"full disk", "nearly full disk"}
#: Part of the soak in which processes are killed. After it, the memory of those that are left is
#: that of long-lived ones.
KILLS_UNTIL = 0.35
_LONGEST_PAUSE = 25.0
_LONGEST_HOLD = 15.0


class Plan:
    """Faults in rounds, each of which has every kind, in random order.

    Attributes
    ----------
    seconds : float
        Length of the soak.
    pause : float
        Mean time between two faults.
    longest_hold : float
        Longest time for which a fault lasts, if that can be chosen.
    """

    def __init__(self, chance: Random, seconds: float, without: tuple[str, ...] = ()) -> None:
        self.seconds = seconds
        self._chance = chance
        self._others = [kind for kind in OTHERS if kind not in without]
        self._kills = [kind for kind in KILLS if kind not in without]
        self.pause = min(_LONGEST_PAUSE, seconds / 2 / len(self._others + self._kills))
        self.longest_hold = min(_LONGEST_HOLD, seconds / 20)

    def round(self, elapsed: float) -> Iterator[str]:
        """Yield the faults of a round that begins after so many seconds."""
        kills = self._kills if elapsed < KILLS_UNTIL * self.seconds else []
        kinds = [*self._others, *kills]
        self._chance.shuffle(kinds)
        yield from kinds

    def is_over(self, elapsed: float) -> bool:
        return elapsed >= self.seconds

    def next_pause(self) -> float:
        return self._chance.uniform(0.2, 1.8) * self.pause

    def waits(self) -> bool:
        """Return whether the capture streams again before the next fault; some overlap."""
        return self._chance.random() < 0.8

    def hold(self) -> float:
        """Return the length of a fault."""
        return self._chance.uniform(0.2, 1.0) * self.longest_hold
