"""Snapshots that are continued after a kill, or taken again, with every row once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from pgwire_codec import log
from pgwire_codec.capture.snapshot import logged_rows, table_copies, table_ranges
from pgwire_codec.errors import CaptureError
from pgwire_codec.log.snapshot_record import PLAN, ROWS
from pgwire_codec.protocol.lsn import parse_lsn
from tests.support import commands
from tests.support.log_captures import applied, capture_into, decoded, flush_lsn, slots
from tests.support.servers import GIVEN, Database, TemporaryServer, database
from tests.support.slot_captures import wait_until

pytestmark = pytest.mark.slow

ROWS_OF_T = 20_000
CONTINUED = "an interrupted snapshot was continued after"
AGAIN = "an interrupted snapshot was taken again from its beginning"

#: The command, with little data in a round and in a range, and a pause after each piece.
SLOW = """
import time
from pgwire_codec.capture.log_capture import LogCapture
from pgwire_codec.capture.snapshot import kept_snapshot, logged_rows, table_copies, table_ranges
from pgwire_codec.cli import main
logged_rows._ROUND_BYTES = 100_000
table_copies._PIECE_BYTES = 20_000
table_ranges._RANGE_BYTES = 1 << 20
kept_snapshot.KEEP_SECONDS = {keep}
copied = LogCapture._copied
def slow(*arguments):
    time.sleep({pause})
    copied(*arguments)
LogCapture._copied = slow
main()
"""


@pytest.fixture
def filled(request: pytest.FixtureRequest) -> Iterator[Database]:
    with database(request.getfixturevalue("given" if GIVEN else "pg18")) as made:
        yield fill(made)


def fill(made: Database) -> Database:
    made.execute(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "CREATE TABLE u (k int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        f"INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS_OF_T}) g",
        "INSERT INTO u SELECT g, 'u' FROM generate_series(1, 100) g",
        "DELETE FROM t WHERE k % 7 = 0",
    )
    return made


def arguments(made: Database, folder: Path, *more: str) -> list[str]:
    return [
        "capture", "--dsn", made.dsn, "--slot", made.slot, "--publication", "p",
        "--log", str(folder), "--snapshot", "--jobs", "2", "--report-seconds", "0.1",
        "--segment-bytes", "300000", "--json", *more,
    ]  # fmt: skip


class Running:
    """``pgwire-codec capture --snapshot`` as a process."""

    def __init__(self, made: Database, folder: Path, *more: str, **settings: Any) -> None:
        code = SLOW.format(**{"pause": 0.02, "keep": 600, **settings})
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments(made, folder, *more)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reports: list[dict[str, Any]] = []

    def wait_for_rows(self, rows: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.append(json.loads(line))
            if self.reports[-1]["snapshot_rows"] >= rows:
                return
        raise AssertionError(self.process.communicate()[1])

    def end(self) -> dict[str, Any]:
        """Wait for the end, and return the last report."""
        output, error = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, error
        self.reports += map(json.loads, output.splitlines())
        return self.reports[-1]


@contextmanager
def running(made: Database, folder: Path, *more: str, **settings: Any) -> Iterator[Running]:
    """A capture that is killed at the end of the block."""
    started = Running(made, folder, *more, **settings)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def killed_after(made: Database, folder: Path, rows: int, **settings: Any) -> None:
    with running(made, folder, **settings) as capture:
        capture.wait_for_rows(rows)


def ended(made: Database, folder: Path) -> dict[str, Any]:
    """Return the last report of a capture up to now, in this process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logged_rows, "_ROUND_BYTES", 100_000)
        patched.setattr(table_copies, "_PIECE_BYTES", 20_000)
        patched.setattr(table_ranges, "_RANGE_BYTES", 1 << 20)
        done = commands.run(*arguments(made, folder, "--until-lsn", "now"))
    assert (done.exit_code, done.stderr) == (0, "")
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def rows_of(made: Database, table: str = "t") -> list[tuple[Any, ...]]:
    return made.query(f"SELECT k, v FROM {table} ORDER BY k")


def snapshot_of(folder: Path, table: str = "t") -> list[tuple[Any, ...]]:
    """Return the rows of the snapshot, in the order of their keys."""
    rows = [row for row in decoded(folder, f"public.{table}") if row["_xid"] == 0]
    return sorted((row["k"], row["v"]) for row in rows)


def sessions(made: Database) -> int:
    [(count,)] = made.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'pgwire_codec'"
    )
    return int(count)


def check(made: Database, folder: Path) -> None:
    """Check that the log has the server's rows, and that the server and the folder are clean."""
    for table in ("t", "u"):
        found = applied(folder, f"public.{table}", "k").rows.values()
        assert sorted((row["k"], row["v"]) for row in found) == rows_of(made, table)
    assert log.verify(folder).damage == ()
    assert slots(made) == [made.slot]
    assert not {PLAN, ROWS}.intersection(path.name for path in folder.iterdir())
    assert wait_until(lambda: sessions(made) == 0)


CHANGES = (
    "UPDATE t SET v = 'changed' WHERE k % 3 = 0",
    "DELETE FROM t WHERE k % 5 = 0",
    f"INSERT INTO t SELECT g, 'new' FROM generate_series({ROWS_OF_T + 1}, {ROWS_OF_T + 500}) g",
    "VACUUM t",
)


