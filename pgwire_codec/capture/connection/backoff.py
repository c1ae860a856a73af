"""Waiting times between attempts."""

from __future__ import annotations

import random
from typing import Final

_FIRST: Final = 0.5  # seconds
_LONGEST: Final = 30.0


class Backoff:
    """Waiting times that double from attempt to attempt, up to a cap, each randomly shortened.

    The random part keeps many clients of a restarted server from connecting at once.

    Parameters
    ----------
    max_retries : int, optional
        Maximum number of consecutive failures to retry; None: any number.
    longest : float
        The cap, in seconds.
    """

    def __init__(self, max_retries: int | None = None, longest: float = _LONGEST) -> None:
        self._max_retries = max_retries
        self._longest = longest
        self._random = random.Random()
        self.failures = 0

    def succeed(self) -> None:
        """Record a success: the next waiting time is a short one again."""
        self.failures = 0

    def fail(self) -> float | None:
        """Record a failure; return the seconds to wait, or None to make no further attempt."""
        if self._max_retries is not None and self.failures >= self._max_retries:
            return None
        # A large exponent would overflow long after the cap is reached.
        wait = min(self._longest, _FIRST * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return wait * self._random.uniform(0.5, 1.0)
