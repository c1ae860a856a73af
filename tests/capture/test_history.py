"""A server that was set back is noticed; one that only forgot what was confirmed is not refused."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from pgwire_codec import log
from pgwire_codec.capture import Capture, PluginOptions
from pgwire_codec.errors import CaptureError
from tests.support.log_captures import applied, capture_into, flush_lsn
from tests.support.servers import QUICK_AND_STEADY, Database, TemporaryServer, database
from tests.support.slot_captures import confirmed_by_server

pytestmark = pytest.mark.slow


@contextmanager
def made_on(server: TemporaryServer) -> Iterator[Database]:
    with database(server) as made:
        made.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
        made.execute("CREATE PUBLICATION p FOR TABLE t")
        made.create_slot()
        yield made


@pytest.fixture(params=[pytest.param(16, marks=pytest.mark.thorough), 18])
def server(request: pytest.FixtureRequest) -> Iterator[TemporaryServer]:
    """A server of the test's own, to be stopped and set back.

    A server that runs for longer logs a snapshot of its transactions every 15 seconds, and then
    saves the positions of slots.
    """
    with TemporaryServer(request.param, QUICK_AND_STEADY) as started:
        yield started


def insert(made: Database, keys: range, value: str) -> None:
    made.execute(*(f"INSERT INTO t VALUES ({key}, '{value}')" for key in keys))


def capture(made: Database, folder: Path, **options: Any) -> Any:
    return capture_into(made, folder, **options).run(until_lsn=flush_lsn(made))


def stop(server: TemporaryServer, mode: str = "fast") -> None:
    data = server._server.pgdata
    subprocess.run(
        [server.bin_path / "pg_ctl", "-w", "-D", data, "-m", mode, "stop"],
        user=server._server.system_user,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def start(server: TemporaryServer) -> None:
    server._server.ensure_postgres_running()


class TestRestored:
    @pytest.mark.parametrize("streaming", ["off", "on"])
    def test_a_copy_that_went_on_by_itself(
        self, server: TemporaryServer, tmp_path: Path, streaming: str
    ) -> None:
        """Same system identifier, timeline and slot, and its WAL is already beyond the log's."""
        with made_on(server) as made:
            insert(made, range(5), "before")
            capture(made, tmp_path / "log", streaming=streaming)
            data = server._server.pgdata
            stop(server)
            subprocess.run(["cp", "-a", data, tmp_path / "backup"], check=True)
            start(server)
            insert(made, range(5, 15), "lost")
            capture(made, tmp_path / "log", streaming=streaming)
            assert len(applied(tmp_path / "log", "public.t", "k").rows) == 15
            end = log.Log(tmp_path / "log").confirm_lsn
            stop(server)
            shutil.rmtree(data)
            subprocess.run(["cp", "-a", tmp_path / "backup", data], check=True)
            start(server)
            insert(made, range(20, 30), "other")
            while flush_lsn(made) <= end:
                made.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000))")
            assert confirmed_by_server(made) < end
            before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
            with pytest.raises(
                CaptureError, match=r"diverge at commit LSN \S+: the log has .*, the server"
            ) as raised:
                capture(made, tmp_path / "log", streaming=streaming)
            assert not raised.value.is_transient
            assert confirmed_by_server(made) < end
            after = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
            changed = {name for name in after if after[name] != before.get(name)}
            assert changed <= {"lock", "watermark.json"}  # which has the time of the last session

    def test_a_copy_that_has_done_nothing_since(
        self, server: TemporaryServer, tmp_path: Path
    ) -> None:
        with made_on(server) as made:
            insert(made, range(5), "before")
            capture(made, tmp_path / "log")
            data = server._server.pgdata
            stop(server)
            subprocess.run(["cp", "-a", data, tmp_path / "backup"], check=True)
            start(server)
            insert(made, range(5, 500), "lost" * 20)
            capture(made, tmp_path / "log")
            stop(server)
            shutil.rmtree(data)
            subprocess.run(["cp", "-a", tmp_path / "backup", data], check=True)
            start(server)
            with pytest.raises(CaptureError, match="server was set back"):
                capture_into(made, tmp_path / "log").run(idle_seconds=1)


