"""Publications that do not exist at a change: PostgreSQL 18 warns and goes on without them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from click.testing import CliRunner

from pgwire_codec.capture import LogCapture, check_server, peek
from pgwire_codec.capture.connection.notices import (
    Notice,
    NoticeListener,
    ServerNotices,
    missing_publication,
)
from pgwire_codec.cli.app import app
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from tests.support.error_style import check_style
from tests.support.log_captures import (
    capture_into,
    decoded,
    flush_lsn,
    messages,
    running,
    warn_at_start,
)
from tests.support.servers import Database, database, with_table
from tests.support.slot_captures import confirmed_by_server, opened, wait_until

pytestmark = pytest.mark.slow

warns = pytest.mark.since(18, "before, the server ends the stream")


def lost(made: Database) -> int:
    """Make changes before, while and after the publication p is missing; return their first LSN."""
    made.execute("INSERT INTO t VALUES (1, 'before')")
    whole = flush_lsn(made)
    made.execute(
        "DROP PUBLICATION p",
        "INSERT INTO t VALUES (2, 'missing')",
        "CREATE PUBLICATION p FOR TABLE t",
        "INSERT INTO t VALUES (3, 'after')",
    )
    return whole


def refusal(capture: LogCapture) -> tuple[str, int]:
    """Return the error of a capture, and the LSN in it."""
    with pytest.raises(CaptureError) as caught:
        capture.run(idle_seconds=10)
    text, hint = check_style(caught.value)
    assert "begin a new log with a snapshot" in str(hint)
    assert not caught.value.is_transient
    return text, parse_lsn(text.split("after ")[1].split(":")[0])


def keys(folder: Path) -> list[int]:
    return [row["k"] for row in decoded(folder, "public.t")]


@warns
@pytest.mark.parametrize("others", [[], ["q"]], ids=["alone", "beside another"])
def test_the_log_ends_before_it(table: Database, tmp_path: Path, others: list[str]) -> None:
    table.execute("CREATE PUBLICATION q FOR TABLE t", "CREATE PUBLICATION pq FOR TABLE t")
    whole = lost(table)
    capture = capture_into(table, tmp_path, publication=["p", *others])
    for _ in range(2):  # nothing that follows makes it up for the next start
        text, lsn = refusal(capture)
        assert text == (
            f'publication "p" does not exist at a change after {format_lsn(lsn)}: from there on, '
            f'rows are missing from the stream of replication slot "{table.slot}"'
        )
        assert lsn <= whole
        assert keys(tmp_path) == [1]
        assert confirmed_by_server(table) <= whole
    assert capture.status.errors == {"55000": 1}


@warns
def test_dropped_while_a_command_runs(table: Database, tmp_path: Path) -> None:
    capture = capture_into(table, tmp_path)
    with running(capture) as failed:
        table.execute("INSERT INTO t VALUES (0, 'x')")
        assert wait_until(lambda: capture.status.transactions)
        whole = lost(table)
        assert wait_until(lambda: failed)
    assert 'publication "p" does not exist at a change after' in str(failed[0])
    assert keys(tmp_path) == [0, 1]
    arguments = ["--dsn", table.dsn, "--slot", table.slot, "--publication", "p"]
    done = CliRunner().invoke(app, ["capture", *arguments, "--log", str(tmp_path)])
    assert done.exit_code == 4
    assert done.stderr.startswith('Error: publication "p" does not exist at a change after ')
    assert "\nhint: The publication was dropped, or" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "failed"
    assert confirmed_by_server(table) <= whole


@warns
def test_the_start_looks_the_publication_up(table: Database, tmp_path: Path) -> None:
    """Not in the walsender's session, whose caches would hide that it did not exist."""
    whole = lost(table)
    assert refusal(capture_into(table, tmp_path, create_publication=["t"]))[1] <= whole
    assert keys(tmp_path) == [1]


@warns
@pytest.mark.parametrize("streaming", ["off", "on"])
def test_dropped_within_a_transaction(table: Database, tmp_path: Path, streaming: str) -> None:
    with table.connect() as connection:
        connection.autocommit = False
        cursor = connection.cursor()
        cursor.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 3000) g")
        table.execute("DROP PUBLICATION p")
        cursor.execute(
            "INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(4000, 7000) g"
        )
        table.execute("CREATE PUBLICATION p FOR TABLE t")
        connection.commit()
    refusal(capture_into(table, tmp_path, streaming=streaming))
    assert keys(tmp_path) == []
    sent = b"".join(message[:1] for message in messages(tmp_path))
    assert (b"S" in sent) == (streaming == "on")
    assert not set(sent) & set(b"Cc")


@warns
def test_messages_before_it_are_delivered(table: Database) -> None:
    lost(table)
    with opened(table) as capture:
        batches = capture.batches(max_messages=2)
        received = [message for _ in range(2) for message in next(batches).data]
        assert b"".join(message[:1] for message in received) == b"BRIC"
        with pytest.raises(CaptureError, match='publication "p" does not exist'):
            next(batches)
        with pytest.raises(CaptureError, match="messages were delivered up to"):
            capture.confirm(flush_lsn(table))


