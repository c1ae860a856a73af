"""Captures that SIGTERM ends in time, whatever the server does, without a loss."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from pgwire_codec import log
from tests.support.log_captures import capture_into, decoded, slots
from tests.support.proxy import proxied
from tests.support.servers import Database
from tests.support.slot_captures import blockers, confirmed_by_server, wait_until

pytestmark = pytest.mark.slow

SECONDS = 20.0  # of a busy machine; a connection that is not interrupted waits for longer
WAIT = "100"  # seconds
COMMAND = "from pgwire_codec.cli import main; main()"


class Command:
    """``pgwire-codec capture`` as a process; its reports are read as they arrive."""

    def __init__(self, dsn: str, slot: str, folder: Path, *arguments: str) -> None:
        from psycopg2.extensions import make_dsn

        command = [
            sys.executable, "-c", COMMAND, "capture",
            "--dsn", make_dsn(dsn, connect_timeout=WAIT), "--slot", slot,
            "--publication", "p", "--log", str(folder), "--report-seconds", "0.1", *arguments,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.reports: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.append(json.loads(line))

    def reports_that(self, condition: Callable[[dict[str, Any]], Any]) -> bool:
        """Wait for a report."""
        return wait_until(lambda: bool(self.reports) and condition(self.reports[-1]), 30)

    def terminate(self) -> None:
        """Send SIGTERM, and check that the process ends in time and with success."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join()
        took = time.monotonic() - began
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        assert (status, said) == (0, "")
        assert self.reports[-1]["state"] == "stopped"
        assert took < SECONDS


@contextmanager
def started(dsn: str, slot: str, folder: Path, *arguments: str) -> Iterator[Command]:
    command = Command(dsn, slot, folder, *arguments)
    try:
        yield command
    finally:
        command.process.kill()
        command._reader.join()
        for file in (command.process.stdout, command.process.stderr):
            assert file is not None
            file.close()


@contextmanager
def writing(made: Database) -> Iterator[None]:
    """Hold a transaction open that has written, so that a new slot has to wait for it."""
    with made.connect() as connection:
        connection.autocommit = False
        connection.cursor().execute("INSERT INTO t VALUES (0, 'open')")
        yield
        connection.rollback()


def processes(made: Database) -> list[psutil.Process]:
    """The server's processes, the postmaster first."""
    [(folder,)] = made.query("SELECT current_setting('data_directory')")
    postmaster = psutil.Process(int((Path(folder) / "postmaster.pid").read_text().split()[0]))
    return [postmaster, *postmaster.children(recursive=True)]


def _resume(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # the server is strict with sessions that do not answer
        process.resume()


class Freezer:
    """Freezes a server, or the connections to it, until the end of the test.

    Attributes
    ----------
    dsn : str
        Of the server, or of the proxy that is frozen.
    how : {"network", "server", "sessions"}
        What is frozen; not sessions that begin later.
    """

    def __init__(self, made: Database, how: str) -> None:
        self._made = made
        self.how = how
        self._frozen = ExitStack()
        self._open = ExitStack()
        self.dsn = made.dsn
        if how == "network":
            self._proxy, self.dsn = self._open.enter_context(proxied(made))

    def freeze(self) -> None:
        if self.how == "network":
            self._proxy.frozen.set()
            self._frozen.callback(self._proxy.frozen.clear)
            return
        for process in processes(self._made)[self.how == "sessions" :]:
            with suppress(psutil.NoSuchProcess):  # the session that listed them
                process.suspend()
                self._frozen.callback(_resume, process)

    def thaw(self) -> None:
        self._frozen.close()

    def close(self) -> None:
        self.thaw()
        self._open.close()


@pytest.fixture(params=["network", "server", "sessions"])
def freezer(request: pytest.FixtureRequest, table: Database) -> Iterator[Freezer]:
    """Without the network, without the server, and with a postmaster but without its sessions."""
    made = Freezer(table, request.param)
    try:
        yield made
    finally:
        made.close()


def connections_of(command: Command) -> list[Any]:
    return psutil.Process(command.process.pid).net_connections("all")


class TestFrozen:
    @pytest.mark.parametrize("arguments", [[], ["--until-lsn", "now"], ["--snapshot"]])
    def test_while_it_connects(
        self, table: Database, freezer: Freezer, tmp_path: Path, arguments: list[str]
    ) -> None:
        if freezer.how == "sessions" and "--until-lsn" in arguments:
            pytest.skip("new sessions are not frozen, so that the capture ends by itself")
        freezer.freeze()
        slot = "other" if "--snapshot" in arguments else table.slot
        with started(freezer.dsn, slot, tmp_path / "log", *arguments) as command:
            assert command.reports_that(lambda report: report["state"] != "stopped")
            assert wait_until(lambda: connections_of(command), 30)
            command.terminate()

    @pytest.mark.parametrize("arguments", [["--create-slot"], ["--snapshot"]])
    def test_while_it_creates_a_slot(
        self, table: Database, freezer: Freezer, tmp_path: Path, arguments: list[str]
    ) -> None:
        with writing(table):
            with started(freezer.dsn, "other", tmp_path / "log", *arguments) as command:
                assert wait_until(lambda: blockers(table), 30)
                freezer.freeze()
                command.terminate()
            freezer.thaw()
            # The request to cancel was sent, and arrives now.
            assert wait_until(lambda: slots(table) == [table.slot])

    def test_while_it_streams(self, table: Database, freezer: Freezer, tmp_path: Path) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        folder = tmp_path / "log"
        with started(freezer.dsn, table.slot, folder, "--flush-seconds", "60") as command:
            assert command.reports_that(lambda report: report["messages"] == 4)
            freezer.freeze()
            command.terminate()
        freezer.thaw()
        assert [row["k"] for row in decoded(folder, "public.t")] == [1]
        assert confirmed_by_server(table) <= log.Log(folder).confirm_lsn

    def test_while_it_copies(self, table: Database, freezer: Freezer, tmp_path: Path) -> None:
        rows = 200_000
        if table.major >= 15:  # a row filter makes the copy slow, so that few rows are enough
            rows = 30_000
            slow = "octet_length(repeat('x', 20000 + k)) > 0"
            table.execute(f"ALTER PUBLICATION p SET TABLE t WHERE ({slow})")
        table.execute(
            f"INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, {rows}) g"
        )
        folder = tmp_path / "log"
        with started(freezer.dsn, "other", folder, "--snapshot") as command:
            assert command.reports_that(lambda report: report["snapshot_rows"])
            freezer.freeze()
            command.terminate()
        freezer.thaw()
        assert log.Log(folder).confirm_lsn == 0
        # The next snapshot replaces the slot of the interrupted one.
        capture_into(table, folder, slot="other", snapshot=True).run(until_lsn=0)
        assert sum(1 for _ in decoded(folder, "public.t")) == rows


class TestSlowServer:
    @pytest.mark.parametrize("arguments", [["--create-slot"], ["--snapshot"]])
    def test_no_half_made_slot_is_left(
        self, table: Database, tmp_path: Path, arguments: list[str]
    ) -> None:
        with writing(table):
            with started(table.dsn, "other", tmp_path / "log", *arguments) as command:
                assert wait_until(lambda: blockers(table), 30)
                command.terminate()
            assert wait_until(lambda: slots(table) == [table.slot])
