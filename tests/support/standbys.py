"""A real primary and its standby, to promote one after the other."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg2
import pytest

from pgwire_codec.demo.server import DEFAULT_SETTINGS, _load_package
from tests.support import data_directories
from tests.support.servers import GIVEN, QUICK_AND_STEADY, Database, embedded_owner

#: Of the physical slot by which a standby follows its primary.
STANDBY = "standby"
_SETTINGS = {
    **DEFAULT_SETTINGS,
    **QUICK_AND_STEADY,
    "hot_standby_feedback": "on",
    "listen_addresses": "",
    "primary_slot_name": STANDBY,
    "sync_replication_slots": "on",
    "synchronized_standby_slots": STANDBY,
    "wal_retrieve_retry_interval": "200ms",
}
_SYNC_SECONDS = 120.0
_CONTROL_SECONDS = "300"  # of pg_ctl, for a start or stop on a busy machine

_numbers = itertools.count(1)

Stop = Literal["fast", "immediate"]


def _embedded() -> Path:
    """Programs of the embedded PostgreSQL 18."""
    return Path(_load_package().__file__).parent / "pginstall18" / "bin"


def _major(binaries: Path) -> int:
    told = subprocess.run([binaries / "postgres", "-V"], capture_output=True, text=True)
    return int(re.findall(r"\d+", told.stdout)[0])


class Node:
    """One of the two servers."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.binaries = binaries
        self._user = embedded_owner()
        directory.mkdir()
        if self._user is not None:
            shutil.chown(directory, self._user)

    def initialize(self, settings: dict[str, str]) -> None:
        """Make the data directory of a primary."""
        data_directories.create(self.data, self.binaries, self._user)
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def copy_of(self, primary: Node) -> None:
        """Make the data directory of a primary's standby."""
        shutil.rmtree(self.data, ignore_errors=True)
        conninfo = f"host={primary.directory} user=postgres dbname=postgres"
        # Distributions that lack it are not newer than the embedded one, which copies older ones.
        has_it = (self.binaries / "pg_basebackup").exists()
        self._run(
            "pg_basebackup", "-d", conninfo, "-D", self.data, "-R", "-S", STANDBY, "-c", "fast",
            binaries=self.binaries if has_it else _embedded(),
        )  # fmt: skip

    def start(self) -> None:
        log = self.directory / "log"
        socket = f"-c unix_socket_directories={self.directory}"
        self._run("pg_ctl", "-w", "-D", self.data, "-l", log, "-o", socket, "start")

    def stop(self, mode: Stop) -> None:
        self._run("pg_ctl", "-w", "-D", self.data, "-m", mode, "stop")

    def promote(self) -> None:
        self._run("pg_ctl", "-w", "-D", self.data, "promote")

    @property
    def is_running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def dsn_for(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def query(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(self.dsn_for(database))) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(statement)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return rows

    def _run(self, program: str, *arguments: str | Path, binaries: Path | None = None) -> None:
        done = subprocess.run(
            [(binaries or self.binaries) / program, *arguments],
            cwd=self.directory,
            user=self._user,
            env={**os.environ, "PGCTLTIMEOUT": _CONTROL_SECONDS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "pg_basebackup" else subprocess.DEVNULL,
        )
        if done.returncode != 0:
            log = self.directory / "log"
            lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
            raise AssertionError("\n".join([f"{program}: {done.stderr!r}", *lines[-20:]]))


class Cluster:
    """A primary and its standby; the DSN names both, and libpq connects to the primary."""

    def __init__(self, directory: Path, binaries: Path, settings: dict[str, str]) -> None:
        self.postgres_version = _major(binaries)
        self.primary = Node(directory / "a", binaries)
        self.standby = Node(directory / "b", binaries)
        self._hosts = f"{self.primary.directory},{self.standby.directory}"
        self.primary.initialize({**_SETTINGS, **settings})
        self.primary.start()

    def dsn_for(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self._hosts}&target_session_attrs=read-write"

    def make_standby(self) -> None:
        """Make the standby, as a copy of the primary."""
        self.primary.query(
            f"SELECT pg_create_physical_replication_slot('{STANDBY}', true) WHERE NOT EXISTS"
            f" (SELECT FROM pg_replication_slots WHERE slot_name = '{STANDBY}')"
        )
        self.standby.copy_of(self.primary)
        self.standby.start()

    def stop_primary(self, mode: Stop) -> None:
        """Stop the primary; ``immediate`` is a crash."""
        self.primary.stop(mode)

    def restart_primary(self, mode: Stop) -> None:
        self.primary.stop(mode)
        self.primary.start()

    def promote(self) -> None:
        """Promote the standby. There is no other one then; see :meth:`make_standby`."""
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def wait_for_slot(self, name: str, advance: Callable[[], object] = lambda: None) -> None:
        """Wait until the standby has the slot, ready to be used after a promotion.

        ``advance`` has a consumer confirm what it gets: a standby that began after the slot's
        position takes it over only once the position is in its own WAL.
        """
        deadline = time.monotonic() + _SYNC_SECONDS
        query = f"SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = '{name}'"
        while True:
            found = self.standby.query(query)
            if found and found[0][0]["synced"] and not found[0][0]["temporary"]:
                return
            if time.monotonic() >= deadline:
                log = (self.standby.directory / "log").read_text("utf-8", "replace")
                raise AssertionError(f"{found}\n" + "\n".join(log.splitlines()[-20:]))
            # The slot's position follows the snapshots of transactions, one in 15 seconds.
            self.primary.query("SELECT pg_log_standby_snapshot()")
            advance()
            time.sleep(0.1)

    def wait_for_standby(self) -> None:
        """Wait until the standby has replayed all of the primary's WAL."""
        [(lsn,)] = self.primary.query("SELECT pg_current_wal_flush_lsn()")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'"
        deadline = time.monotonic() + _SYNC_SECONDS
        while self.standby.query(query) != [(True,)]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        for node in (self.standby, self.primary):
            if node.is_running:
                node.stop("immediate")


@contextmanager
def database_of(made_on: Cluster) -> Iterator[Database]:
    """Create a database on a cluster, and drop its slots.

    The database stays: a standby of PostgreSQL 18.4 ends when a database is dropped while it
    synchronizes a slot of it.
    """
    number = next(_numbers)
    made_on.primary.query(f"CREATE DATABASE db_{number}")
    made = Database(made_on, f"db_{number}", f"slot_{number}")
    yield made
    end = "SELECT pg_terminate_backend(active_pid, 5000), pg_drop_replication_slot(slot_name)"
    made.execute(f"{end} FROM pg_replication_slots WHERE database = current_database()")


@contextmanager
def cluster(
    settings: dict[str, str] | None = None, folder: Path | None = None
) -> Iterator[Cluster]:
    """A primary, whose standby is yet to be made, of PostgreSQL 17 or later.

    Both have their data below ``folder``, if it is given.
    """
    binaries = _embedded() if GIVEN is None else Path(GIVEN)
    if _major(binaries) < 17:
        pytest.skip("PostgreSQL 17 on: failover slots")
    parent = folder or data_directories.servers_folder()
    with tempfile.TemporaryDirectory(prefix="pgwire_codec_", dir=parent) as own:
        Path(own).chmod(0o755)
        started = Cluster(Path(own), binaries, settings or {})
        try:
            yield started
        finally:
            started.stop()
