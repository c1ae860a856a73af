"""A mirror whose driver is killed under a workload; see tests/crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.servers import database

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def test_a_killed_mirror_applies_every_change_once(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """After the first kill, the checkpoint is removed; after the last one, the log is pruned."""
    pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")
    pytest.importorskip("deltalake")
    from tests.crash.mirror_kills import run

    seed = random.randrange(1 << 30)
    print(f"python -m tests.crash --kills 0 --restarts 0 --mirror-kills 3 --seed {seed}")
    with database(request.getfixturevalue("pg18")) as made:
        outcome = run(made, tmp_path, seed, kills=3)
    assert outcome.faults == []
    assert outcome.commits > 3
    assert outcome.without_checkpoint == 1
    assert outcome.pruned > 0
