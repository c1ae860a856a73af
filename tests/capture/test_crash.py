"""Captures that are killed, and servers that are restarted, under a workload; see tests/crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pgwire_codec.demo.server import EmbeddedServer
from tests.crash.harness import Interruption, run
from tests.support.servers import database

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
        with EmbeddedServer(major) as server, database(server) as made:
            outcome = run(made, tmp_path / "log", seed, interruption)
    assert outcome.faults == []
    assert outcome.changes > 100
