"""Credentials of a capture: TLS, certificates, passwords from a command, a role with little."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwire_codec.capture import LogCapture, with_password_command
from pgwire_codec.capture.connection import password_command
from pgwire_codec.capture.connection.connect import connect, connect_walsender
from pgwire_codec.errors import CaptureError, OptionError
from tests.support.log_captures import decoded
from tests.support.servers import Database, database, with_table
from tests.support.slot_captures import wait_until
from tests.support.tls import TlsServer, tls_server

pytestmark = pytest.mark.slow

SECRET = "c0rrect-h0rse"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    with tls_server(tmp_path_factory.mktemp("certificates")) as found:
        yield found


@pytest.fixture
def made(served: TlsServer) -> Iterator[Database]:
    """A database with a table, and the roles ``reader`` and ``with_certificate``."""
    with database(served.server) as found:
        with_table(found)
        for role in ("reader", "with_certificate"):
            found.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{SECRET}'")
            found.roles.append(role)
        yield found


def dsn_of(served: TlsServer, made: Database, **options: str) -> str:
    known = {
        "host": "localhost",
        "hostaddr": "127.0.0.1",
        "port": str(served.port),
        "dbname": made.name,
        "user": "reader",
        "sslmode": "verify-full",
        "sslrootcert": str(served.authority),
    }
    return " ".join(f"{name}={value}" for name, value in (known | options).items() if value)


def printing(path: Path, password: str) -> str:
    path.write_text(f"{password}\nnot this\n")
    return f"cat {shlex.quote(str(path))}"


def is_encrypted(dsn: str) -> bool:
    cursor = connect(dsn).cursor()
    cursor.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    [encrypted] = cursor.fetchone()
    return bool(encrypted)


def test_verified(served: TlsServer, made: Database) -> None:
    assert is_encrypted(dsn_of(served, made, password=SECRET))
    assert is_encrypted(dsn_of(served, made, password=SECRET, channel_binding="require"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sslmode": "disable"}, "no pg_hba.conf entry"),
        ({"host": "db.example.org"}, 'does not match host name "db.example.org"'),
        ({"sslrootcert": "/dev/null"}, "certificate|root"),
        ({"user": "with_certificate", "sslcert": "/none"}, "requires a valid client certificate"),
    ],
)
def test_refused(served: TlsServer, made: Database, options: dict[str, str], problem: str) -> None:
    for opened in (connect, connect_walsender):
        with pytest.raises(CaptureError, match=problem):
            opened(dsn_of(served, made, password=SECRET, **options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"service": "nowhere"}, 'definition of service "nowhere" not found'),
        ({"sslrootcert": "/none/root.crt"}, "root certificate file"),
        ({"sslcert": "/none.crt", "sslkey": "/none.key"}, "requires a valid client certificate"),
    ],
)
def test_files_that_do_not_exist(
    served: TlsServer, made: Database, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    """Another attempt would find them neither: the capture ends."""
    dsn = dsn_of(served, made, password=SECRET, **{"user": "with_certificate"} | options)
    with pytest.raises(CaptureError, match=problem) as raised:
        LogCapture(dsn, tmp_path, slot=made.slot, publication="p").run(until_lsn="now")
    assert not raised.value.is_transient


def test_a_certificate(served: TlsServer, made: Database, tmp_path: Path) -> None:
    made.execute("INSERT INTO t VALUES (1, 'a')")
    dsn = dsn_of(
        served,
        made,
        user="with_certificate",
        sslcert=str(served.folder / "client.crt"),
        sslkey=str(served.folder / "client.key"),
    )
    LogCapture(dsn, tmp_path, slot=made.slot, publication="p").run(until_lsn="now")
    assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]


class TestPasswordCommand:
    def test_a_capture(self, served: TlsServer, made: Database, tmp_path: Path) -> None:
        """It runs again for each connection: the password changes while the capture runs."""
        password = tmp_path / "password"
        dsn = with_password_command(dsn_of(served, made), printing(password, SECRET))
        running = LogCapture(dsn, tmp_path / "log", slot=made.slot, publication="p")
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            assert wait_until(lambda: running.status.state == "streaming")
            made.execute("ALTER ROLE reader PASSWORD 'an0ther-s3cret'")
            made.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
            assert wait_until(lambda: running.status.problem is not None)
            assert SECRET not in str(running.status)
            printing(password, "an0ther-s3cret")
            made.execute("INSERT INTO t VALUES (1, 'a')")
            assert wait_until(lambda: running.status.connections == 2)
            assert wait_until(lambda: running.status.messages >= 4)
        finally:
            running.stop()
            thread.join(20)
        assert [row["k"] for row in decoded(tmp_path / "log", "public.t")] == [1]

    def test_before_another_password(
        self, served: TlsServer, made: Database, tmp_path: Path
    ) -> None:
        command = printing(tmp_path / "password", SECRET)
        connect(with_password_command(dsn_of(served, made, password="wrong"), command)).close()

    @pytest.mark.parametrize(
        ("command", "how"),
        [
            ("exit 3", "ended with status 3"),
            ("no-such-command", "ended with status 127"),
            ("true", "printed no password"),
            ("echo; echo later", "printed no password"),
            ("sleep 60", "did not end within 1 seconds"),
        ],
    )
    def test_failures(self, command: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(password_command, "_SECONDS", 1.0)
        with pytest.raises(CaptureError, match=f"the password command {how}") as caught:
            connect(with_password_command("host=/nowhere", command))
        assert caught.value.is_transient

    def test_no_command(self) -> None:
        assert with_password_command("host=/nowhere", None) == "host=/nowhere"
        with pytest.raises(OptionError, match="empty"):
            with_password_command("host=/nowhere", " ")

    def test_the_password_is_not_shown(
        self, served: TlsServer, made: Database, tmp_path: Path
    ) -> None:
        """libpq's error has the user, whom somebody gave the password as a name."""
        made.execute(f'CREATE ROLE "{SECRET}" LOGIN PASSWORD NULL')
        made.roles.append(f'"{SECRET}"')
        command = printing(tmp_path / "password", SECRET)
        with pytest.raises(CaptureError) as caught:
            connect(with_password_command(dsn_of(served, made, user=SECRET), command))
        assert SECRET[:4] not in str(caught.value)
        assert "the password is wrong or missing" in str(caught.value)


class TestLeastPrivilege:
    """The role that docs/howto/credentials.md creates, with nothing else."""

    def test_a_snapshot(self, served: TlsServer, made: Database, tmp_path: Path) -> None:
        made.execute("INSERT INTO t VALUES (1, 'a')", "GRANT SELECT ON t TO reader")
        dsn = dsn_of(served, made, password=SECRET)
        reading = LogCapture(dsn, tmp_path, slot=f"{made.slot}_new", publication="p", snapshot=True)
        assert reading.run(until_lsn="now").snapshot_rows == 1
        made.execute("INSERT INTO t VALUES (2, 'b')")
        reading.run(until_lsn="now")
        assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1, 2]

    def test_no_right_to_read(self, served: TlsServer, made: Database, tmp_path: Path) -> None:
        dsn = dsn_of(served, made, password=SECRET)
        with pytest.raises(CaptureError, match="may not read"):
            LogCapture(dsn, tmp_path, slot=f"{made.slot}_new", publication="p", snapshot=True).run(
                until_lsn="now"
            )
        # The stream alone needs none.
        made.execute("INSERT INTO t VALUES (1, 'a')")
        LogCapture(dsn, tmp_path / "log", slot=made.slot, publication="p").run(until_lsn="now")
        assert [row["k"] for row in decoded(tmp_path / "log", "public.t")] == [1]