class TestKilled:
    def test_continued(self, filled: Database, tmp_path: Path) -> None:
        """The rows are those at the slot's LSN, though the table changes after each kill."""
        before = rows_of(filled), rows_of(filled, "u")
        killed_after(filled, tmp_path, 3_000)
        [(lsn,)] = filled.query("SELECT confirmed_flush_lsn FROM pg_replication_slots")
        filled.execute(*CHANGES)
        killed_after(filled, tmp_path, 9_000)
        filled.execute("UPDATE t SET v = 'again' WHERE k % 2 = 0")
        last = ended(filled, tmp_path)
        [note] = last["notes"]
        assert note.startswith(CONTINUED)
        assert int(note.split()[-2].replace(",", "")) > 8_000
        assert last["snapshot_rows"] == last["snapshot_rows_expected"] == sum(map(len, before))
        assert last["snapshot_tables"] == 2
        assert (snapshot_of(tmp_path), snapshot_of(tmp_path, "u")) == before
        [begin] = {row["_commit_lsn"] for row in decoded(tmp_path, "public.u") if not row["_xid"]}
        assert begin + 1 == parse_lsn(lsn)
        check(filled, tmp_path)

    def test_tables_stay_locked_meanwhile(self, filled: Database, tmp_path: Path) -> None:
        killed_after(filled, tmp_path, 3_000)
        assert wait_until(lambda: sessions(filled) == 1)
        with filled.connect() as connection:
            cursor = connection.cursor()
            cursor.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg2.errors.LockNotAvailable):
                cursor.execute("TRUNCATE t")
        ended(filled, tmp_path)
        check(filled, tmp_path)
        filled.execute("TRUNCATE t")

    def test_too_long_ago(self, filled: Database, tmp_path: Path) -> None:
        """The server ends the session that keeps the snapshot, and with it the locks."""
        killed_after(filled, tmp_path, 3_000, keep=1)
        assert wait_until(lambda: sessions(filled) == 0, 10)
        filled.execute("ALTER TABLE t ALTER k TYPE bigint", *CHANGES)
        last = ended(filled, tmp_path)
        reason = "the server does not have its snapshot any more"
        assert last["notes"] == [f"{AGAIN}: {reason}"]
        assert snapshot_of(tmp_path) == rows_of(filled)
        check(filled, tmp_path)

    def test_the_publication_has_changed(self, filled: Database, tmp_path: Path) -> None:
        killed_after(filled, tmp_path, 3_000)
        filled.execute("DROP PUBLICATION p", "CREATE PUBLICATION p FOR TABLE t")
        last = ended(filled, tmp_path)
        assert last["notes"] == [f"{AGAIN}: other tables, columns or rows are published now"]
        assert snapshot_of(tmp_path) == rows_of(filled)
        assert wait_until(lambda: sessions(filled) == 0)

    def test_the_slot_is_gone(self, filled: Database, tmp_path: Path) -> None:
        killed_after(filled, tmp_path, 3_000)
        assert wait_until(lambda: sessions(filled) == 1)
        filled.query(f"SELECT pg_drop_replication_slot('{filled.slot}')")
        filled.create_slot()
        filled.execute(*CHANGES)
        last = ended(filled, tmp_path)
        assert last["notes"] == [f'{AGAIN}: its replication slot "{filled.slot}" is gone']
        assert snapshot_of(tmp_path) == rows_of(filled)
        check(filled, tmp_path)

    def test_a_damaged_record(self, filled: Database, tmp_path: Path) -> None:
        killed_after(filled, tmp_path, 3_000)
        rows = tmp_path / ROWS
        rows.write_bytes(rows.read_bytes().replace(b'"rows":', b'"rowz":', 1))
        last = ended(filled, tmp_path)
        assert AGAIN in last["notes"][0]
        assert "is damaged" in last["notes"][0]
        check(filled, tmp_path)


@pytest.mark.parametrize("how", ["immediate", pytest.param("fast", marks=pytest.mark.thorough)])
def test_a_server_that_restarts(how: str, tmp_path: Path) -> None:
    """Its sessions are gone, and with them the snapshot: the capture takes it again."""
    with TemporaryServer(18) as server, database(server) as made:
        fill(made)
        with running(made, tmp_path, "--until-lsn", "now") as capture:
            capture.wait_for_rows(3_000)
            server.restart(how)
            made.execute(*CHANGES[:3])
            last = capture.end()
        assert last["notes"] == [f"{AGAIN}: the server does not have its snapshot any more"]
        capture_into(made, tmp_path).run(until_lsn=flush_lsn(made))
        check(made, tmp_path)


class TestInOneProcess:
    def test_every_connection_is_lost(
        self, filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The session that keeps the snapshot does not need the network."""
        monkeypatch.setattr(logged_rows, "_ROUND_BYTES", 100_000)
        monkeypatch.setattr(table_copies, "_PIECE_BYTES", 20_000)
        monkeypatch.setattr(table_ranges, "_RANGE_BYTES", 1 << 20)
        capture = capture_into(filled, tmp_path, snapshot=True, snapshot_jobs=2)
        original, calls = capture._copied, 0

        def lose(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls in (50, 90):
                raise CaptureError("the connection was lost", is_transient=True)
            original(*arguments)

        capture._copied = lose  # type: ignore[method-assign]
        before = rows_of(filled)
        status = capture.run(until_lsn=0)
        assert [CONTINUED in note for note in status.notes] == [True, True]
        assert snapshot_of(tmp_path) == before
        check(filled, tmp_path)

    def test_killed_before_it_was_confirmed(
        self, filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The snapshot is committed in the log, and must not be committed twice."""
        flush = log.LogWriter.flush

        def die(
            writer: log.LogWriter, confirm_lsn: int | None = None, *rest: Any, **more: Any
        ) -> None:
            flush(writer)
            if confirm_lsn:
                raise SystemExit("killed")

        monkeypatch.setattr(log.LogWriter, "flush", die)
        with pytest.raises(SystemExit):
            capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        monkeypatch.undo()
        assert log.Log(tmp_path).confirm_lsn == 0
        capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        assert snapshot_of(tmp_path) == rows_of(filled)
        check(filled, tmp_path)
