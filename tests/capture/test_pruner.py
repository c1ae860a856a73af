"""A capture that prunes its log: what consumers need stays, and an error ends nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pgwire_codec import log
from pgwire_codec.capture import LogCapture, SegmentOptions, pruner
from pgwire_codec.protocol.lsn import format_lsn
from tests.support.log_captures import capture_into, flush_lsn, running
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

pytestmark = pytest.mark.slow

ALL_SEALED = SegmentOptions(segment_bytes=1)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruner.Pruner.__init__, "__defaults__", (0.05,))


def notes(capture: LogCapture) -> str:
    return "\n".join(capture.status.notes)


def test_what_a_consumer_has_not_read_stays(table: Database, tmp_path: Path) -> None:
    position = tmp_path / "position"
    retention = log.Retention(keep=timedelta(0), consumers=(log.LsnFile(position),))
    folder = tmp_path / "log"
    capture = capture_into(
        table, folder, flush_seconds=0.01, segments=ALL_SEALED, retention=retention
    )
    with running(capture) as failed:
        wait_until(lambda: capture.status.state == "streaming")
        for key in range(8):
            table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
            end = flush_lsn(table)
            assert wait_until(lambda end=end: log.Log(folder).confirm_lsn >= end)
            if key == 3:
                # Nobody knows what the consumer has read: nothing is removed, and it is said.
                assert f"the log is not pruned: {position} does not exist" in notes(capture)
                assert capture.status.pruned_segments == 0
                read = log.Log(folder).end.lsn
                position.write_text(format_lsn(read))
        assert wait_until(lambda: capture.status.pruned_segments > 2)
        assert wait_until(lambda: "not pruned" not in notes(capture))
    assert failed == []
    kept = log.Log(folder).read("public.t", after=read)
    assert [key for each in kept for key in each.new["k"].to_pylist()] == [4, 5, 6, 7]
    assert log.Log(folder).begin.lsn == read
    assert log.verify(folder).is_sound


def test_a_short_capture_prunes(table: Database, tmp_path: Path) -> None:
    """As a job that captures what there is, and ends."""
    retention = log.Retention(max_bytes=0)
    pruned = 0
    for key in range(4):
        table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
        capture = capture_into(table, tmp_path, segments=ALL_SEALED, retention=retention)
        status = capture.run(until_lsn="now")
        assert (status.state, "not pruned" in notes(capture)) == ("stopped", False)
        pruned += status.pruned_segments  # the last one may have nothing left to prune
    assert pruned > 0
    assert log.Log(tmp_path).begin.lsn > 0
