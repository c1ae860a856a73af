"""A capture that continues on a promoted standby, and one that cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.capture import LogCapture
from pgwire_codec.errors import CaptureError, LogError
from tests.support.log_captures import applied, capture_into, flush_lsn
from tests.support.servers import GIVEN, Database
from tests.support.slot_captures import confirmed_by_server, wait_until
from tests.support.standbys import Cluster, Node, cluster, database_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=["given" if GIVEN else "pg18"])
def pair() -> Iterator[Cluster]:
    """A primary and its standby, to be promoted."""
    with cluster() as started:
        started.make_standby()
        yield started


@pytest.fixture
def made(pair: Cluster) -> Iterator[Database]:
    """A database with a table, its publication and a failover slot that the standby has."""
    with database_of(pair) as created:
        created.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
        created.execute("CREATE PUBLICATION p FOR TABLE t")
        create_slot(created)
        pair.wait_for_slot(created.slot, lambda: advance(created))
        yield created


def create_slot(made: Database, failover: bool = True) -> None:
    made.query(
        f"SELECT pg_create_logical_replication_slot('{made.slot}', 'pgoutput', false, false,"
        f" {failover})"
    )


def advance(made: Database) -> None:
    """Move the slot to the end of the server's WAL, as a consumer would."""
    made.query(f"SELECT pg_replication_slot_advance('{made.slot}', pg_current_wal_lsn())")


def insert(made: Database, keys: range) -> None:
    made.execute(*(f"INSERT INTO t VALUES ({key}, '{key}')" for key in keys))


def fail_over(pair: Cluster) -> None:
    """Crash the primary, and promote its standby; the former primary's new standby is awaited."""
    pair.stop_primary("immediate")
    pair.promote()
    stop_waiting(pair.primary)


def stop_waiting(node: Node) -> None:
    """Have a primary without a standby wait for none."""
    node.query("ALTER SYSTEM SET synchronized_standby_slots = ''")
    node.query("SELECT pg_reload_conf()")


def captured(made: Database, folder: Path, **options: Any) -> list[int]:
    """Capture up to now, and return the keys that the log has, each of them once."""
    capture_into(made, folder, **options).run(until_lsn=flush_lsn(made))
    return sorted(key for (key,) in applied(folder, "public.t", "k").rows)


def keys(made: Database) -> list[int]:
    """Return the keys that the server has."""
    return sorted(key for (key,) in made.query("SELECT k FROM t"))


def timelines(folder: Path) -> list[tuple[int, int]]:
    """Return session and timeline of each segment."""
    headers = [segment.header for segment in log.Log(folder).segments]
    return sorted({(each.session, each.source.timeline) for each in headers})


def state_of(running: LogCapture, name: str) -> bool:
    return wait_until(lambda: running.status.state == name, 30)


