"""``python -m tests.crash``: many runs and their results."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pgwire_codec.demo.server import EmbeddedServer
from tests.crash.harness import Interruption, Outcome, run
from tests.crash.mirror_kills import MirrorOutcome
from tests.crash.mirror_kills import run as mirror_run
from tests.crash.mirror_pairs import PAIRS, PairOutcome
from tests.crash.mirror_pairs import run as pair_run
from tests.crash.promotions import run as promotions_run
from tests.crash.trial import TrialOutcome
from tests.crash.trial import run as trial_run
from tests.support.servers import database
from tests.support.standbys import cluster, database_of

MAJORS = (16, 18)
_PROMOTIONS = 4  # of one cluster, one after the other
_MIRROR_KILLS = 6  # of the mirror of one log, one after the other
_TRIAL_KILLS = (48, 20)  # of the capture, and of the mirror

#: A run in a folder, with a seed.
_Run = Callable[[Path, int], Outcome | MirrorOutcome | TrialOutcome | PairOutcome]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="runs that kill the capture")
    parser.add_argument("--restarts", type=int, default=20, help="runs that restart the server")
    parser.add_argument("--promotions", type=int, default=0, help="promotions of a standby")
    parser.add_argument("--mirror-kills", type=int, default=0, help="kills of a mirror's driver")
    parser.add_argument("--trials", type=int, default=0, help="runs of 28 tables, 48 and 20 kills")
    parser.add_argument("--pairs", type=float, default=0, help="seconds of each pair of mirrors")
    parser.add_argument("--pair", action="append", default=[], help="local,spark: not all pairs")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the first")
    asked = parser.parse_args()
    kinds: list[Interruption] = ["kill"] * asked.kills
    kinds += [("fast", "immediate")[number % 2] for number in range(asked.restarts)]
    pairs = [pair for pair in PAIRS if not asked.pair or ",".join(pair) in asked.pair]
    failed = []
    totals: Counter[str] = Counter()
    started = time.monotonic()
    with ExitStack() as stack:
        servers = _Servers(stack, asked.pairs)
        runs: list[tuple[str, _Run]] = [
            *((kind, partial(servers.interrupt, kind)) for kind in kinds),
            *(
                ("promotion", partial(_promote, promotions))
                for promotions in _chains(asked.promotions, _PROMOTIONS)
            ),
            *(
                ("mirror", partial(servers.kill_mirror, kills))
                for kills in _chains(asked.mirror_kills, _MIRROR_KILLS)
            ),
            *[("trial", servers.try_all)] * asked.trials,
            *(
                (f"{'+'.join(pair)}{' history' * history}", partial(servers.pair, pair, history))
                for history in (False, True)
                for pair in pairs
                if asked.pairs
            ),
        ]
        for number, (kind, one) in enumerate(runs):
            seed = asked.seed + number
            name = f"{kind:9} seed {seed}"
            if kind != "promotion":
                name += f" PostgreSQL {_major(seed)}"
            try:
                with tempfile.TemporaryDirectory() as folder:
                    outcome = one(Path(folder), seed)
            except Exception:  # noqa: BLE001  (a run that fails is a result)
                failed.append(name)
                print(f"FAILED    {name}\n{traceback.format_exc()}", flush=True)
                continue
            totals.update({k: v for k, v in asdict(outcome).items() if isinstance(v, int)})
            print(f"{'FAILED' if outcome.faults else 'equal':9} {name}: {outcome}", flush=True)
            if outcome.faults:
                failed.append(name)
    counts = ", ".join(f"{value:,} {field}" for field, value in totals.items())
    seconds = time.monotonic() - started
    print(
        f"{len(runs)} runs from seed {asked.seed} in {seconds:.0f} s: {counts}; "
        f"{len(failed)} failed"
    )
    for name in failed:
        print(f"  {name}")
    return 1 if failed else 0


def _chains(count: int, length: int) -> Iterator[int]:
    """Yield the lengths of runs that make up a number of interruptions."""
    for done in range(0, count, length):
        yield min(length, count - done)


class _Servers:
    """Servers of each major, started when they are needed."""

    def __init__(self, stack: ExitStack, pair_seconds: float) -> None:
        self._stack = stack
        self._pair_seconds = pair_seconds
        self._started: dict[int, EmbeddedServer] = {}

    def interrupt(self, kind: Interruption, folder: Path, seed: int) -> Outcome:
        with database(self._of(seed)) as made:
            return run(made, folder / "log", seed, kind)

    def kill_mirror(self, kills: int, folder: Path, seed: int) -> MirrorOutcome:
        with database(self._of(seed)) as made:
            return mirror_run(made, folder, seed, kills)

    def try_all(self, folder: Path, seed: int) -> TrialOutcome:
        with database(self._of(seed)) as made:
            return trial_run(made, folder, seed, *_TRIAL_KILLS)

    def pair(self, kinds: tuple[str, str], history: bool, folder: Path, seed: int) -> PairOutcome:
        with database(self._of(seed)) as made:
            return pair_run(made, folder, seed, kinds, self._pair_seconds, history)

    def _of(self, seed: int) -> EmbeddedServer:
        major = _major(seed)
        if major not in self._started:
            self._started[major] = self._stack.enter_context(EmbeddedServer(major))
        return self._started[major]


def _major(seed: int) -> int:
    return MAJORS[seed // 2 % len(MAJORS)]


def _promote(promotions: int, folder: Path, seed: int) -> Outcome:
    with cluster() as pair, database_of(pair) as made:
        return promotions_run(pair, made, folder / "log", seed, promotions)


if __name__ == "__main__":
    sys.exit(main())
