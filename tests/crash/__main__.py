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
from tests.crash.harness import Interruption, run
from tests.support.servers import database

MAJORS = (16, 18)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="runs that kill the capture")
    parser.add_argument("--restarts", type=int, default=20, help="runs that restart the server")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the first")
    asked = parser.parse_args()
    kinds: list[Interruption] = ["kill"] * asked.kills
    kinds += [("fast", "immediate")[number % 2] for number in range(asked.restarts)]  # type: ignore[misc]
    failed = []
    totals = dict.fromkeys(("interruptions", "transactions", "changes", "sessions", "repeated"), 0)
    started = time.monotonic()
    with ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedServer(major)) for major in MAJORS]
        for number, kind in enumerate(kinds):
            seed = asked.seed + number
            server = servers[seed // 2 % len(servers)]
            name = f"{kind:9} seed {seed} PostgreSQL {server.postgres_version}"
            try:
                with database(server) as made, tempfile.TemporaryDirectory() as folder:
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
        f"{len(kinds)} runs from seed {asked.seed} in {seconds:.0f} s: {counts}; "
        f"{len(failed)} failed"
    )
    for name in failed:
        print(f"  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
