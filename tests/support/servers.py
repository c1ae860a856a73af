"""Real servers, started once, and a database, slot and publication of its own for each test."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.demo.server import DEFAULT_SETTINGS, EmbeddedServer, _load_package
from pgwire_codec.errors import CaptureError
from tests.support import data_directories

if TYPE_CHECKING:
    from tests.support.standbys import Cluster

_numbers = itertools.count(1)

#: Settings of the tests' servers. Their data need not survive a crash of the machine. No
#: autovacuum: what it writes to the catalogs makes a walsender send Relations and Types again,
#: and tests compare whole streams.
QUICK_AND_STEADY = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


class TemporaryServer(EmbeddedServer):
    """An embedded server that starts without initdb, and has its data in memory if possible."""

    def _create_directory(self) -> Path:
        folder = data_directories.servers_folder()
        return Path(tempfile.mkdtemp(prefix="pgwire_codec_", dir=folder))

    def _create_data(self, data: Path) -> None:
        package = _load_package()
        binaries = package.utils.POSTGRES_VERSIONS[self.postgres_version]
        data_directories.create(data, binaries, embedded_owner())


def embedded_owner() -> str | None:
    """Return the user of embedded servers, which refuse to run as root."""
    if os.geteuid() != 0:
        return None
    _load_package().utils.ensure_user_exists("pgserver")
    return "pgserver"


@dataclass
class Database:
    """A database that is there for one test."""

    server: EmbeddedServer | InstalledServer | Cluster
    name: str
    slot: str
    publication: str = "p"
    roles: list[str] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return self.server.dsn_for(self.name)

    @property
    def major(self) -> int:
        return self.server.postgres_version

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """An ordinary connection in autocommit mode."""
        import psycopg2

        connection = psycopg2.connect(self.dsn)
        try:
            connection.autocommit = True
            yield connection
        finally:
            connection.close()

    def execute(self, *statements: str) -> None:
        """Run each statement in a transaction of its own."""
        with self.connect() as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def create_role(self, attributes: str) -> str:
        """A role that is dropped with the database."""
        role = f"role_{next(_numbers)}"
        self.execute(f"CREATE ROLE {role} LOGIN {attributes}")
        self.roles.append(role)
        return role

    def create_slot(self, suffix: str = "", plugin: str = "pgoutput") -> str:
        slot = self.slot + suffix
        self.query(f"SELECT pg_create_logical_replication_slot('{slot}', '{plugin}')")
        return slot


@contextmanager
def database(server: EmbeddedServer | InstalledServer) -> Iterator[Database]:
    """Create a database on a server, and remove it with its slots and roles."""
    number = next(_numbers)
    made = Database(server, f"db_{number}", f"slot_{number}")
    administration = Database(server, "postgres", "")
    administration.execute(f"CREATE DATABASE {made.name}")
    try:
        yield made
    finally:
        end = "(active_pid, 5000)" if made.major >= 14 else "(active_pid), pg_sleep(0.5)"
        # Slots of later tests would wait for transactions that a failed test left prepared.
        for (statement,) in made.query(
            "SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts"
            " WHERE database = current_database()"
        ):
            made.execute(statement)
        made.execute(
            f"SELECT pg_terminate_backend{end} FROM pg_replication_slots"
            " WHERE database = current_database() AND active",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()",
        )
        administration.execute(
            f"DROP DATABASE {made.name}{' WITH (FORCE)' if made.major >= 13 else ''}",
            *(f"DROP ROLE {r}" for r in made.roles),
        )


@pytest.fixture(scope="session")
def pg16() -> Iterator[EmbeddedServer]:
    """PostgreSQL 16 with wal_level=logical; large transactions are streamed from 64 kB on."""
    with TemporaryServer(16, QUICK_AND_STEADY) as server:
        yield server


@pytest.fixture(scope="session")
def pg18() -> Iterator[EmbeddedServer]:
    """PostgreSQL 18, configured like ``pg16``."""
    with TemporaryServer(18, QUICK_AND_STEADY) as server:
        yield server


#: Debian's PostgreSQL 15: it has ``test_decoding``, and an older protocol.
DEBIAN = Path("/usr/lib/postgresql/15/bin")

#: Binaries of a major that the tests are to run on instead of those that are embedded.
GIVEN = os.environ.get("PGWIRE_TEST_POSTGRES")


class InstalledServer:
    """A PostgreSQL whose binaries are in a folder."""

    def __init__(
        self, directory: Path, binaries: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.binaries = binaries
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        told = subprocess.run([binaries / "postgres", "-V"], capture_output=True, text=True)
        self.postgres_version = int(re.findall(r"\d+", told.stdout)[0])
        # The server refuses to run as root; Debian's package comes with a user for it.
        self._user = "postgres" if os.geteuid() == 0 else None

    def start(self) -> None:
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        data = self.directory / "data"
        data_directories.create(data, self.binaries, self._user)
        known = dict(self.settings)
        if self.postgres_version < 13:
            del known["logical_decoding_work_mem"]
        settings = "".join(f"{name} = '{value}'\n" for name, value in known.items())
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"\n{settings}listen_addresses = ''\n")
            file.write(f"unix_socket_directories = '{self.directory}'\n")
        self._run("pg_ctl", "-w", "-D", data, "-l", self.directory / "log", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-D", self.directory / "data", "-m", "immediate", "stop")

    def restart(self) -> None:
        self._run(
            "pg_ctl", "-w", "-D", self.directory / "data", "-l", self.directory / "log", "restart"
        )

    def dsn_for(self, database: str, user: str = "postgres") -> str:
        port = self.settings.get("port", "5432")
        return f"postgresql://{user}@/{database}?host={self.directory}&port={port}"

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self.binaries / program, *arguments],
            check=True,
            cwd=self.directory,
            user=self._user,
            stdout=subprocess.DEVNULL,
        )


@contextmanager
def installed(
    binaries: Path, settings: Mapping[str, str] | None = None
) -> Iterator[InstalledServer]:
    """A server of these binaries; ``settings`` go over those that the demo's servers have."""
    # Not in pytest's own directory, which other users may not enter.
    folder = data_directories.servers_folder()
    with tempfile.TemporaryDirectory(prefix="pgwire_codec_", dir=folder) as directory:
        server = InstalledServer(Path(directory), binaries, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def pg15() -> Iterator[InstalledServer]:
    """Debian's PostgreSQL 15, where it is installed."""
    if not DEBIAN.exists():
        pytest.skip("Debian's PostgreSQL 15 is not installed")
    with installed(DEBIAN, QUICK_AND_STEADY) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what asks the given server for an option that only later majors have."""
    try:
        return (yield)
    except CaptureError as error:
        wanted = re.search(r"needs PostgreSQL (\d+); the server is PostgreSQL \d+", str(error))
        if GIVEN is None or wanted is None:
            raise
        pytest.skip(wanted[0])


@pytest.fixture(scope="session")
def given() -> Iterator[InstalledServer]:
    """The PostgreSQL that ``PGWIRE_TEST_POSTGRES`` names, started."""
    assert GIVEN is not None
    with installed(Path(GIVEN), QUICK_AND_STEADY) as server:
        yield server


#: For tests of what differs by major. ``make test-postgresql`` runs the others on older servers.
each_major = pytest.mark.parametrize("pg", ["given"] if GIVEN else ["pg16", "pg18"], indirect=True)


@pytest.fixture(params=["given" if GIVEN else "pg18"])
def pg(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database."""
    server = request.getfixturevalue(request.param)
    since = request.node.get_closest_marker("since")
    if since is not None and server.postgres_version < since.args[0]:
        pytest.skip(f"PostgreSQL {since.args[0]} on: {since.args[1]}")
    with database(server) as made:
        yield made


@pytest.fixture
def table(pg: Database) -> Database:
    """A database with table t (k int, v text), its publication and its slot."""
    return with_table(pg)


def with_table(made: Database) -> Database:
    made.execute("CREATE TABLE t (k int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    made.create_slot()
    return made