class TestRepeated:
    @pytest.mark.parametrize(
        "options",
        [{}, {"streaming": "on"}, {"binary": True, "two_phase": True}],
        ids=["plain", "streaming", "two_phase"],
    )
    def test_a_crashed_server_whose_slot_went_back(
        self, server: TemporaryServer, tmp_path: Path, options: dict[str, Any]
    ) -> None:
        """The slot's position is on disk as of a checkpoint; what came after it is repeated."""
        with made_on(server) as made:
            folder = tmp_path / "log"
            capture(made, folder, **options)
            for number in range(3):
                # As long as it is open the slot is not written to disk.
                open_ = psycopg2.connect(made.dsn)
                open_.cursor().execute("INSERT INTO t VALUES (-1)")
                keys = range(100 * number, 100 * number + 20)
                insert(made, keys, "a")
                made.execute(
                    "BEGIN; SAVEPOINT s; INSERT INTO t VALUES (-2); ROLLBACK TO s;"
                    f" INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series("
                    f"{1000 * number + 1000}, {1000 * number + 1800}) g; COMMIT",
                    f"BEGIN; INSERT INTO t VALUES ({-10 - number}, 'p'); PREPARE TRANSACTION 'g'",
                    "COMMIT PREPARED 'g'",
                    "BEGIN; SELECT pg_current_xact_id(); COMMIT",
                )
                capture(made, folder, **options)
                confirmed = confirmed_by_server(made)
                server.restart("immediate")
                assert confirmed_by_server(made) < confirmed  # it went back
            insert(made, range(500, 505), "last")
            capture(made, folder, **options)
            rows = applied(folder, "public.t", "k").rows
            [(count,)] = made.query("SELECT count(*) FROM t")
            assert len(rows) == count
            assert log.verify(folder).is_sound
            # The repeated transactions were compared, and not written again.
            commits = sum(segment.commits for segment in log.Log(folder).segments)
            assert commits == len(set(_commit_lsns(folder)))

    def test_other_options_than_those_of_the_log(
        self, server: TemporaryServer, tmp_path: Path
    ) -> None:
        """The publication that the log was made with is gone, and another one publishes more."""
        with made_on(server) as made:
            made.execute("CREATE TABLE other (k int PRIMARY KEY)")
            open_ = psycopg2.connect(made.dsn)
            open_.cursor().execute("INSERT INTO t VALUES (-1)")
            made.execute("INSERT INTO other VALUES (1)")
            insert(made, range(5), "a")
            capture(made, tmp_path)
            made.execute("CREATE PUBLICATION q FOR ALL TABLES", "DROP PUBLICATION p")
            made.execute("INSERT INTO other VALUES (2)")
            confirmed = confirmed_by_server(made)
            server.restart("immediate")
            assert confirmed_by_server(made) < confirmed
            capture(made, tmp_path, publication="q")
            assert len(applied(tmp_path, "public.t", "k").rows) == 5
            assert list(applied(tmp_path, "public.other", "k").rows) == [(2,)]

    @pytest.mark.parametrize("before", [False, True])
    def test_another_form_than_that_of_the_log(
        self,
        server: TemporaryServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        before: bool,
    ) -> None:
        """No value is compared, and a value can exceed 1 GB as text: binary if either is."""
        asked: list[str | None] = []
        repeat = Capture.repeat

        def record(self: Capture, options: Any) -> Capture:
            asked.append(options.get("binary"))
            return repeat(self, options)

        monkeypatch.setattr(Capture, "repeat", record)
        with made_on(server) as made:
            insert(made, range(5), "a")
            capture(made, tmp_path, options=PluginOptions(made.publication, binary=before))
            confirmed = confirmed_by_server(made)
            server.restart("immediate")
            assert confirmed_by_server(made) < confirmed
            insert(made, range(5, 6), "b")
            now = PluginOptions(made.publication, binary=not before)
            capture(made, tmp_path, options=now)
            assert asked == ["true"]
            assert len(applied(tmp_path, "public.t", "k").rows) == 6

    def test_values_that_no_arrow_type_has(self, server: TemporaryServer, tmp_path: Path) -> None:
        """Their transactions are the server's all the same."""
        with made_on(server) as made:
            made.execute("CREATE TABLE times (k int PRIMARY KEY, at timestamptz)")
            made.execute("ALTER PUBLICATION p ADD TABLE times")
            capture(made, tmp_path)
            open_ = psycopg2.connect(made.dsn)
            open_.cursor().execute("INSERT INTO t VALUES (-1)")
            made.execute("INSERT INTO times VALUES (1, 'infinity')")
            made.execute("INSERT INTO times VALUES (2, '2026-01-01')")
            capture(made, tmp_path)
            confirmed = confirmed_by_server(made)
            server.restart("immediate")
            assert confirmed_by_server(made) < confirmed
            made.execute("INSERT INTO times VALUES (3, '-infinity')")
            capture(made, tmp_path)
            decoded = log.Log(tmp_path).changes(types="text")
            assert sum(len(batch) for changes in decoded for batch in changes) == 3

    def test_stopped_while_it_compares(
        self, server: TemporaryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from pgwire_codec.capture import checked_start

        with made_on(server) as made:
            capture(made, tmp_path)
            open_ = psycopg2.connect(made.dsn)
            open_.cursor().execute("INSERT INTO t VALUES (-1)")
            insert(made, range(50), "a")
            capture(made, tmp_path)
            server.restart("immediate")
            running = capture_into(made, tmp_path)
            monkeypatch.setattr(
                checked_start.RepeatedTransactions, "add", lambda self, batch: running.stop()
            )
            assert running.run().state == "stopped"
            monkeypatch.undo()
            capture(made, tmp_path)
            assert len(applied(tmp_path, "public.t", "k").rows) == 50


def _commit_lsns(folder: Path) -> Iterator[int]:
    for changes in log.Log(folder).changes():
        yield from changes.transactions.commit_lsn.tolist()


class TestMemory:
    """Memory runs out: nothing is lost, nothing doubled, and the first cause is named."""

    @pytest.mark.parametrize(
        "at",
        [1, 2, 9, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 21))],
    )
    def test_the_nth_append_fails(
        self, table: Database, tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from pgwire_codec.log.message_buffer import MessageBuffer

        add, calls = MessageBuffer.add, [0]

        def failing(pending: MessageBuffer, pieces: Any) -> Any:
            calls[0] += 1
            if calls[0] == at:
                raise MemoryError
            return add(pending, pieces)

        written = 0
        monkeypatch.setattr("pgwire_codec.capture.receive_loop._MAX_BATCH_BYTES", 500)
        for attempt in range(3):
            for _ in range(20):
                insert(table, range(written, written + 3), "a" * 300)
                written += 3
            monkeypatch.setattr(MessageBuffer, "add", failing if attempt == 0 else add)
            if attempt == 0:
                with pytest.raises(log.LogError, match=r"^out of memory while writing the log"):
                    capture(table, tmp_path, flush_seconds=0.01)
            else:
                capture(table, tmp_path, flush_seconds=0.01)
            assert log.Log(tmp_path).confirm_lsn >= confirmed_by_server(table)
        assert sorted(key for (key,) in applied(tmp_path, "public.t", "k").rows) == list(
            range(written)
        )
        assert log.verify(tmp_path).is_sound

    @pytest.mark.thorough
    @pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is not enforced elsewhere")
    def test_a_falling_limit(self, table: Database, tmp_path: Path) -> None:
        table.execute(
            "INSERT INTO t SELECT g, repeat(md5(g::text), 60) FROM generate_series(1, 6000) g"
        )
        ends = []
        folder = tmp_path / "log"
        for number, megabytes in enumerate(_MEGABYTES):
            table.execute(
                f"INSERT INTO t SELECT g, repeat(md5(g::text), 60)"
                f" FROM generate_series({number + 1} * 10000, {number + 1} * 10000 + 400) g"
            )
            done = subprocess.run(
                [sys.executable, "-c", _LIMITED, table.dsn, table.slot, folder, str(megabytes)],
                capture_output=True,
                text=True,
                timeout=600,  # of a busy machine; a capture that waits for ever does not end
            )
            killed = f"killed by {signal.Signals(-done.returncode)}" if done.returncode < 0 else ""
            ends.append(killed or done.stdout.strip() or done.stderr.strip())
            if (folder / "manifest.json").exists():
                assert log.verify(folder).is_sound
                assert log.Log(folder).confirm_lsn >= confirmed_by_server(table)
        assert any("out of memory" in each for each in ends), ends
        # Libraries that find no memory end the process, as SIGKILL would.
        words = ("done", "out of memory", "cannot allocate memory", "killed by")
        assert all(any(word in each for word in words) for each in ends), ends
        capture(table, folder)
        rows = applied(folder, "public.t", "k").rows
        assert {(key,) for (key,) in table.query("SELECT k FROM t")} == set(rows)


#: Between 9.5 and 7 MB the connection itself, or its compiled part, finds no memory.
_MEGABYTES = (40, 20, 16, 14, 12, 11, 10, 9.5, 9, 8.6, 8.4, 8.2, 8, 7.8, 7.6, 7.4, 7, 6, 5)

#: A capture with so many megabytes of address space more than it has when it is loaded.
_LIMITED = """
import resource, sys
import pyarrow.dataset, pyarrow.fs, psycopg2
from pgwire_codec import log
from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.connection.connect import current_lsn
from pgwire_codec.errors import PgwireError

dsn, slot, folder, megabytes = sys.argv[1:]
capture = LogCapture(dsn, folder, slot=slot, publication="p", flush_seconds=0.01)
until = current_lsn(dsn)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
limit = size + int(float(megabytes) * (1 << 20))
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    capture.run(until_lsn=until)
    print("done")
except PgwireError as error:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(str(error).replace("\\n", " "))
"""
