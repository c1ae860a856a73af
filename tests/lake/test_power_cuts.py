"""A mirror goes on after a power cut at any moment. Its position is not ahead of its tables."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.lake import mirroring, rewriting
from pgwire_codec.lake.tables import delta
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.parquet import ParquetTarget
from tests.support import build
from tests.support.build import column
from tests.support.lakehouse import delta_rows
from tests.support.mirrors import ID, Row, Writer, in_order, relation
from tests.support.power_cut import Disk, restore

pytest.importorskip("deltalake")

OIDS = (1, 2)
LAKE = "data/here/lake"  # none of these folders exists at first


class Scenario:
    """Turns of a mirror of two tables, on a disk."""

    def __init__(self, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delta, "_CHECKPOINT_COMMITS", 2)
        monkeypatch.setattr(rewriting, "_SMALL_FILES", 2)
        self._folder = tmp_path
        self._kind = kind
        self._writer = Writer(tmp_path)
        self._seconds = dict.fromkeys(OIDS, "")
        self._lsns: dict[int, list[int]] = {oid: [] for oid in OIDS}

    def record(self, turns: int, every: int = 1) -> Disk:
        """Mirror some turns, from the first start on; return the disk."""
        root = self._folder / "disk"
        (root / "state" / "of").mkdir(parents=True)
        disk = Disk(root, self._folder / "pins", every)
        for turn in range(turns):
            self._change(turn)
            with disk.recorded():
                self.mirror(root)
            if turn == turns // 2:  # so old that commits before a checkpoint are removed
                old = time.time() - 40 * 86_400
                for path in root.rglob("_delta_log/*"):
                    os.utime(path, (old, old))
        disk.close()
        self._change(0)  # so that each table has a commit after the power cut
        shutil.copytree(root, self._folder / "whole")
        self.mirror(self._folder / "whole")
        self.expected = {oid: self.rows(self._folder / "whole", oid) for oid in OIDS}
        return disk

    def _change(self, turn: int) -> None:
        for oid in OIDS[: 1 + (turn + 1) % 3]:
            first, second = f"{self._writer.lsn}0", f"{self._writer.lsn}1"
            lsn = self._writer.commit(
                relation(oid, ID, column("v")),
                build.insert(oid, f"-{first}", "x"),
                build.update(oid, build.row(first, "y"), key=build.row(f"-{first}", None)),
                build.insert(oid, second, "z"),
                *(
                    [build.delete(oid, key=build.row(self._seconds[oid], None))]
                    if turn == 2
                    else []
                ),
            )
            self._lsns[oid].append(lsn)
            self._seconds[oid] = second
        self._writer.flush()

    def mirror(self, root: Path) -> None:
        mirroring.mirror(
            str(self._folder / "log"),
            f"{self._kind}{root / LAKE}",
            checkpoint=str(root / "state" / "of"),
            once=True,
            history=self._kind == "parquet:",
        ).run()

    def rows(self, root: Path, oid: int) -> list[Row]:
        path = root / LAKE / "public" / f"t{oid}"
        if self._kind == "delta:":
            return in_order(delta_rows(path).to_pylist())
        target = ParquetTarget(str(path), "pgwire_codec")
        assert target.schema is not None
        batches = [
            batch
            for file in target.files.files
            for batch in target.files.batches(file, target.schema)
        ]
        return in_order([row for batch in batches for row in batch.to_pylist()])

    def check(self, state: frozenset[tuple[str, bytes]]) -> None:
        """Check the position after a power cut; mirror again, and compare the rows."""
        root = self._folder / "again"
        restore(state, root)
        file = root / "state" / "of" / "lsn"
        lsn = log.LsnFile(str(file)).read_lsn() if file.exists() else 0
        opened: Any = DeltaTarget if self._kind == "delta:" else ParquetTarget
        for oid in OIDS:
            written = opened(str(root / LAKE / "public" / f"t{oid}"), "pgwire_codec").position
            needed = max((each for each in self._lsns[oid] if each <= lsn), default=0)
            assert (written.commit_lsn or 0) >= needed, (oid, "the position is ahead")
        self.mirror(root)
        for oid in OIDS:
            assert self.rows(root, oid) == self.expected[oid], oid
        shutil.rmtree(root)


@pytest.fixture(params=["delta:", "parquet:"])
def scenario(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scenario:
    return Scenario(tmp_path, request.param, monkeypatch)


def test_some_moments(scenario: Scenario) -> None:
    states = list(scenario.record(2, every=29).states)
    for state in (states[len(states) // 4], states[-1]):
        scenario.check(state)


@pytest.mark.thorough
def test_each_moment(scenario: Scenario) -> None:
    disk = scenario.record(6)
    failed = {}
    for state, where in disk.states.items():
        try:
            scenario.check(state)
        except Exception as error:  # noqa: BLE001  (of each state)
            failed[where] = error
            shutil.rmtree(scenario._folder / "again", ignore_errors=True)
    print(f"{disk.moments} moments, {len(disk.states)} states, {len(failed)} failed")
    texts = [
        f"{where}: {type(error).__name__} {str(error)[:300]}" for where, error in failed.items()
    ]
    assert not failed, "\n".join(texts)
