"""``python -m tests.crash``: many runs and their results."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from pgwire_codec.demo.server import EmbeddedServer
from tests.crash.harness import Interruption, Outcome, run
from tests.crash.promotions import run as promotions_run
from tests.support.servers import database
from tests.support.standbys import cluster, database_of

MAJORS = (16, 18)
_CHAIN = 4  # promotions of one cluster, one after the other


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="runs that kill the capture")
    parser.add_argument("--restarts", type=int, default=20, help="runs that restart the server")
    parser.add_argument("--promotions", type=int, default=0, help="promotions of a standby")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the first")
    asked = parser.parse_args()
    kinds: list[Interruption] = ["kill"] * asked.kills
    kinds += [("fast", "immediate")[number % 2] for number in range(asked.restarts)]  # type: ignore[misc]
    chains = [min(_CHAIN, asked.promotions - done) for done in range(0, asked.promotions, _CHAIN)]
    failed = []
    totals = dict.fromkeys(("interruptions", "transactions", "changes", "sessions", "repeated"), 0)
    started = time.monotonic()
    with ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedServer(major)) for major in MAJORS if kinds]
        for number, kind in enumerate([*kinds, *chains]):
            seed = asked.seed + number
            name = f"{kind:9} seed {seed}"
            try:
                with tempfile.TemporaryDirectory() as folder:
                    if isinstance(kind, int):
                        name = f"promotion seed {seed}"
                        outcome = _promote(Path(folder) / "log", seed, kind)
                    else:
                        server = servers[seed // 2 % len(servers)]
                        name += f" PostgreSQL {server.postgres_version}"
                        with database(server) as made:
                            outcome = run(made, Path(folder) / "log", seed, kind)
            except Exception:  # noqa: BLE001  (a run that fails is a result)
                failed.append(name)
                print(f"FAILED    {name}\n{traceback.format_exc()}", flush=True)
                continue
            for field in totals:
                totals[field] += getattr(outcome, field)
            print(f"{'FAILED' if outcome.faults else 'equal':9} {name}: {outcome}", flush=True)
            if outcome.faults:
                failed.append(name)
    counts = ", ".join(f"{value:,} {field}" for field, value in totals.items())
    seconds = time.monotonic() - started
    print(
        f"{len(kinds) + len(chains)} runs from seed {asked.seed} in {seconds:.0f} s: {counts}; "
        f"{len(failed)} failed"
    )
    for name in failed:
        print(f"  {name}")
    return 1 if failed else 0


def _promote(folder: Path, seed: int, promotions: int) -> Outcome:
    with cluster() as pair, database_of(pair) as made:
        return promotions_run(pair, made, folder, seed, promotions)


if __name__ == "__main__":
    sys.exit(main())
