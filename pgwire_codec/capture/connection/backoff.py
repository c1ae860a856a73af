"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from typing import Final

_FIRST: Final = 0.5  # seconds
_LONGEST: Final = 30.0


class Backoff:
    """Waits that double from attempt to attempt, up to a cap, each shortened by chance.

    By chance, so that many clients of a server that comes back do not come back at once.

    Parameters
    ----------
    max_retries : int, optional
        How many attempts may follow a failed one without success in between; None: any number.
    longest : float
        The cap, in seconds.
    """

    def __init__(self, max_retries: int | None = None, longest: float = _LONGEST) -> None:
        self._max_retries = max_retries
        self._longest = longest
        self._random = random.Random()
        self.failures = 0

    def succeed(self) -> None:
        """Take note of success: the next wait is a short one again."""
        self.failures = 0

    def fail(self) -> float | None:
        """Take note of a failure; give the seconds to wait, None when there is to be no more."""
        if self._max_retries is not None and self.failures >= self._max_retries:
            return None
        # A large exponent would overflow long after the cap is reached.
        wait = min(self._longest, _FIRST * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return wait * self._random.uniform(0.5, 1.0)
