"""First runs of ``pgwire-codec capture``, and the exit status of each way to fail."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import CaptureError, LogError
from pgwire_codec.protocol.lsn import parse_lsn
from tests.support import commands
from tests.support.build import wire
from tests.support.commands import SHELL
from tests.support.log_captures import applied, capture_into, decoded, slots
from tests.support.logs import append
from tests.support.servers import Database
from tests.support.slot_captures import confirmed_by_server, opened, read, wait_until

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-c", "from pgwire_codec.cli import main; main()")


def run(made: Database, folder: object, *arguments: str, dsn: str | None = None) -> Ended:
    """``pgwire-codec capture`` up to now."""
    return ended(*_capture(made, folder, *arguments, dsn=dsn))


def _capture(made: Database, folder: object, *arguments: str, dsn: str | None = None) -> list[str]:
    options = {
        "--dsn": dsn or made.dsn,
        "--slot": made.slot,
        "--publication": "p",
        "--log": str(folder),
        "--until-lsn": "now",
    }
    return ["capture", *(word for option in options.items() for word in option), *arguments]


class Ended:
    """A command that has ended."""

    def __init__(self, status: int, output: str, error: str) -> None:
        self.status = status
        self.error = error
        self.lines: list[dict[str, Any]] = [json.loads(each) for each in output.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    @property
    def joined(self) -> str:
        """The error with its hint, which is printed below it, on one line: as its str() is."""
        return self.error.replace("\nhint: ", " — hint: ", 1)


def ended(*arguments: str) -> Ended:
    """Run a command in this process, as another one takes a second to start."""
    done = commands.run(*arguments)
    return Ended(done.exit_code, done.stdout, done.stderr)


def ended_process(*arguments: str, before: str = "") -> Ended:
    """Run a command as a process of its own, if need be after a command of a shell."""
    command = [*COMMAND, *arguments]
    if before:
        command = [*SHELL, f"{before} && exec {shlex.join(command)}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return Ended(done.returncode, done.stdout, done.stderr)


class TestSnapshot:
    """``--snapshot`` for a log that has begun without one."""

    @pytest.fixture
    def begun(self, table: Database, tmp_path: Path) -> Database:
        """A log that is captured from the slot, and holds nothing."""
        table.execute("INSERT INTO t VALUES (1, 'before')")
        table.query(f"SELECT pg_drop_replication_slot('{table.slot}')")
        assert run(table, tmp_path / "log", "--create-slot").status == 0
        assert log.Log(tmp_path / "log").confirm_lsn > 0
        return table

    def test_of_a_log_that_holds_nothing(self, begun: Database, tmp_path: Path) -> None:
        folder = tmp_path / "log"
        for rows in (1, 0):
            done = run(begun, folder, "--snapshot")
            assert (done.status, done.last["snapshot_rows"]) == (0, rows)
        assert slots(begun) == [begun.slot]
        assert confirmed_by_server(begun) == log.Log(folder).confirm_lsn
        begun.execute("INSERT INTO t VALUES (2, 'after')")
        assert run(begun, folder).status == 0
        assert sorted(applied(folder, "public.t", "k").rows) == [(1,), (2,)]

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_of_a_log_that_holds_changes(self, begun: Database, tmp_path: Path) -> None:
        folder = tmp_path / "log"
        begun.execute("INSERT INTO t VALUES (2, 'after')")
        assert run(begun, folder).status == 0
        slot = begun.query("SELECT restart_lsn FROM pg_replication_slots")
        done = run(begun, folder, "--snapshot")
        assert done.status == 4
        assert f"the log {folder} began without a snapshot and contains changes" in done.error
        assert "capture into a new log with a new slot" in done.error
        assert begun.query("SELECT restart_lsn FROM pg_replication_slots") == slot
        assert [row["k"] for row in decoded(folder, "public.t")] == [2]

    def test_a_slot_that_somebody_else_read(self, begun: Database, tmp_path: Path) -> None:
        begun.execute("INSERT INTO t VALUES (2, 'after')")
        with opened(begun) as other:
            read(other)
            other.confirm(position := other.confirmable_lsn)
            assert wait_until(lambda: confirmed_by_server(begun) == position)
        done = run(begun, tmp_path / "log", "--snapshot")
        assert done.status == 4
        assert "already exists" in done.error
        assert confirmed_by_server(begun) == position

    @pytest.mark.since(17, "failover slots")
    def test_a_failover_slot(self, begun: Database, tmp_path: Path) -> None:
        begun.query(f"SELECT pg_drop_replication_slot('{begun.slot}')")
        begun.query(
            f"SELECT pg_create_logical_replication_slot('{begun.slot}', 'pgoutput',"
            " failover => true)"
        )
        assert run(begun, tmp_path / "other").status == 0
        done = run(begun, tmp_path / "other", "--snapshot")
        assert (done.status, slots(begun)) == (4, [begun.slot])
        assert "already exists" in done.error

    def test_broken_off(
        self, begun: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The position of the slot that is gone does not come back."""
        capture = capture_into(begun, tmp_path / "log", snapshot=True)
        copied = capture._copied

        def stop(*arguments: Any) -> None:
            capture.stop()
            copied(*arguments)

        monkeypatch.setattr(capture, "_copied", stop)
        assert capture.run().state == "stopped"
        assert log.Log(tmp_path / "log").confirm_lsn == 0
        with pytest.raises(CaptureError, match="interrupted snapshot"):
            capture_into(begun, tmp_path / "log", create_slot=True).run(until_lsn=0)
        capture_into(begun, tmp_path / "log", snapshot=True).run(until_lsn=0)
        assert sorted(applied(tmp_path / "log", "public.t", "k").rows) == [(1,)]

    def test_a_log_without_its_beginning(self, begun: Database, tmp_path: Path) -> None:
        """Nobody can say how a pruned log began."""
        folder = tmp_path / "log"
        for key in range(2, 4):
            begun.execute(f"INSERT INTO t VALUES ({key}, 'after')")
            assert run(begun, folder).status == 0
        reader = log.Log(folder)
        assert log.prune(folder, reader.segment(0).delivered_lsn)
        assert run(begun, folder, "--snapshot").status == 0


