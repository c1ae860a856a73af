"""A capture's connection: how long it lasts, and what its settings are."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psycopg2
import pytest
from psycopg2.extras import LogicalReplicationConnection

from pgwire_codec.capture import Capture, peek
from pgwire_codec.errors import CaptureError
from pgwire_codec.reference import decode_message
from tests.support.data_directories import servers_folder
from tests.support.servers import QUICK_AND_STEADY, Database, TemporaryServer, database
from tests.support.slot_captures import opened, read, tags, wait_until

pytestmark = pytest.mark.slow


class TestTimeouts:
    """A server with a wal_sender_timeout of 0.5 s."""

    @pytest.fixture
    def hasty(self, table: Database) -> Iterator[Capture]:
        dsn = f"{table.dsn}&options=-c%20wal_sender_timeout%3D500ms"
        with Capture(dsn, slot=table.slot, publication="p") as capture:
            assert capture.wal_sender_timeout == 0.5
            yield capture

    def test_waiting_keeps_the_connection(self, table: Database, hasty: Capture) -> None:
        assert list(hasty.batches(idle_seconds=1.0)) == []
        table.execute("INSERT INTO t VALUES (1, 'a')")
        assert tags(read(hasty)) == b"BRIC"

    def test_a_consumer_may_call_keepalive(self, table: Database, hasty: Capture) -> None:
        for _ in range(5):  # for twice the timeout
            time.sleep(0.2)
            hasty.keepalive()
        table.execute("INSERT INTO t VALUES (1, 'a')")
        assert tags(read(hasty)) == b"BRIC"

    def test_a_consumer_that_sleeps_is_dropped_and_told_why(
        self, table: Database, hasty: Capture
    ) -> None:
        active = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{table.slot}'"
        assert wait_until(lambda: table.query(active) == [(False,)])
        with pytest.raises(CaptureError, match=r"wal_sender_timeout.*keepalive\(\)"):
            list(hasty.batches(idle_seconds=1))
        with opened(table) as capture:
            assert read(capture) == []


class TestSettings:
    """Values have one form, whatever the settings of role, database and environment."""

    STRANGE: ClassVar = {
        "datestyle": "German",
        "intervalstyle": "iso_8601",
        "extra_float_digits": "-5",
        "bytea_output": "escape",
        "timezone": "Asia/Kolkata",
        "client_encoding": "LATIN1",
    }
    EXPECTED = (
        "2024-02-03",
        "2024-02-03 04:05:06+00",
        "1 year 2 mons 3 days 04:05:06",
        "0.30000000000000004",
        "\\x00ff",
        "é€",
    )

    @pytest.fixture
    def strange(self, pg: Database) -> Database:
        pg.execute(
            "CREATE TABLE t (a date, b timestamptz, c interval, d float8, e bytea, f text)",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        pg.create_slot()
        pg.execute(
            "INSERT INTO t VALUES ('2024-02-03', '2024-02-03 04:05:06+00',"
            " 'P1Y2M3DT4H5M6S', 0.30000000000000004, '\\x00ff', U&'\\00e9\\20ac')"
        )
        return pg

    def check(self, messages: list[bytes]) -> None:
        insert: Any = decode_message(next(m for m in messages if m[:1] == b"I"))
        assert tuple(value.decode() for value in insert.new.values) == self.EXPECTED

    def test_of_the_role(self, strange: Database) -> None:
        role = strange.create_role("REPLICATION")
        strange.execute(
            f"GRANT USAGE ON SCHEMA public TO {role}",
            *(f"ALTER ROLE {role} SET {name} = '{value}'" for name, value in self.STRANGE.items()),
        )
        dsn = strange.server.dsn_for(strange.name, role)
        # psycopg2 sets datestyle itself, but not on a replication connection.
        unpinned = psycopg2.connect(dsn, connection_factory=LogicalReplicationConnection)
        try:
            cursor = unpinned.cursor()
            for name, value in self.STRANGE.items():
                cursor.execute(f"SHOW {name}")
                assert cursor.fetchone()[0].startswith(value)
        finally:
            unpinned.close()
        connection = psycopg2.connect(dsn)
        try:
            self.check(peek(connection, slot=strange.slot, publication="p").data)
            cursor = connection.cursor()
            cursor.execute("SHOW timezone")
            assert cursor.fetchone() == ("Asia/Kolkata",)
        finally:
            connection.close()
        self.check(peek(dsn, slot=strange.slot, publication="p").data)
        with Capture(dsn, slot=strange.slot, publication="p") as capture:
            self.check(read(capture))

    def test_of_the_database(self, strange: Database) -> None:
        strange.execute(
            *(
                f"ALTER DATABASE {strange.name} SET {name} = '{value}'"
                for name, value in self.STRANGE.items()
            )
        )
        with opened(strange) as capture:
            self.check(read(capture))

    def test_of_the_environment(self, strange: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGDATESTYLE", "German")
        monkeypatch.setenv("PGTZ", "Asia/Kolkata")
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        monkeypatch.setenv("PGOPTIONS", "-c bytea_output=escape -c intervalstyle=iso_8601")
        with opened(strange) as capture:
            self.check(read(capture))
        self.check(peek(strange.dsn, slot=strange.slot, publication="p").data)


#: Locales of currencies with cents, and without.
EURO, YEN = "de_DE.utf8", "ja_JP.utf8"


@pytest.fixture(scope="module")
def with_locales() -> Iterator[TemporaryServer]:
    """A server that has some locales of currencies."""
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales").exists():
        pytest.skip("the sources of locales are not installed")
    with (
        tempfile.TemporaryDirectory(dir=servers_folder()) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(folder).chmod(0o755)  # the server has another user
        for name in (EURO, YEN):
            source = name.removesuffix(".utf8")
            command = ["localedef", "-i", source, "-f", "UTF-8", f"{folder}/{name}"]
            subprocess.run(command, check=True)
        patch.setenv("LOCPATH", folder)
        with TemporaryServer(18, QUICK_AND_STEADY) as server:
            yield server


@pytest.mark.parametrize(("locale", "sent"), [(EURO, "$1,234.00"), (YEN, "￥1,234")])
def test_money_has_one_form(with_locales: TemporaryServer, locale: str, sent: str) -> None:
    """Another locale would give a number without cents another value."""
    with database(with_locales) as made:
        made.execute(
            f"ALTER DATABASE {made.name} SET lc_monetary = '{locale}'",
            "CREATE TABLE t (m money)",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        made.create_slot()
        made.execute("INSERT INTO t VALUES (1234)")
        peeked = list(peek(made.dsn, slot=made.slot, publication="p").data)
        with opened(made) as capture:
            streamed = read(capture)
        for messages in peeked, streamed:
            insert: Any = decode_message(next(m for m in messages if m[:1] == b"I"))
            assert insert.new.values[0].decode() == sent
