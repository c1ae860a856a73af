"""One run: standbys that are promoted under a workload, and a capture that is killed meanwhile."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.crash.harness import (
    Outcome,
    capture_process,
    check_that_it_lives,
    command,
    finish,
    random_options,
    wait_for_stream,
)
from tests.crash.random_workload import DDL, Workload
from tests.support.servers import Database
from tests.support.standbys import Cluster

_MOMENTS = ("before the crash", "before the promotion", "after the promotion")


def run(pair: Cluster, made: Database, folder: Path, seed: int, promotions: int) -> Outcome:
    """Promote the standby so many times, with all that is random from the seed.

    The primary crashes, or is stopped. The capture is killed in every second promotion, and started
    again. The former primary is then made the standby of the new one.
    """
    chance = random.Random(seed)
    made.execute(DDL, "CREATE PUBLICATION p FOR ALL TABLES")
    pair.make_standby()
    arguments = [*command(made, folder, chance, random_options(chance)), "--failover"]
    if chance.random() < 0.5:
        arguments.append("--snapshot")
    else:
        # The slot begins before the workload.
        arguments.append("--create-slot")
        subprocess.run([*arguments, "--until-lsn", "now"], check=True, stdout=subprocess.DEVNULL)
    with Workload(made.dsn, seed) as workload, ExitStack() as running:
        capture = running.enter_context(capture_process(arguments))
        wait_for_stream(capture)
        for number in range(promotions):
            # The capture has to run for that, and a standby without the slot must not be promoted.
            pair.wait_for_slot(made.slot, partial(check_that_it_lives, capture))
            time.sleep(chance.uniform(0.0, 2.0))
            killed_at = chance.choice(_MOMENTS) if (seed + number) % 2 else None
            for moment in _MOMENTS:
                if moment == "before the promotion":
                    pair.stop_primary(chance.choice(["fast", "immediate"]))
                elif moment == "after the promotion":
                    pair.promote()
                time.sleep(chance.uniform(0.0, 0.5))
                if moment == killed_at:
                    running.close()
            if killed_at is not None:
                capture = running.enter_context(capture_process(arguments))
            pair.make_standby()
        pair.wait_for_slot(made.slot, partial(check_that_it_lives, capture))
    return finish(made, folder, arguments, promotions, workload.committed, None)
