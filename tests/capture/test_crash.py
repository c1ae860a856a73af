"""Captures that are killed, and servers that restart or fail over, under load; see tests/crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pgwire_codec import log
from tests.crash.harness import Interruption, run
from tests.crash.promotions import run as promotions_run
from tests.support.servers import TemporaryServer, database
from tests.support.standbys import cluster, database_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("major", "interruption"),
    [
        (18, "kill"),
        (16, "immediate"),
        pytest.param(16, "kill", marks=pytest.mark.thorough),
        pytest.param(18, "immediate", marks=pytest.mark.thorough),
        pytest.param(16, "fast", marks=pytest.mark.thorough),
        pytest.param(18, "fast", marks=pytest.mark.thorough),
    ],
)
def test_the_log_equals_the_server(
    major: int, interruption: Interruption, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = random.randrange(1 << 30)
    print(f"python -m tests.crash --kills 1 --restarts 0 --seed {seed}")
    # Its own server where it is restarted: the others' tests go on with theirs.
    if interruption == "kill":
        server = request.getfixturevalue(f"pg{major}")
        with database(server) as made:
            outcome = run(made, tmp_path / "log", seed, interruption)
    else:
        with TemporaryServer(major) as server, database(server) as made:
            outcome = run(made, tmp_path / "log", seed, interruption)
    assert outcome.faults == []
    assert outcome.changes > 100


@pytest.mark.parametrize("promotions", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_promotions(promotions: int, tmp_path: Path) -> None:
    seed = 2 * random.randrange(1 << 29) + 1  # the capture is killed in the first of them
    print(f"python -m tests.crash --kills 0 --restarts 0 --promotions {promotions} --seed {seed}")
    with cluster() as pair, database_of(pair) as made:
        outcome = promotions_run(pair, made, tmp_path / "log", seed, promotions)
    assert outcome.faults == []
    assert outcome.changes > 100
    timelines = {each.header.source.timeline for each in log.Log(tmp_path / "log").segments}
    assert max(timelines) == 1 + promotions