@warns
def test_a_role_that_gets_no_warnings(table: Database, tmp_path: Path) -> None:
    role = table.create_role("SUPERUSER")
    table.execute(f"ALTER ROLE {role} SET client_min_messages = error")
    lost(table)
    dsn = table.server.dsn_for(table.name, role)
    refusal(LogCapture(dsn, tmp_path, slot=table.slot, publication="p"))
    with pytest.raises(CaptureError, match='publication "p" does not exist'):
        peek(dsn, slot=table.slot, publication="p")


@warns
def test_peek(table: Database) -> None:
    lost(table)
    with closing(psycopg2.connect(table.dsn)) as connection:
        begins = confirmed_by_server(table)
        with pytest.raises(CaptureError, match=f"at a change after {format_lsn(begins)}"):
            peek(connection, slot=table.slot, publication="p")
        assert len(connection.notices) == 1


def test_before_18_the_server_ends_the_stream(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with database(request.getfixturevalue("pg16")) as made:
        with_table(made)
        lost(made)
        with pytest.raises(CaptureError, match=r"(?s)an object does not exist: .*hint: A publicat"):
            capture_into(made, tmp_path).run(idle_seconds=10)
        assert keys(tmp_path) == [1]


def test_a_slot_that_is_older_than_its_publication(table: Database, tmp_path: Path) -> None:
    expected = (
        'publication "p" was created or altered after changes that replication slot '
        f'"{table.slot}" may still send: if it did not exist at one of them, the capture ends '
        "there with an error"
    )

    def found() -> list[str]:
        checked = check_server(table.dsn, publication="p", slot=table.slot)
        assert checked.is_ready
        return [each.text for each in checked.findings if each.code == "publication_age"]

    assert found() == []
    table.execute("DROP PUBLICATION p", "CREATE PUBLICATION p FOR TABLE t")
    assert found() == [expected]
    # No table was changed meanwhile, so that no row is missing.
    table.execute("INSERT INTO t VALUES (1, 'x')")
    status = capture_into(table, tmp_path).run(until_lsn="now")
    assert expected in status.notes
    assert keys(tmp_path) == [1]
    # A slot beside an older one has its horizon: then the catalog does not show it.
    table.create_slot("_beside")
    assert found() == []


def test_other_notices(table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warn_at_start(monkeypatch)
    arguments = ["--dsn", table.dsn, "--slot", table.slot, "--publication", "p"]
    arguments += ["--log", str(tmp_path), "--until-lsn", "now"]
    done = CliRunner().invoke(app, ["capture", *arguments])
    assert (done.exit_code, done.stderr) == (0, "")
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["notices"] == {"01000": 1}
    [note] = [note for note in last["notes"] if "I warn" in note]
    assert note == (
        "the server reported: I warn (PL/pgSQL function inline_code_block line 1 at RAISE)"
    )


def test_notes_are_few() -> None:
    notices = ServerNotices()
    for number in range(30):
        notices.add(Notice("01000", f"{number % 15}", f"{number % 15}", "f"))
    assert notices.notes == tuple(f"the server reported: {number}" for number in range(5, 15))
    assert notices.counts == {"01000": 30}


def test_a_listener_gives_the_notices_back(pg: Database) -> None:
    raise_one = "DO $$BEGIN RAISE WARNING 'I warn'; END$$"
    with closing(psycopg2.connect(pg.dsn)) as connection, connection.cursor() as cursor:
        for forwards in (False, True):
            with closing(NoticeListener(connection, forwards=forwards)) as listener:
                cursor.execute(raise_one)
            [(notice, place)] = listener.take()
            assert (notice.sqlstate, notice.primary, place) == ("01000", "I warn", 0)
            assert not notice.skips_publication()
            assert len(connection.notices) == forwards
        cursor.execute(raise_one)
        assert len(connection.notices) == 2


def test_a_listener_without_memory(pg: Database) -> None:
    def fail() -> int:
        raise MemoryError("no memory for a notice")

    with closing(psycopg2.connect(pg.dsn)) as connection, connection.cursor() as cursor:
        with closing(NoticeListener(connection)) as listener:
            listener.count_messages = fail
            cursor.execute("DO $$BEGIN RAISE WARNING 'I warn'; END$$")
        with pytest.raises(MemoryError, match="no memory for a notice"):
            list(listener.take())


@pytest.mark.parametrize(
    ("primary", "named"),
    [
        ('skipped loading publication "p"', '"p"'),
        ("Laden der Publikation »pq« übersprungen", '"pq"'),
        ("chargement de la publication « p » ignoré", '"p"'),
        ("パブリケーション「q.r」をスキップ", '"q.r"'),
        ("p", '"p", "pq", "q.r"'),
    ],
)
def test_in_any_language(primary: str, named: str) -> None:
    notice = Notice("55000", primary, primary, "LoadPublications")
    error = missing_publication(notice, ["p", "pq", "q.r"], 1, "s")
    assert error.primary.startswith(f"publication {named} does not exist at a change after 0/1:")
