"""A short soak with every kind of fault; see tests/soak."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.plan import KILLS, OTHERS
from tests.soak.run import Soak

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def test_a_minute_with_every_fault(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the mirror's tables need it")
    pytest.importorskip("pyspark", reason="the mirror needs it")
    seed = random.randrange(1 << 30)
    print(f"python -m tests.soak --hours 0.017 --seed {seed}")
    with Soak(tmp_path, seed, 60) as soak:
        outcome = soak.run()
    assert outcome.differences == []
    assert {kind for _, kind in outcome.faults} == {*KILLS, *OTHERS}
    assert outcome.changes > 100_000  # of the snapshot, and more
    assert outcome.transactions > 100
    recorded = {sample.process for sample in soak.recorder.samples}
    assert recorded == {"capture", "mirror", "mirror (Java)"}