class TestPromoted:
    def test_between_two_captures(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        insert(made, range(5))
        captured(made, tmp_path)
        first = log.Log(tmp_path)
        fail_over(pair)
        insert(made, range(5, 10))
        assert captured(made, tmp_path) == keys(made) == list(range(10))
        assert timelines(tmp_path) == [(1, 1), (2, 2)]
        source = log.Log(tmp_path).source
        assert (first.source.ancestors, list(source.ancestors)) == ({}, [1])
        assert first.confirm_lsn <= source.ancestors[1]
        assert log.verify(tmp_path).is_sound

    def test_while_it_runs(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        """The DSN names both hosts; the slot's position on the new primary may be older."""
        running = capture_into(made, tmp_path)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        assert state_of(running, "streaming")
        insert(made, range(5))
        assert wait_until(lambda: running.status.messages >= 15)
        fail_over(pair)
        insert(made, range(5, 10))
        assert wait_until(lambda: running.status.messages >= 30, 30)
        running.stop()
        thread.join(10)
        assert captured(made, tmp_path) == keys(made) == list(range(10))
        assert {timeline for _, timeline in timelines(tmp_path)} == {1, 2}

    @pytest.mark.thorough
    def test_the_slot_is_older_than_the_log(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        """The server repeats what the log has, which is compared and not written again."""
        pair.standby.query("ALTER SYSTEM SET sync_replication_slots = off")
        pair.standby.query("SELECT pg_reload_conf()")
        no_worker = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'slotsync worker'"
        assert wait_until(lambda: pair.standby.query(no_worker) == [(0,)])
        insert(made, range(5))
        captured(made, tmp_path)
        confirmed = log.Log(tmp_path).confirm_lsn
        fail_over(pair)
        assert confirmed_by_server(made) < confirmed
        insert(made, range(5, 10))
        assert captured(made, tmp_path) == list(range(10))

    @pytest.mark.thorough
    def test_two_promotions_later(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        insert(made, range(3))
        captured(made, tmp_path)
        pair.stop_primary("fast")
        pair.promote()
        pair.make_standby()
        pair.wait_for_slot(made.slot, lambda: captured(made, tmp_path))
        fail_over(pair)
        insert(made, range(3, 6))
        assert captured(made, tmp_path) == keys(made) == list(range(6))
        assert list(log.Log(tmp_path).source.ancestors) == [1, 2]


class TestWaiting:
    def test_for_the_promotion(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        """The DSN names the standby alone: the slot is there, and cannot be used yet."""
        insert(made, range(3))
        captured(made, tmp_path)
        dsn = pair.standby.dsn_for(made.name)
        running = LogCapture(dsn, tmp_path, slot=made.slot, publication="p")
        thread = threading.Thread(target=running.run, kwargs={"until_lsn": "now"}, daemon=True)
        thread.start()
        assert state_of(running, "waiting")
        assert "is synchronized from a primary, and the server is a standby" in (
            running.status.problem or ""
        )
        fail_over(pair)
        thread.join(40)
        assert not thread.is_alive()
        assert running.status.state == "stopped"
        assert log.Log(tmp_path).source.timeline == 2

    def test_for_a_primary_that_is_stopped_without_its_standby(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        """The walsender waits for the standby, and ends with an error of its own."""
        running = capture_into(made, tmp_path)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        assert state_of(running, "streaming")
        pair.standby.stop("fast")
        insert(made, range(3))
        pair.restart_primary("fast")
        pair.standby.start()
        assert wait_until(lambda: running.status.messages >= 9, 60)
        assert running.status.errors["55000"] == 1  # object_not_in_prerequisite_state
        running.stop()
        thread.join(10)
        assert captured(made, tmp_path) == keys(made) == list(range(3))

    @pytest.mark.thorough
    def test_for_a_slot_that_the_standby_does_not_have_yet(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        captured(made, tmp_path)
        pair.standby.query("ALTER SYSTEM SET sync_replication_slots = off")
        with database_of(pair) as other:
            other.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
            create_slot(other, failover=False)
            captured(other, tmp_path / "other")
            pair.wait_for_standby()
            dsn = pair.standby.dsn_for(other.name)
            running = LogCapture(
                dsn, tmp_path / "other", slot=other.slot, publication="p", max_retries=0
            )
            with pytest.raises(CaptureError, match="does not exist, and the server is a") as raised:
                running.run()
            assert raised.value.is_transient

    @pytest.mark.thorough
    def test_hosts_that_are_all_standbys(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        captured(made, tmp_path)
        pair.stop_primary("fast")
        with pytest.raises(CaptureError, match="could not connect") as raised:
            capture_into(made, tmp_path, max_retries=0).run()
        assert raised.value.is_transient
        pair.promote()
        stop_waiting(pair.primary)
        assert captured(made, tmp_path) == []


class TestRefused:
    def test_captured_beyond_the_branch(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        """The server does not wait for the standby, which lacks the last transactions."""
        insert(made, range(3))
        captured(made, tmp_path)
        stop_waiting(pair.primary)
        pair.standby.stop("fast")
        insert(made, range(3, 6))
        assert captured(made, tmp_path) == list(range(6))
        pair.stop_primary("immediate")
        pair.standby.start()
        pair.promote()
        stop_waiting(pair.primary)
        assert keys(made) == [0, 1, 2]
        # The server's WAL is beyond the log's end again: only its history shows the difference.
        while flush_lsn(made) <= log.Log(tmp_path).confirm_lsn:
            made.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 10000))")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        words = r"timeline 1 up to (\S+), and timeline 2 of the server branched off at (\S+): what"
        with pytest.raises(LogError, match=words) as raised:
            captured(made, tmp_path)
        assert not raised.value.is_transient
        assert "synchronized_standby_slots" in (raised.value.hint or "")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    @pytest.mark.thorough
    def test_beyond_the_branch_while_it_runs(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        stop_waiting(pair.primary)
        errors: list[BaseException] = []
        running = capture_into(made, tmp_path)

        def run() -> None:
            try:
                running.run()
            except LogError as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert state_of(running, "streaming")
        pair.standby.stop("fast")
        insert(made, range(3))
        assert wait_until(lambda: running.status.messages >= 9)
        assert wait_until(lambda: log.Log(tmp_path).delivered_lsn > 0)
        pair.stop_primary("immediate")
        pair.standby.start()
        pair.promote()
        thread.join(40)
        assert not thread.is_alive()
        assert "branched off at" in str(errors[0])
        assert log.verify(tmp_path).is_sound

    @pytest.mark.thorough
    def test_a_slot_without_failover(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        made.execute(f"SELECT pg_drop_replication_slot('{made.slot}')")
        create_slot(made, failover=False)
        captured(made, tmp_path)
        pair.wait_for_standby()
        # The standby has the copy of the dropped slot until its next look.
        query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{made.slot}'"
        assert wait_until(lambda: not pair.standby.query(query), 60)
        fail_over(pair)
        with pytest.raises(CaptureError, match="no longer exists") as raised:
            captured(made, tmp_path)
        assert "a standby was promoted" in (raised.value.hint or "")
        assert log.Log(tmp_path).source.timeline == 1

    @pytest.mark.thorough
    def test_the_former_primary(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        """It runs again, beside its successor, whose timeline the log has."""
        former = pair.primary
        insert(made, range(3))
        captured(made, tmp_path)
        fail_over(pair)
        insert(made, range(3, 6))
        captured(made, tmp_path)
        former.start()
        running = LogCapture(former.dsn_for(made.name), tmp_path, slot=made.slot, publication="p")
        with pytest.raises(
            LogError, match="timeline 2, and timeline 1 of the server does not descend from it"
        ):
            running.run()
