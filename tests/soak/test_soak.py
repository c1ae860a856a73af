"""A short soak with every kind of fault; see tests/soak."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.soak.plan import DISK_FAULTS, KILLS, OTHERS
from tests.soak.run import Soak
from tests.support.small_disk import NoSmallDiskError, small_disk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform != "linux", reason="a soak reads Linux's /proc"),
]


def test_a_minute_with_every_fault(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the mirror's tables need it")
    pytest.importorskip("pyspark", reason="the mirror needs it")
    seed = random.randrange(1 << 30)
    print(f"python -m tests.soak --hours 0.017 --seed {seed}")
    kinds = {*KILLS, *OTHERS}
    (tmp_path / "disk").mkdir()
    try:
        with small_disk(tmp_path / "disk", 1 << 20):
            pass
    except NoSmallDiskError as error:
        print(error)
        kinds -= DISK_FAULTS
    (tmp_path / "soak").mkdir()
    without = tuple({*KILLS, *OTHERS} - kinds)
    with Soak(tmp_path / "soak", seed, 60, without=without) as soak:
        outcome = soak.run()
    assert outcome.differences == []
    assert {kind for _, kind in outcome.faults} == kinds
    assert outcome.changes > 100_000  # of the snapshot, and more
    assert outcome.transactions > 100
    recorded = {sample.process for sample in soak.recorder.samples}
    # The work of a micro-batch of some MB is done by the mirror itself.
    assert recorded - {"mirror (worker)"} == {"capture", "mirror", "mirror (Java)"}
