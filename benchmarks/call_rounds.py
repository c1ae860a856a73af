"""Measurement of how long calls take, in rounds.

As a program it reads pickled arguments from standard input, and measures the version of the package
that it imports: two versions are compared in processes that take turns.
"""

from __future__ import annotations

import gc
import json
import pickle
import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

#: No further round begins after this many seconds of CPU time.
_BUDGET = 5.0


def measure(
    decoder: Callable[[], Any],
    known: Sequence[object],
    calls: Sequence[object],
    *,
    to_arrow: bool,
    rounds: int,
) -> list[float]:
    """Return the CPU seconds of rounds of calls, each by a new decoder, after one unmeasured round.

    ``known`` are calls that come before and do not count. Slow calls get fewer rounds, at least 2.
    """
    seconds: list[float] = []
    for _ in range(1 + rounds):
        if len(seconds) > 2 and sum(seconds) > _BUDGET:
            break
        decode = decoder().decode
        for messages in known:
            decode(messages)
        gc.collect()
        start = process_time()
        for messages in calls:
            changes = decode(messages)
            if to_arrow:
                for batch in changes:
                    batch.to_arrow()
        seconds.append(process_time() - start)
    return seconds[1:]


if __name__ == "__main__":
    import pgwire_codec

    work = pickle.load(sys.stdin.buffer)
    print(json.dumps(measure(pgwire_codec.Decoder, **work)))