class TestClaim:
    def test_a_run_that_found_nothing_claims_nothing(self, table: Database, tmp_path: Path) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        assert run(table, tmp_path, "--slot", "typo").status == 4
        done = run(table, tmp_path)
        assert (done.status, done.error) == (0, "")
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]
        assert log.statistics(tmp_path).source.slot == table.slot

    def test_a_confirmed_position_claims_it(self, table: Database, tmp_path: Path) -> None:
        assert run(table, tmp_path).status == 0
        other = table.create_slot("_2")
        with pytest.raises(LogError, match=f"not of '{other}'"):
            capture_into(table, tmp_path, slot=other).run(until_lsn=0)


class TestNote:
    def test_a_slot_that_was_read(self, table: Database, tmp_path: Path) -> None:
        table.execute("INSERT INTO t VALUES (1, 'before')")
        with opened(table) as other:
            read(other)
            other.confirm(other.confirmable_lsn)
        [note] = run(table, tmp_path).last["notes"]
        assert note.startswith("the log begins at ")
        assert "rows that were committed before are not in it" in note
        assert run(table, tmp_path).last["notes"] == []

    @pytest.mark.parametrize("option", ["--create-slot", "--snapshot"])
    def test_a_slot_of_its_own(self, pg: Database, tmp_path: Path, option: str) -> None:
        pg.execute("CREATE TABLE t (k int)", "CREATE PUBLICATION p FOR TABLE t")
        assert run(pg, tmp_path, option).last["notes"] == []

    @pytest.mark.parametrize("option", ["--create-slot", "--snapshot"])
    @pytest.mark.parametrize("is_prepared", [False, True])
    def test_what_a_new_slot_waits_for(
        self, pg: Database, tmp_path: Path, option: str, is_prepared: bool
    ) -> None:
        """The remedy that the note has, a statement, ends the wait."""
        pg.execute("CREATE TABLE t (k int)", "CREATE PUBLICATION p FOR TABLE t")
        with pg.connect() as writing:
            cursor = writing.cursor()
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO t VALUES (1)")
            if is_prepared:
                cursor.execute("PREPARE TRANSACTION 'it''s'")
            command = [*COMMAND, *_capture(pg, tmp_path, option)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as capture:
                assert capture.stdout is not None
                notes = (json.loads(line)["notes"] for line in capture.stdout)
                note = next(" ".join(each) for each in notes if each)
                of = (
                    "prepared transaction 'it''s' of"
                    if is_prepared
                    else (f"transaction of process {writing.info.backend_pid} in")
                )
                start = (
                    f'the creation of the slot waits for the end of the {of} database "{pg.name}"'
                )
                assert note.startswith(start)
                remedy = r"or (ROLLBACK .*;)$" if is_prepared else r": (SELECT .*;)$"
                [statement] = re.findall(remedy, note)
                pg.execute(statement)
                after = list(itertools.dropwhile(bool, notes))  # it may have been read before
                assert after
                assert not any(after)
                assert capture.wait(60) == 0

    def test_on_a_terminal(self, table: Database, tmp_path: Path) -> None:
        from tests.support.terminal import shown

        output, status = shown(*_capture(table, tmp_path), columns=200)
        assert status == 0
        assert "note" in output
        assert "the log begins at" in output


class TestExitStatus:
    """0 done, 2 usage, 3 another attempt can help, 4 the cause has to be fixed first."""

    def test_the_server_is_away(self, table: Database, tmp_path: Path) -> None:
        done = run(table, tmp_path, "--max-retries", "1", dsn="host=/nowhere/at/all")
        assert done.status == 3
        assert done.error.startswith("Error: could not connect")

    def test_the_slot_is_in_use(self, table: Database, tmp_path: Path) -> None:
        with opened(table):
            done = run(table, tmp_path, "--max-retries", "0")
        assert done.status == 3
        assert "is in use" in done.error

    def test_what_needs_somebody(self, table: Database, tmp_path: Path) -> None:
        role = table.create_role("NOREPLICATION")
        for arguments, dsn in (
            (("--slot", "nowhere"), table.dsn),
            (("--publication", "nowhere"), table.dsn),
            ((), table.server.dsn_for("nowhere")),
            ((), table.server.dsn_for(table.name, role)),
            ((), "nonsense"),
        ):
            done = run(table, tmp_path, *arguments, dsn=dsn)
            assert done.status == 4, (arguments, dsn, done.error)
            assert done.joined.count("\n") == 1

    def test_a_slot_that_was_dropped(self, table: Database, tmp_path: Path) -> None:
        assert run(table, tmp_path).status == 0
        table.query(f"SELECT pg_drop_replication_slot('{table.slot}')")
        done = run(table, tmp_path)
        assert done.status == 4
        assert "no longer exists" in done.error


class TestExitStatusOfALog:
    """The same for failures of the log or of the options, whatever the server's major."""

    def test_the_log_is_being_written(self, table: Database, tmp_path: Path) -> None:
        assert run(table, tmp_path).status == 0
        with log.LogWriter(tmp_path, log.statistics(tmp_path).source):
            done = ended_process(*_capture(table, tmp_path))
        assert done.status == 3
        assert f"is being written by another process (pid {os.getpid()})" in done.error

    def test_usage(self, table: Database, tmp_path: Path) -> None:
        assert ended("capture", "--slot", "s").status == 2
        tables = ("--create-publication", "t", "--publication", "q")
        done = run(table, tmp_path, *tables)
        assert (done.status, done.joined.count("\n")) == (2, 1)

    def test_a_full_disk(self, table: Database, tmp_path: Path) -> None:
        folder = tmp_path / "disk"
        folder.mkdir()
        mount = f"mount -t tmpfs -o size=512k tmpfs {folder}"
        if subprocess.run([*SHELL, mount], capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
        before = confirmed_by_server(table)
        table.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 5000) g")
        options = ("--compression", "none", "--min-free", "0")
        done = ended_process(*_capture(table, folder / "log"), *options, before=mount)
        assert done.status == 3, done.error
        assert f"cannot write {folder}" in done.error
        assert "No space left on device — hint: Free some space" in done.joined
        assert done.joined.count("\n") == 1
        assert done.last["problem"] in done.joined
        assert confirmed_by_server(table) == before
        assert run(table, tmp_path / "log").status == 0
        assert len(list(decoded(tmp_path / "log", "public.t"))) == 5000

    def test_a_disk_that_is_nearly_full(self, table: Database, tmp_path: Path) -> None:
        """The capture waits, says why, and goes on when there is room."""
        folder = tmp_path / "disk"
        folder.mkdir()
        mount = f"mount -t tmpfs -o size=40m tmpfs {folder}"
        if subprocess.run([*SHELL, mount], capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
        table.execute("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 5000) g")
        go = tmp_path / "go"
        fill = f"head -c 30m /dev/zero > {folder}/other"
        later = f"{{ (until [ -e {go} ]; do sleep 0.1; done; rm {folder}/other) & }}"
        options = ("--min-free", "20MB", "--report-seconds", "0.2")
        command = shlex.join([*COMMAND, *_capture(table, folder / "log", *options)])
        script = f"{mount} && {fill} && {later} && exec {command}"
        with subprocess.Popen([*SHELL, script], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(json.loads(line))
                if lines[-1]["state"] == "waiting":
                    go.touch()
        assert process.returncode == 0
        waited = [each for each in lines if each["state"] == "waiting"]
        assert re.fullmatch(
            rf"the disk of {folder}/log is nearly full: \d+\.\d MB are free of the 20\.0 MB that "
            r"are to stay free \(--min-free\)",
            waited[0]["problem"],
        )
        assert {each["messages"] for each in waited} == {0}
        assert (lines[-1]["state"], lines[-1]["problem"]) == ("stopped", None)
        assert lines[-1]["messages"] == 5003
        assert confirmed_by_server(table) == parse_lsn(lines[-1]["confirmed_lsn"])

    def test_a_log_that_cannot_be_made(self, table: Database, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"")
        for folder in (file, file / "log", tmp_path / ("x" * 300), "/proc/log", "nothing://log"):
            done = run(table, folder)
            assert done.status == 4
            assert done.joined.count("\n") == 1
            assert " — hint: " in done.joined

    def test_an_object_store_that_is_away(self, table: Database) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        uri = f"s3://key:secret@bucket/log?scheme=http&endpoint_override=127.0.0.1:{port}"
        with ThreadPoolExecutor() as pool:  # each waits for the store's retries
            both = (_capture(table, uri), ["log", "info", uri])
            results = list(pool.map(lambda command: ended_process(*command), both))
        for done in results:
            assert done.status == 3
            assert "NETWORK_CONNECTION" in done.error
            assert "secret" not in done.error
            assert done.joined.count("\n") == 1


def test_a_log_that_may_not_be_read(tmp_path: Path) -> None:
    for folder in (tmp_path / ("x" * 300), tmp_path / "loop"):
        if folder.name == "loop":
            folder.symlink_to(folder)
        for command in (["log", "info"], ["log", "verify"]):
            done = ended(*command, str(folder))
            assert done.status == 4
            assert done.error.startswith(f"Error: cannot read {folder}")
            assert done.joined.count("\n") == 1


class TestOptionNames:
    """Errors name the options of the command line, not those of Python."""

    def test_a_slot_that_is_missing(self, table: Database, tmp_path: Path) -> None:
        done = run(table, tmp_path, "--slot", "typo")
        assert "Pass --create-slot, or run SELECT" in done.error
        assert "create_slot" not in done.error
        assert "Pass --create-slot, or run SELECT" in done.last["problem"]

    def test_a_publication_that_is_missing(self, table: Database, tmp_path: Path) -> None:
        done = run(table, tmp_path, "--publication", "nowhere")
        assert "create_publication" not in done.error

    @pytest.mark.since(14, "messages")
    def test_an_empty_publication(self, table: Database, tmp_path: Path) -> None:
        table.execute("ALTER PUBLICATION p DROP TABLE t")
        done = run(table, tmp_path)
        assert "Pass --messages to capture logical messages alone." in done.error

    def test_a_snapshot_that_was_broken_off(self, table: Database, tmp_path: Path) -> None:
        capture = capture_into(table, tmp_path)
        source = capture._persist(capture._identify)
        assert source is not None
        with log.LogWriter(tmp_path, source) as writer:
            writer.new_session(snapshot=True)
            append(writer, wire([pgc.Begin(5, 0, 0)]))
        assert "Start the snapshot again with --snapshot, or" in run(table, tmp_path).error


class TestRights:
    """The error of a role that may not read every row names the rights to grant."""

    @pytest.fixture
    def role(self, pg: Database) -> str:
        role = pg.create_role("REPLICATION")
        pg.execute(
            "CREATE SCHEMA s",
            "CREATE TABLE t (k int)",
            'CREATE TABLE "U" (k int)',
            "CREATE TABLE s.t (k int)",
            "CREATE TABLE rows (k int)",
            "ALTER TABLE rows ENABLE ROW LEVEL SECURITY",
            f"GRANT SELECT ON t, rows TO {role}",
            "INSERT INTO t VALUES (1)",
            "CREATE PUBLICATION p FOR ALL TABLES",
        )
        return role

    def test_of_tables(self, pg: Database, role: str, tmp_path: Path) -> None:
        dsn = pg.server.dsn_for(pg.name, role)
        done = run(pg, tmp_path, "--snapshot", dsn=dsn)
        assert done.status == 4
        tables = 'public."U", public.rows (row-level security), s.t'
        assert f"role {role} may not read all rows of {tables}" in done.error
        assert slots(pg) == []
        advice = done.error.strip().partition("superuser: ")[2]
        pg.execute(advice)
        assert run(pg, tmp_path, "--snapshot", dsn=dsn).status == 0
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]
