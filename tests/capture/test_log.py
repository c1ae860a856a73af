"""Captures into a log: confirmation, refusals, and interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from pgwire_codec import log
from pgwire_codec.capture import LogCapture, SegmentOptions, Status
from pgwire_codec.demo import shop, workload
from pgwire_codec.errors import CaptureError, LogError, OptionError
from pgwire_codec.protocol.lsn import parse_lsn
from tests.support.commands import run
from tests.support.log_captures import (
    applied,
    capture_into,
    decoded,
    flush_lsn,
    messages,
    running,
    slots,
)
from tests.support.servers import QUICK_AND_STEADY, Database, TemporaryServer, database
from tests.support.slot_captures import (
    blockers,
    confirmed_by_server,
    opened,
    read,
    tags,
    wait_until,
)

pytestmark = pytest.mark.slow


COMMAND = "from pgwire_codec.cli import main; main()"


def active_pid(made: Database) -> int | None:
    """Process of the server that uses the slot."""
    [(pid,)] = made.query(
        f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{made.slot}'"
    )
    return None if pid is None else int(pid)


def walsender(made: Database) -> int:
    pid = active_pid(made)
    assert pid is not None
    return pid


class TestConfirm:
    def test_what_is_in_the_log(self, table: Database, tmp_path: Path) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
        status = capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        assert tags(messages(tmp_path)) == b"BRICBIC"
        assert status.messages == 7
        assert confirmed_by_server(table) == log.Log(tmp_path).confirm_lsn == status.confirmed_lsn
        assert [s.sealed for s in log.Log(tmp_path).segments] == [True]
        table.execute("INSERT INTO t VALUES (3, 'c')")
        capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        assert tags(messages(tmp_path)) == b"BRICBICBRIC"
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1, 2, 3]
        assert [s.header.session for s in log.Log(tmp_path).segments] == [1, 2]

    def test_never_before_it_is_flushed(
        self, table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        positions: list[tuple[int, int]] = []
        flush = log.LogWriter.flush

        def checked(writer: log.LogWriter, *arguments: int, **named: int) -> None:
            positions.append((confirmed_by_server(table), writer.confirm_lsn))
            flush(writer, *arguments, **named)

        monkeypatch.setattr(log.LogWriter, "flush", checked)
        capture = capture_into(table, tmp_path, flush_seconds=0.01)
        with running(capture):
            for key in range(30):
                table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
                time.sleep(0.02)
            end = flush_lsn(table)
            assert wait_until(lambda: confirmed_by_server(table) >= end)
        assert len(positions) > 5
        assert all(server <= ours for server, ours in positions[1:])

    def test_in_time(self, table: Database, tmp_path: Path) -> None:
        capture = capture_into(table, tmp_path, flush_seconds=0.2)
        with running(capture):
            assert wait_until(lambda: capture.status.state == "streaming")
            for key in range(3):
                started = time.monotonic()
                table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
                end = flush_lsn(table)
                assert wait_until(lambda end=end: log.Log(tmp_path).confirm_lsn >= end, 3)
                assert time.monotonic() - started < 1.5

    def test_a_transaction_larger_than_a_flush(self, table: Database, tmp_path: Path) -> None:
        """It is on disk long before it ends, and confirmed only then."""
        table.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 40000) g")
        segments = SegmentOptions(compression=None, segment_bytes=1 << 20)
        capture = capture_into(table, tmp_path, flush_seconds=0.05, segments=segments)
        before = confirmed_by_server(table)
        with running(capture, until_lsn=flush_lsn(table)):
            assert wait_until(lambda: len(list(tmp_path.glob("*.json"))) > 3)
            assert wait_until(lambda: capture.status.state == "stopped")
        assert confirmed_by_server(table) > before
        assert len(applied(tmp_path, "public.t", "k").rows) == 40000

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_an_idle_slot_advances_after_the_log(
        self, table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pgwire_codec.capture.receive_loop._ADVANCE_SECONDS", 0.5)
        capture = capture_into(table, tmp_path)
        with running(capture):
            assert wait_until(lambda: capture.status.state == "streaming")
            table.execute("CREATE TABLE other AS SELECT g FROM generate_series(1, 1000) g")
            end = flush_lsn(table)
            assert wait_until(lambda: confirmed_by_server(table) >= end)
            assert log.Log(tmp_path).confirm_lsn >= confirmed_by_server(table)
        assert messages(tmp_path) == []

    @pytest.mark.since(14, "a transaction is sent while it runs")
    def test_not_while_a_transaction_is_half_received(
        self, table: Database, tmp_path: Path
    ) -> None:
        table.execute("INSERT INTO t VALUES (0, 'before')")
        with table.connect() as connection:
            cursor = connection.cursor()
            capture = capture_into(table, tmp_path, streaming="on", flush_seconds=0.1)
            with running(capture):
                cursor.execute("BEGIN")
                cursor.execute(
                    "INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 5000) g"
                )
                assert wait_until(lambda: capture.status.messages > 1000)
            # The half of it is in the log and its end is not: it comes again, and counts once.
            cursor.execute("COMMIT")
        capture_into(table, tmp_path, streaming="on").run(until_lsn=flush_lsn(table))
        assert tags(messages(tmp_path)).count(b"I") > 5001
        assert len(applied(tmp_path, "public.t", "k").rows) == 5001

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_a_message_by_itself_comes_once(self, table: Database, tmp_path: Path) -> None:
        for number in range(3):
            table.query(f"SELECT pg_logical_emit_message(false, 'n', '{number}')")
            table.execute(f"CREATE TABLE other_{number} ()")  # the WAL is flushed at a commit
            capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        assert tags(messages(tmp_path)) == b"MMM"


class TestNewLog:
    def test_begins_where_the_slot_is(self, table: Database, tmp_path: Path) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        with opened(table) as capture:
            read(capture)
            capture.confirm(capture.confirmable_lsn)
        table.execute("INSERT INTO t VALUES (2, 'b')")
        capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [2]

    def test_creates_what_is_missing(self, pg: Database, tmp_path: Path) -> None:
        pg.execute("CREATE TABLE t (k int)")
        capture = capture_into(
            pg, tmp_path, create_slot=True, create_publication="all tables", max_retries=0
        )
        with running(capture) as failed:
            assert wait_until(lambda: capture.status.state == "streaming")
            pg.execute("INSERT INTO t VALUES (1)")
            assert wait_until(lambda: capture.status.messages == 4)
        assert not failed
        assert slots(pg) == [pg.slot]

    def test_an_empty_log_remembers_where_it_begins(self, table: Database, tmp_path: Path) -> None:
        capture_into(table, tmp_path).run(until_lsn=0)
        table.execute("INSERT INTO t VALUES (1, 'a')")
        with opened(table) as other:
            read(other)
            other.confirm(other.confirmable_lsn)
        with pytest.raises(CaptureError, match="those committed between are lost"):
            capture_into(table, tmp_path).run(until_lsn=0)

    def test_a_slot_that_is_behind_its_log(self, table: Database, tmp_path: Path) -> None:
        """As after an end between the flush and its confirmation, with nothing new to come."""
        table.execute(f"SELECT pg_copy_logical_replication_slot('{table.slot}', 'behind')")
        table.execute("INSERT INTO t VALUES (1, 'a')")
        # After the transaction, at a position that only a keepalive reports.
        capture_into(table, tmp_path).run(until_lsn=flush_lsn(table) + 1, idle_seconds=0.5)
        confirmed = log.Log(tmp_path).confirm_lsn
        assert wait_until(lambda: active_pid(table) is None)
        table.execute(
            f"SELECT pg_drop_replication_slot('{table.slot}')",
            f"SELECT pg_copy_logical_replication_slot('behind', '{table.slot}')",
            "SELECT pg_drop_replication_slot('behind')",
        )
        assert confirmed_by_server(table) < confirmed
        # It is flushed before its end, when nothing new can be confirmed.
        table.execute("INSERT INTO t SELECT g, 'b' FROM generate_series(2, 60000) g")
        capture_into(table, tmp_path, flush_seconds=0.001).run(until_lsn=flush_lsn(table))
        assert confirmed_by_server(table) > confirmed
        [name, *_] = next(decoded(tmp_path, "public.t"))
        assert len(applied(tmp_path, "public.t", name).rows) == 60_000


class TestRefused:
    """A capture ends at once if it would mix two histories, or lose changes."""

    @pytest.fixture
    def begun(self, table: Database, tmp_path: Path) -> Database:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        return table

    def refusal(self, made: Database, folder: Path, **options: Any) -> str:
        with pytest.raises((CaptureError, LogError)) as caught:
            capture_into(made, folder, **options).run(until_lsn=0)
        return str(caught.value)

    def test_a_slot_that_is_ahead(self, begun: Database, tmp_path: Path) -> None:
        begun.execute("INSERT INTO t VALUES (2, 'lost')")
        with opened(begun) as other:
            read(other)
            other.confirm(other.confirmable_lsn)
        said = self.refusal(begun, tmp_path)
        assert f'slot "{begun.slot}" is already confirmed up to' in said
        assert "Begin a new log" in said

    def test_a_slot_that_was_dropped(self, begun: Database, tmp_path: Path) -> None:
        begun.query(f"SELECT pg_drop_replication_slot('{begun.slot}')")
        assert "no longer exists" in self.refusal(begun, tmp_path, create_slot=True)
        assert slots(begun) == []

    def test_another_slot(self, begun: Database, tmp_path: Path) -> None:
        other = begun.create_slot("_2")
        assert f"not of '{other}'" in self.refusal(begun, tmp_path, slot=other)

    def test_another_database(self, begun: Database, tmp_path: Path) -> None:
        with database(begun.server) as other:
            other.execute("CREATE PUBLICATION p FOR ALL TABLES")
            assert "holds messages of database" in self.refusal(other, tmp_path, slot=begun.slot)

    @pytest.fixture
    def other_system(self, begun: Database, request: pytest.FixtureRequest) -> TemporaryServer:
        """Another server than that of the log."""
        server: TemporaryServer = request.getfixturevalue("pg16" if begun.major == 18 else "pg18")
        return server

    def test_another_system(
        self, begun: Database, other_system: TemporaryServer, tmp_path: Path
    ) -> None:
        with database(other_system) as other:
            other.execute("CREATE PUBLICATION p FOR ALL TABLES")
            assert "holds messages of system identifier" in self.refusal(other, tmp_path)

    def test_another_system_at_a_reconnection(
        self,
        begun: Database,
        other_system: TemporaryServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with database(other_system) as other:
            other.execute("CREATE TABLE t (k int)", "CREATE PUBLICATION p FOR ALL TABLES")
            other.query(f"SELECT pg_create_logical_replication_slot('{begun.slot}', 'pgoutput')")
            capture = capture_into(begun, tmp_path)
            with running(capture) as failed:
                assert wait_until(lambda: capture.status.state == "streaming")
                monkeypatch.setattr(capture, "_dsn", other.dsn)
                begun.query(f"SELECT pg_terminate_backend({walsender(begun)})")
                assert wait_until(lambda: failed)
        assert "system identifier" in str(failed[0])
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]

    def test_a_server_that_was_set_back(
        self, begun: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            log.LogWriter, "confirm_lsn", property(lambda writer: flush_lsn(begun) + (1 << 30))
        )
        assert "the server was set back" in self.refusal(begun, tmp_path)

    def test_a_second_writer(self, begun: Database, tmp_path: Path) -> None:
        other = begun.create_slot("_2")
        capture = capture_into(begun, tmp_path)
        with running(capture):
            assert wait_until(lambda: capture.status.state == "streaming")
            assert "is being written by another writer of this process" in self.refusal(
                begun, tmp_path, slot=other
            )

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"dsn": "nowhere"}, "does not exist"),
            ({"slot": "nowhere"}, "does not exist"),
            ({"publication": "nowhere"}, "does not exist"),
            ({"role": "nobody_at_all"}, "nobody_at_all"),
        ],
    )
    def test_no_attempt_helps(
        self, table: Database, tmp_path: Path, change: dict[str, str], said: str
    ) -> None:
        arguments: dict[str, Any] = {"slot": table.slot, "publication": "p", **change}
        role = arguments.pop("role", "postgres")
        dsn = table.server.dsn_for(arguments.pop("dsn", table.name), role)
        started = time.monotonic()
        with pytest.raises(CaptureError, match=said):
            LogCapture(dsn, tmp_path, **arguments).run()
        assert time.monotonic() - started < 5

    def test_nonsense(self, tmp_path: Path) -> None:
        for options in ({"flush_seconds": 0}, {"snapshot_jobs": 0}, {"streaming": "maybe"}):
            with pytest.raises(OptionError):
                LogCapture("", tmp_path, slot="s", publication="p", **options)
        with pytest.raises(CaptureError, match="invalid DSN"):
            LogCapture("nonsense", tmp_path, slot="s", publication="p").run()


@pytest.fixture(scope="module")
def restarted() -> Iterator[TemporaryServer]:
    """A server that tests may restart."""
    with TemporaryServer(18, QUICK_AND_STEADY) as server:
        yield server


class TestInterrupted:
    def test_the_server_drops_the_connection(self, table: Database, tmp_path: Path) -> None:
        capture = capture_into(table, tmp_path)
        with running(capture):
            for key in range(5):
                table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
                assert wait_until(lambda key=key: capture.status.connections == key + 1)
                table.query(f"SELECT pg_terminate_backend({walsender(table)})")
            table.execute("INSERT INTO t VALUES (5, 'a')")
            end = flush_lsn(table)
            assert wait_until(lambda: log.Log(tmp_path).confirm_lsn >= end)
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == list(range(6))

    def test_a_connection_that_is_silent(self, table: Database, tmp_path: Path) -> None:
        """As after a cable was pulled: the connection is not closed."""
        capture = capture_into(table, tmp_path, receive_timeout=1.0, slot_timeout=0.1)
        with running(capture):
            assert wait_until(lambda: capture.status.state == "streaming")
            time.sleep(1.5)  # longer than the timeout, which keepalives reset
            assert capture.status.connections == 1
            stuck = walsender(table)
            os.kill(stuck, signal.SIGSTOP)
            try:
                assert wait_until(lambda: capture.status.state == "waiting", 20)
                assert "silent" in (capture.status.problem or "")
                assert wait_until(lambda: "in use" in (capture.status.problem or ""), 20)
            finally:
                os.kill(stuck, signal.SIGCONT)
            table.execute("INSERT INTO t VALUES (1, 'a')")
            assert wait_until(lambda: capture.status.messages == 4, 30)
            assert capture.status.problem is None

    @pytest.mark.parametrize("how", ["fast", "immediate"])
    def test_the_server_restarts(
        self, restarted: TemporaryServer, tmp_path: Path, how: Literal["fast", "immediate"]
    ) -> None:
        with database(restarted) as made:
            made.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
            made.create_slot()
            capture = capture_into(made, tmp_path)
            with running(capture):
                made.execute("INSERT INTO t VALUES (1)")
                assert wait_until(lambda: capture.status.messages == 4)
                started = time.monotonic()
                restarted.restart(how)
                # A server that shuts down waits until all is confirmed.
                assert time.monotonic() - started < 8
                made.execute("INSERT INTO t VALUES (2)")
                end = flush_lsn(made)
                assert wait_until(lambda: log.Log(tmp_path).confirm_lsn >= end)
            assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1, 2]

    def test_no_server(self, tmp_path: Path) -> None:
        capture = LogCapture(
            "host=/nowhere/at/all dbname=x", tmp_path, slot="s", publication="p", max_retries=2
        )
        started = time.monotonic()
        with pytest.raises(CaptureError, match="could not connect"):
            capture.run()
        assert 0.75 <= time.monotonic() - started < 6

    def test_stopped_while_it_waits_to_connect(self, tmp_path: Path) -> None:
        capture = LogCapture("host=/nowhere/at/all", tmp_path, slot="s", publication="p")
        with running(capture) as failed:
            assert wait_until(lambda: capture.status.state == "waiting")
        assert not failed
        assert capture.status.state == "stopped"

    def test_stopped_while_the_slot_waits_for_a_transaction(
        self, pg: Database, tmp_path: Path
    ) -> None:
        pg.execute("CREATE TABLE t (k int)", "CREATE PUBLICATION p FOR TABLE t")
        for options in ({"create_slot": True}, {"snapshot": True}):
            with pg.connect() as connection:
                connection.autocommit = False
                connection.cursor().execute("INSERT INTO t VALUES (1)")
                capture = capture_into(pg, tmp_path / next(iter(options)), **options)
                with running(capture) as failed:
                    pid = connection.info.backend_pid
                    assert wait_until(lambda pid=pid: blockers(pg) == [pid])
                assert not failed
            assert wait_until(lambda: slots(pg) == [])

    def test_a_prepared_transaction_across_connections(self, pg: Database, tmp_path: Path) -> None:
        """Its Prepare was confirmed and does not come again: the log has what it did."""
        pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
        options = {"two_phase": True, "create_slot": True}
        capture_into(pg, tmp_path, **options).run(until_lsn=0)
        for gid in ("one", "two"):
            with pg.connect() as connection:
                cursor = connection.cursor()
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT INTO t VALUES ({len(gid) + (gid == 'one')})")
                cursor.execute(f"PREPARE TRANSACTION '{gid}'")
        capture_into(pg, tmp_path, **options).run(until_lsn=flush_lsn(pg))
        assert list(decoded(tmp_path, "public.t")) == []
        pg.execute("COMMIT PREPARED 'one'", "ROLLBACK PREPARED 'two'")
        capture_into(pg, tmp_path, **options).run(until_lsn=flush_lsn(pg))
        assert tags(messages(tmp_path)) == b"bRIPbIPKr"
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [4]

    def test_a_full_disk_confirms_nothing(
        self, table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        capture_into(table, tmp_path).run(until_lsn=0)
        before = confirmed_by_server(table)
        table.execute("INSERT INTO t VALUES (1, 'a')")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("pgwire_codec.log.local_store.os.fsync", full)
            with pytest.raises(LogError, match="No space left"):
                capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        assert confirmed_by_server(table) == before
        capture_into(table, tmp_path).run(until_lsn=flush_lsn(table))
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]


class TestCommand:
    """``pgwire-codec capture``, as a process of its own if it gets signals."""

    def arguments(self, made: Database, *arguments: str) -> list[str]:
        return [
            "capture", "--dsn", made.dsn, "--slot", made.slot, "--publication", "p", *arguments,
        ]  # fmt: skip

    @contextmanager
    def process(self, made: Database, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, "-c", COMMAND, *self.arguments(made, *arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as started:
            try:
                yield started
            finally:
                started.kill()

    def lines(self, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
        out, err = process.communicate(timeout=30)
        assert err == ""
        return [json.loads(line) for line in out.splitlines()]

    def lines_of(self, made: Database, *arguments: str) -> list[dict[str, Any]]:
        """Lines of a command that succeeds, and runs in this process."""
        done = run(*self.arguments(made, *arguments))
        assert (done.exit_code, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_until_now(self, table: Database, tmp_path: Path) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        with self.process(table, "--log", str(tmp_path / "log"), "--until-lsn", "now") as process:
            lines = self.lines(process)
        assert process.returncode == 0
        assert lines[-1]["state"] == "stopped"
        assert lines[-1]["messages"] == 4
        assert lines[-1]["segments"] == 1
        assert parse_lsn(lines[-1]["confirmed_lsn"]) == confirmed_by_server(table)
        assert [row["k"] for row in decoded(tmp_path / "log", "public.t")] == [1]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals_end_it_with_all_that_arrived(
        self, table: Database, tmp_path: Path, number: signal.Signals
    ) -> None:
        with self.process(
            table, "--log", str(tmp_path), "--flush-seconds", "60", "--report-seconds", "0.2"
        ) as process:
            assert process.stdout is not None
            table.execute("INSERT INTO t VALUES (1, 'a')")
            while json.loads(process.stdout.readline())["messages"] < 4:
                pass
            assert list(decoded(tmp_path, "public.t")) == []  # not flushed yet
            process.send_signal(number)
            lines = self.lines(process)
        assert process.returncode == 0
        assert lines[-1]["state"] == "stopped"
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]
        assert log.Log(tmp_path).segments[-1].sealed
        assert confirmed_by_server(table) == log.Log(tmp_path).confirm_lsn

    def test_an_error_is_told_and_is_the_exit_status(self, pg: Database, tmp_path: Path) -> None:
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        done = run(*self.arguments(pg, "--log", str(tmp_path / "log")))
        assert done.exit_code == 4
        assert f'Error: replication slot "{pg.slot}" does not exist' in done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["state"] == "failed"

    def test_lag(self, table: Database, tmp_path: Path) -> None:
        shop.create(table.dsn)
        table.execute("DROP PUBLICATION p", "CREATE PUBLICATION p FOR ALL TABLES")
        table.query(f"SELECT pg_drop_replication_slot('{table.slot}')")
        table.create_slot()
        begins = confirmed_by_server(table)
        workload.run(table.dsn)
        options = ("--idle-seconds", "2", "--report-seconds", "0.1")
        lines = self.lines_of(table, "--log", str(tmp_path), *options)
        known = [line for line in lines if line["lag_bytes"] is not None]
        # From the slot's position, not from the beginning of the server's WAL.
        assert parse_lsn(known[0]["confirmed_lsn"]) >= begins
        assert known[0]["lag_bytes"] <= flush_lsn(table) - begins
        assert lines[0]["confirmed_lsn"] is None
        assert known[0]["lag_bytes"] > known[-1]["lag_bytes"]
        assert known[-1]["lag_bytes"] < 1_000_000
        assert max(line["messages_per_second"] for line in lines) > 0
        assert {"connecting", "streaming", "stopped"} == {line["state"] for line in lines}

    @pytest.mark.since(14, "binary")
    def test_a_snapshot(self, table: Database, tmp_path: Path) -> None:
        table.query(f"SELECT pg_drop_replication_slot('{table.slot}')")
        table.execute("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g")
        options = ("--snapshot", "--until-lsn", "now", "--binary")
        for _ in range(2):
            lines = self.lines_of(table, "--log", str(tmp_path), *options)
        assert lines[-1]["snapshot_rows"] == 0
        assert len(applied(tmp_path, "public.t", "k").rows) == 1000


def test_status_is_plain_data() -> None:
    assert Status().state == "connecting"
