"""Captures that are killed, and servers that restart or fail over, under load; see tests/crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pgwire_codec import log
from tests.crash.harness import Interruption, run
from tests.crash.promotions import run as promotions_run
from tests.crash.random_workload import PACE
from tests.support.servers import TemporaryServer, database
from tests.support.standbys import cluster, database_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("major", "interruption", "pace"),
    [
        (18, "kill", 5.0),  # the time of the comparison grows with the changes
        (18, "immediate", 5.0),
        pytest.param(18, "kill", PACE, marks=pytest.mark.thorough),
        pytest.param(18, "immediate", PACE, marks=pytest.mark.thorough),
        pytest.param(18, "fast", PACE, marks=pytest.mark.thorough),
        pytest.param(16, "kill", PACE, marks=pytest.mark.thorough),
        pytest.param(16, "immediate", PACE, marks=pytest.mark.thorough),
        pytest.param(16, "fast", PACE, marks=pytest.mark.thorough),
    ],
)
def test_the_log_equals_the_server(
    major: int,
    interruption: Interruption,
    pace: float,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"python -m tests.crash --kills 1 --restarts 0 --seed {seed}")
    # Its own server where it is restarted: the others' tests go on with theirs.
    if interruption == "kill":
        server = request.getfixturevalue(f"pg{major}")
        with database(server) as made:
            outcome = run(made, tmp_path / "log", seed, interruption, pace)
    else:
        with TemporaryServer(major) as server, database(server) as made:
            outcome = run(made, tmp_path / "log", seed, interruption, pace)
    assert outcome.faults == []
    assert outcome.changes > 100


@pytest.mark.thorough
@pytest.mark.parametrize("promotions", [1, 3])
def test_promotions(promotions: int, tmp_path: Path) -> None:
    seed = 2 * random.randrange(1 << 29) + 1  # the capture is killed in the first of them
    print(f"python -m tests.crash --kills 0 --restarts 0 --promotions {promotions} --seed {seed}")
    with cluster() as pair, database_of(pair) as made:
        outcome = promotions_run(pair, made, tmp_path / "log", seed, promotions)
    assert outcome.faults == []
    assert outcome.changes > 100
    timelines = {each.header.source.timeline for each in log.Log(tmp_path / "log").segments}
    assert max(timelines) == 1 + promotions
