"""Errors of a capture that a real server does not allow, each with a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from pgwire_codec import log
from pgwire_codec.capture import Capture, PluginOptions, peek
from pgwire_codec.capture.connection.error_hints import capture_error_of_code
from pgwire_codec.errors import CaptureError, OptionError
from tests.support.error_style import check_style
from tests.support.log_captures import capture_into
from tests.support.servers import (
    QUICK_AND_STEADY,
    Database,
    InstalledServer,
    TemporaryServer,
    database,
)

pytestmark = pytest.mark.slow


def refusal(made: Database, dsn: str | None = None, **options: Any) -> tuple[str, str]:
    """Text and hint of the error of a capture that cannot be opened."""
    arguments = {"slot": made.slot, "publication": made.publication, "slot_timeout": 0.0}
    with pytest.raises(CaptureError) as caught:  # noqa: SIM117
        with Capture(dsn or made.dsn, **{**arguments, **options}):
            pass
    text, hint = check_style(caught.value)
    assert hint is not None
    return text, hint


@pytest.fixture
def ready(pg: Database) -> Database:
    """A database with a table, its publication and its slot."""
    pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    pg.create_slot()
    return pg


@pytest.fixture(scope="module")
def cramped() -> Iterator[TemporaryServer]:
    """A server that has one of everything at most."""
    settings = {
        **QUICK_AND_STEADY,
        "max_wal_senders": "1",
        "max_replication_slots": "1",
        "max_prepared_transactions": "0",
        "max_slot_wal_keep_size": "1MB",
    }
    with TemporaryServer(settings=settings) as server:
        yield server


def test_no_server() -> None:
    with (
        pytest.raises(CaptureError, match=r"(?s)could not connect: .* hint: Check host"),
        Capture("host=/nowhere/at/all dbname=x", slot="s", publication="p"),
    ):
        pass


@pytest.mark.parametrize("text", ["out of memory", "PQconnectdb() failed"])
def test_no_memory_for_a_connection(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise psycopg2.OperationalError(f"{text}\n")

    monkeypatch.setattr(psycopg2, "connect", connect)
    with (
        pytest.raises(MemoryError, match=re.escape(text)),
        Capture("host=/nowhere/at/all dbname=x", slot="s", publication="p"),
    ):
        pass


def test_no_such_database(pg: Database) -> None:
    text, hint = refusal(pg, pg.server.dsn_for("nowhere"))
    assert 'database "nowhere" does not exist' in text
    assert "of the DSN" in hint


def test_role_without_replication(ready: Database) -> None:
    role = ready.create_role("NOREPLICATION")
    assert refusal(ready, ready.server.dsn_for(ready.name, role)) == (
        f'role "{role}" may not replicate',
        f'Run as a superuser: ALTER ROLE "{role}" REPLICATION;',
    )


def test_wal_level() -> None:
    settings = {**QUICK_AND_STEADY, "wal_level": "replica"}
    with TemporaryServer(settings=settings) as server, database(server) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        assert refusal(made) == (
            "the server has wal_level = replica, and logical replication needs logical",
            "Run ALTER SYSTEM SET wal_level = logical; and restart the server.",
        )
        with pytest.raises(CaptureError, match="ALTER SYSTEM SET wal_level = logical;"):
            peek(made.dsn, slot="s", publication="p")


def test_wal_level_without_walsenders() -> None:
    settings = {**QUICK_AND_STEADY, "wal_level": "minimal", "max_wal_senders": "0"}
    with TemporaryServer(settings=settings) as server, database(server) as made:
        text, hint = refusal(made)
        assert "wal_level = minimal" in text
        assert "ALTER SYSTEM SET wal_level = logical;" in hint


def test_missing_publication(pg: Database) -> None:
    pg.create_slot()
    text, hint = refusal(pg)
    assert text == f'publication "p" does not exist in database "{pg.name}"'
    assert 'CREATE PUBLICATION "p" FOR ALL TABLES;' in hint


def test_one_of_two_publications_missing(ready: Database) -> None:
    text, _ = refusal(ready, publication=["p", "q"])
    assert 'publication "q" does not exist' in text


def test_tables_to_publish_missing(pg: Database) -> None:
    pg.execute('CREATE TABLE "T" (k int)')
    text, _ = refusal(pg, create_slot=True, create_publication=['"T"', "T", "other.t"])
    assert text == "tables to publish do not exist: T, other.t"
    assert pg.query("SELECT count(*) FROM pg_publication") == [(0,)]


def test_publication_of_nothing(pg: Database) -> None:
    pg.execute("CREATE PUBLICATION p")
    pg.create_slot()
    text, hint = refusal(pg)
    assert text == 'publication "p" publishes no table'
    assert 'ALTER PUBLICATION "p" ADD TABLE' in hint
    with Capture(pg.dsn, slot=pg.slot, publication="p", messages=True):
        pass


def test_existing_publication_lacks_a_table(ready: Database) -> None:
    ready.execute("CREATE TABLE u (k int)")
    assert refusal(ready, create_publication=["t", "u"]) == (
        'publication "p" exists, but does not publish public.u',
        'Run ALTER PUBLICATION "p" ADD TABLE public.u;',
    )
    text, hint = refusal(ready, create_publication="all tables")
    assert text == 'publication "p" exists, but not for all tables'
    assert 'DROP PUBLICATION "p";' in hint
    with Capture(ready.dsn, slot=ready.slot, publication="p", create_publication=["t"]):
        pass


def test_publication_that_the_role_may_not_create(ready: Database) -> None:
    role = ready.create_role("REPLICATION")
    dsn = ready.server.dsn_for(ready.name, role)
    text, hint = refusal(ready, dsn, publication="q", create_publication="all tables")
    assert text.startswith("the role lacks a privilege: ")
    assert "one for all tables a superuser" in hint


def test_nonsense_for_create_publication(ready: Database) -> None:
    for create, publication in ((True, "q"), ("t", "q"), (["t"], ["q", "r"])):
        capture = Capture(
            ready.dsn, slot=ready.slot, publication=publication, create_publication=create
        )
        with pytest.raises(OptionError, match="create_publication"):
            capture.__enter__()


def test_missing_slot(pg: Database) -> None:
    pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
    text, hint = refusal(pg)
    assert text == f'replication slot "{pg.slot}" does not exist'
    create = f"SELECT pg_create_logical_replication_slot('{pg.slot}', 'pgoutput');"
    assert hint == f"Pass `create_slot=True`, or run {create}"
    # A peek creates nothing: its advice is the SQL alone, and works.
    with pytest.raises(CaptureError) as caught:
        peek(pg.dsn, slot=pg.slot, publication="p")
    assert caught.value.hint == f"Run {create}"
    pg.execute(create)
    assert len(peek(pg.dsn, slot=pg.slot, publication="p")) == 0


def test_missing_publication_of_a_peek(pg: Database) -> None:
    pg.create_slot()
    with pytest.raises(CaptureError) as caught:
        peek(pg.dsn, slot=pg.slot, publication="p")
    create = 'Run CREATE PUBLICATION "p" FOR ALL TABLES; (or FOR TABLE ...).'
    assert caught.value.hint == create


def test_slot_name_that_cannot_be(ready: Database) -> None:
    with pytest.raises(CaptureError, match="invalid character"):
        Capture(ready.dsn, slot="No-Slot", publication="p", create_slot=True).__enter__()


def test_slot_in_use(ready: Database) -> None:
    with Capture(ready.dsn, slot=ready.slot, publication="p"):
        [(pid,)] = ready.query(
            f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{ready.slot}'"
        )
        text, hint = refusal(ready)
        assert text == f'replication slot "{ready.slot}" is in use by process {pid}'
        assert f"pg_terminate_backend({pid})" in hint
        with pytest.raises(CaptureError, match=f"in use by process {pid}"):
            peek(ready.dsn, slot=ready.slot, publication="p", slot_timeout=0.0)


def test_temporary_slot_that_exists(ready: Database) -> None:
    text, _ = refusal(ready, temporary=True)
    assert "already exists, and `temporary=True` creates one" in text


def test_physical_slot(ready: Database) -> None:
    ready.query("SELECT pg_create_physical_replication_slot('physical')")
    try:
        assert refusal(ready, slot="physical") == (
            'replication slot "physical" is a physical one',
            "Use another slot.",
        )
    finally:
        ready.query("SELECT pg_drop_replication_slot('physical')")


def test_slot_of_another_database(ready: Database) -> None:
    with database(ready.server) as other:
        other.execute("CREATE PUBLICATION p FOR ALL TABLES")
        text, hint = refusal(other, slot=ready.slot)
    assert f'belongs to database "{ready.name}"' in text
    assert f"Put dbname={ready.name} into the DSN" in hint


def test_slot_of_another_plugin(pg15: InstalledServer) -> None:
    with database(pg15) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        made.create_slot(plugin="test_decoding")
        text, _ = refusal(made)
        assert 'is of output plugin "test_decoding", not of pgoutput' in text


def test_server_that_is_too_old_for_an_option(pg15: InstalledServer) -> None:
    with database(pg15) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        assert refusal(made, create_slot=True, streaming="parallel") == (
            "`streaming='parallel'` needs PostgreSQL 16; the server is PostgreSQL 15",
            "Omit the option.",
        )
        with Capture(
            made.dsn, slot=made.slot, publication="p", create_slot=True, two_phase=True
        ) as capture:
            assert capture.source.plugin_options["proto_version"] == "3"


def test_publication_that_is_younger_than_the_changes(pg16: TemporaryServer) -> None:
    with database(pg16) as made:
        made.execute("CREATE TABLE t (k int)")
        made.create_slot()
        made.execute("INSERT INTO t VALUES (1)", "CREATE PUBLICATION p FOR ALL TABLES")
        with (
            pytest.raises(CaptureError, match=r"does not exist.*drop the slot and create it again"),
            Capture(made.dsn, slot=made.slot, publication="p") as capture,
        ):
            list(capture.batches(until_lsn=capture.current_lsn()))
        with pytest.raises(CaptureError, match="drop the slot and create it again"):
            peek(made.dsn, slot=made.slot, publication="p")


def test_no_walsender_left(cramped: TemporaryServer) -> None:
    with database(cramped) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        with Capture(made.dsn, slot=made.slot, publication="p", temporary=True):
            text, hint = refusal(made)
        assert text == "all 1 walsenders of the server are in use (max_wal_senders)"
        assert "ALTER SYSTEM SET max_wal_senders = 6;" in hint


def test_no_slot_left(cramped: TemporaryServer) -> None:
    with database(cramped) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        made.create_slot()
        text, hint = refusal(made, slot="another", create_slot=True)
        assert text.startswith("no replication slot left (max_replication_slots): ")
        assert "SET max_replication_slots to a higher number" in hint


def test_invalidated_slot(cramped: TemporaryServer) -> None:
    with database(cramped) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES", "CREATE TABLE t (k int)")
        made.create_slot()
        for _ in range(3):
            made.execute("INSERT INTO t VALUES (1)", "SELECT pg_switch_wal()")
        made.execute("CHECKPOINT")
        text, hint = refusal(made)
    assert text == f'replication slot "{made.slot}" was invalidated (wal_removed): changes are lost'
    assert f"SELECT pg_drop_replication_slot('{made.slot}');" in hint


def test_two_phase_where_nothing_can_be_prepared(cramped: TemporaryServer) -> None:
    with database(cramped) as made:
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        with Capture(
            made.dsn, slot=made.slot, publication="p", create_slot=True, two_phase=True
        ) as capture:
            assert "ALTER SYSTEM SET max_prepared_transactions = 10;" in capture.notes[0]


def test_two_phase_slot_without_the_option(ready: Database) -> None:
    with Capture(ready.dsn, slot="two_phase", publication="p", create_slot=True, two_phase=True):
        pass
    with Capture(ready.dsn, slot="two_phase", publication="p") as capture:
        assert "was created with two_phase" in capture.notes[0]


def test_server_that_ends_the_stream(ready: Database) -> None:
    ready.execute("INSERT INTO t VALUES (1)")
    with Capture(ready.dsn, slot=ready.slot, publication="p") as capture:
        batches = capture.batches(max_seconds=3600, max_messages=4)
        assert [message[:1] for message in next(batches).data] == [b"B", b"R", b"I", b"C"]
        ready.execute("INSERT INTO t VALUES (2)")
        [(sent,)] = ready.query(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
            f" WHERE slot_name = '{ready.slot}'"
        )
        assert sent
        with pytest.raises(CaptureError, match="Open the capture again"):
            list(batches)


def test_a_closed_capture(ready: Database) -> None:
    capture = Capture(ready.dsn, slot=ready.slot, publication="p")
    with pytest.raises(CaptureError, match="context manager"):
        capture.batches()
    with pytest.raises(CaptureError, match="context manager"):
        capture.confirm(1)
    with capture:
        batches = capture.batches(until_lsn=capture.current_lsn() + (1 << 40))
        capture.close()
        with pytest.raises(CaptureError, match="has been closed — hint: Open a new one"):
            next(batches)


def test_a_failed_peek_leaves_the_connection_usable(ready: Database) -> None:
    connection = psycopg2.connect(ready.dsn)
    try:
        with pytest.raises(CaptureError, match="does not exist"):
            peek(connection, slot="absent", publication="p")
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("sqlstate", "text"),
    [
        ("XX000", "invalid memory alloc request size 1200000003 (associated LSN 0/21F7AC0)"),
        ("54000", "out of memory (Cannot enlarge string buffer containing 9 bytes by 8 more.)"),
        ("54000", "string buffer exceeds maximum allowed length (1073741823 bytes)"),
    ],
)
def test_a_row_that_is_too_large(sqlstate: str, text: str) -> None:
    error = capture_error_of_code(sqlstate, text, "s")
    assert not error.is_transient
    assert error.primary == f"the server cannot send a row, which exceeds 1 GB: {text}"
    assert "Capture with --binary" in check_style(error)[1]


@pytest.mark.thorough
def test_a_value_whose_text_exceeds_a_gigabyte(tmp_path: Path) -> None:
    """A log in text goes on in binary form, and then in text again."""
    size = 600_000_000
    with TemporaryServer(settings=QUICK_AND_STEADY) as server, database(server) as made:
        made.execute(
            "CREATE TABLE t (k int PRIMARY KEY, v bytea)", "CREATE PUBLICATION p FOR TABLE t"
        )
        made.create_slot()

        def capture(folder: str = "log", *, binary: bool = False, **options: Any) -> None:
            chosen = PluginOptions("p", binary=binary)
            capture_into(made, tmp_path / folder, options=chosen, **options).run(until_lsn="now")

        made.execute("INSERT INTO t VALUES (0, 'a')")
        capture()
        made.execute(f"INSERT INTO t SELECT 1, repeat('x', {size})::bytea")
        with pytest.raises(CaptureError, match=r"exceeds 1 GB: .*associated LSN .*--binary"):
            capture()
        capture(binary=True)
        made.execute("INSERT INTO t VALUES (2, 'b')")
        capture()
        batches = log.Log(tmp_path / "log").read("public.t")
        assert [batch.new["v"].lengths.tolist() for batch in batches] == [[4], [size], [4]]
        new = {"slot": "copied", "create_slot": True, "snapshot": True}
        with pytest.raises(CaptureError, match=r"exceeds 1 GB: .*COPY of \"public\"\.\"t\""):
            capture("text", **new)
        capture("binary", binary=True, **new)
        made.execute("SELECT pg_drop_replication_slot('copied')")
