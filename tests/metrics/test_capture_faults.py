"""Metrics of a capture, each under the fault that it is for, beside the server's own word."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from pgwire_codec.log.local_store import LocalAppender
from pgwire_codec.metrics import capture_metrics
from pgwire_codec.metrics import instruments as i
from tests.capture.test_log import running
from tests.support.log_captures import capture_into, flush_lsn, messages, warn_at_start
from tests.support.metric_pages import Page, Served, served
from tests.support.servers import QUICK_AND_STEADY, Database, TemporaryServer, database, with_table
from tests.support.slot_captures import confirmed_by_server, tags, wait_until

pytestmark = pytest.mark.slow

#: Instruments that a test of this file sees moving.
MOVED: set[i.Instrument] = set()

Test = Callable[..., None]


def moves(*instruments: i.Instrument) -> Callable[[Test], Test]:
    MOVED.update(instruments)
    return lambda test: test


def test_every_instrument_has_its_fault() -> None:
    assert {each.name for each in MOVED} == {
        each.name for each in i.INSTRUMENTS if ".capture." in each.name
    }


@contextmanager
def streaming(made: Database, folder: Path, **options: Any) -> Iterator[Served]:
    """A capture that streams, with its metrics."""
    capture = capture_into(made, folder, **options)
    with served(capture, made) as endpoint, running(capture):
        assert wait_until(lambda: endpoint.get("/readyz") == (200, "ok\n"))
        yield endpoint


def seen(endpoint: Served, condition: Callable[[Page], Any]) -> Page:
    """Return the first page that fulfils a condition."""
    found: list[Page] = []

    def look() -> Any:
        found[:] = [endpoint.page()]
        return condition(found[0])

    assert wait_until(look, 30), found[0].samples
    return found[0]


@moves(
    i.STATE,
    i.MESSAGES,
    i.MESSAGE_BYTES,
    i.TRANSACTIONS,
    i.LOG_BYTES,
    i.LOG_SEGMENTS,
    i.CONFIRMED_LSN,
    i.RECEIVED_LSN,
    i.SLOT_ACTIVE,
)
def test_changes_are_counted(table: Database, tmp_path: Path) -> None:
    made = table
    with streaming(made, tmp_path) as endpoint:
        before = seen(endpoint, lambda page: page.get(i.SLOT_ACTIVE) == 1)
        assert (before[i.MESSAGES], before[i.TRANSACTIONS], before[i.LOG_SEGMENTS]) == (0, 0, 0)
        assert before.get(i.STATE, state="streaming") == 1
        assert before.get(i.STATE, state="waiting") == 0
        made.execute(*(f"INSERT INTO t VALUES ({key}, 'a')" for key in range(3)))
        [(size,)] = made.query("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        page = seen(endpoint, lambda page: page[i.CONFIRMED_LSN] >= size)
        sent = messages(tmp_path)
        assert tags(sent) == b"BRICBICBIC"
        assert page[i.MESSAGES] == 10
        assert page[i.TRANSACTIONS] == 3
        assert page[i.MESSAGE_BYTES] == sum(map(len, sent))
        assert wait_until(lambda: endpoint.page()[i.CONFIRMED_LSN] == confirmed_by_server(made))
        assert page[i.RECEIVED_LSN] >= page[i.CONFIRMED_LSN] > before[i.CONFIRMED_LSN]
        assert page[i.LOG_SEGMENTS] == 1
        assert page[i.LOG_BYTES] == sum(p.stat().st_size for p in tmp_path.glob("*.arrow"))
        seen(endpoint, lambda page: page[i.LAG_BYTES] == 0)
        assert {labels["slot"] for _, labels, _ in page.samples} == {made.slot}
        assert endpoint.get("/healthz") == (200, "ok\n")
    with served(capture_into(made, tmp_path), made) as endpoint:  # not running
        seen(endpoint, lambda page: page.get(i.SLOT_ACTIVE) == 0)


@moves(i.RECONNECTS, i.ERRORS)
def test_a_killed_connection(table: Database, tmp_path: Path) -> None:
    made = table
    with streaming(made, tmp_path) as endpoint:
        before = endpoint.page()
        assert before[i.RECONNECTS] == 0
        assert before.get(i.ERRORS) is None
        made.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        page = seen(endpoint, lambda page: page[i.RECONNECTS] == 1)
        assert page.get(i.ERRORS, code="57P01") == 1  # admin_shutdown


@moves(i.NOTICES)
def test_warnings_of_the_server(
    table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warn_at_start(monkeypatch)
    with streaming(table, tmp_path) as endpoint:
        seen(endpoint, lambda page: page.get(i.NOTICES, code="01000") == 1)


@moves(i.STATE, i.ERRORS, i.MONITOR_AGE, i.MONITOR_ERRORS)
def test_a_server_that_cannot_be_reached(table: Database, tmp_path: Path) -> None:
    made = table
    with (
        streaming(made, tmp_path) as endpoint,
        closing(psycopg2.connect(made.server.dsn_for("postgres"))) as other,
    ):
        with without_socket(made):
            cut(other, made)
            page = seen(endpoint, lambda page: page.get(i.STATE, state="waiting"))
            assert endpoint.get("/readyz") == (503, "waiting\n")
            assert endpoint.get("/healthz") == (200, "ok\n")
            page = seen(endpoint, lambda page: page.get(i.ERRORS, code="08001"))
            assert page.get(i.STATE, state="streaming") == 0
            seen(endpoint, lambda page: (page.get(i.MONITOR_ERRORS, code="08001") or 0) > 2)
            seen(endpoint, lambda page: page[i.MONITOR_AGE] > 0.5)
        seen(endpoint, lambda page: page[i.MONITOR_AGE] < 0.5)
        seen(endpoint, lambda page: page[i.RECONNECTS] == 1)
        assert wait_until(lambda: endpoint.get("/readyz") == (200, "ok\n"))


@contextmanager
def without_socket(made: Database) -> Iterator[None]:
    """Have connections refused, as if the server had been stopped."""
    path = Path(psycopg2.extensions.parse_dsn(made.dsn)["host"]) / ".s.PGSQL.5432"
    path.rename(path.with_suffix(".gone"))
    try:
        yield
    finally:
        path.with_suffix(".gone").rename(path)


def cut(connection: Any, made: Database) -> None:
    """End all connections to a database."""
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            (made.name,),
        )


@moves(i.SYNC_DURATION, i.FLUSH_DURATION)
def test_a_slow_disk(table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table
    fsync = os.fsync
    with streaming(made, tmp_path) as endpoint:

        def commit(key: int) -> Page:
            end = flush_lsn(made)
            made.execute(f"INSERT INTO t VALUES ({key}, 'a')")
            return seen(
                endpoint,
                lambda page: page[i.TRANSACTIONS] == key and page[i.CONFIRMED_LSN] > end,
            )

        commit(1)
        before = commit(2)
        monkeypatch.setattr(os, "fsync", lambda file: (time.sleep(0.3), fsync(file)))
        page = commit(3)
    for each in (i.SYNC_DURATION, i.FLUSH_DURATION):
        assert slower(page, each, "0.25") > slower(before, each, "0.25")
        assert slower(page, each, "30.0") == 0


def slower(page: Page, histogram: i.Instrument, bound: str) -> float:
    """Return the number of times above a bucket's bound."""
    name = histogram.prometheus_name
    below, count = page.get(f"{name}_bucket", le=bound), page.get(f"{name}_count")
    assert below is not None
    assert count is not None
    assert (page.get(f"{name}_sum") or 0) > 0
    return count - below


@pytest.fixture
def limited() -> Iterator[Database]:
    """A database of a server that keeps 32 MB of WAL for a slot."""
    settings = QUICK_AND_STEADY | {"max_slot_wal_keep_size": "32MB"}
    with TemporaryServer(18, settings) as server, database(server) as made:
        yield with_table(made)


@moves(
    i.LAG_BYTES,
    i.LAG_SECONDS,
    i.STALL_SECONDS,
    i.SLOT_RETAINED,
    i.SLOT_WAL_STATUS,
    i.SLOT_SAFE_WAL_SIZE,
)
def test_a_disk_that_hangs(
    limited: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lag and WAL grow, up to the loss of the slot; the process is not healthy."""
    monkeypatch.setattr(capture_metrics, "STALLED_AFTER", 2.0)
    hanging = threading.Event()
    sync = LocalAppender.sync
    with streaming(limited, tmp_path) as endpoint:
        limited.execute("INSERT INTO t VALUES (1, 'a')")
        before = seen(endpoint, lambda page: page[i.TRANSACTIONS] == 1 and page[i.LAG_BYTES] == 0)
        assert before.get(i.SLOT_WAL_STATUS, wal_status="reserved") == 1
        assert before[i.LAG_SECONDS] == 0
        assert before[i.STALL_SECONDS] < 2

        def hang(file: LocalAppender) -> None:
            hanging.wait(60)
            sync(file)

        monkeypatch.setattr(LocalAppender, "sync", hang)
        try:
            limited.execute("INSERT INTO t VALUES (2, 'b')")
            assert wait_until(lambda: endpoint.get("/healthz")[0] == 503, 20)
            assert endpoint.get("/healthz")[1].startswith("no progress for 2 s in the state")
            page = endpoint.page()
            assert page[i.STALL_SECONDS] >= 2
            assert page[i.LAG_BYTES] > 0
            assert page[i.LAG_SECONDS] > 0
            switch_wal(limited, 3)
            page = seen(endpoint, lambda page: page.get(i.SLOT_WAL_STATUS, wal_status="unreserved"))
            [(size, held)] = limited.query(
                "SELECT safe_wal_size, pg_current_wal_flush_lsn() - restart_lsn"
                f" FROM pg_replication_slots WHERE slot_name = '{limited.slot}'"
            )
            assert page[i.SLOT_SAFE_WAL_SIZE] == size < before[i.SLOT_SAFE_WAL_SIZE]
            assert page[i.SLOT_RETAINED] == held > before[i.SLOT_RETAINED]
            switch_wal(limited, 2)
            limited.execute("CHECKPOINT")
            page = seen(endpoint, lambda page: page.get(i.SLOT_WAL_STATUS, wal_status="lost"))
            assert page.get(i.SLOT_WAL_STATUS, wal_status="unreserved") == 0
            assert page.get(i.SLOT_SAFE_WAL_SIZE) is None
        finally:
            hanging.set()


def switch_wal(made: Database, times: int) -> None:
    """Write files of 16 MB of WAL."""
    for number in range(times):
        made.execute(f"CREATE TABLE w{time.monotonic_ns()}_{number} ()", "SELECT pg_switch_wal()")


@moves(i.SNAPSHOT_ROWS, i.SNAPSHOT_TABLES)
def test_a_snapshot_that_waits(table: Database, tmp_path: Path) -> None:
    """A slot is created after the end of every transaction that has written."""
    made = table
    made.execute(
        "INSERT INTO t SELECT g, 'a' FROM generate_series(1, 1000) g",
        f"SELECT pg_drop_replication_slot('{made.slot}')",
    )
    capture = capture_into(made, tmp_path, snapshot=True)
    with made.connect() as writer, served(capture, made) as endpoint:
        cursor = writer.cursor()
        cursor.execute("BEGIN")
        cursor.execute("CREATE TABLE other ()")
        with running(capture):
            seen(endpoint, lambda page: page.get(i.STATE, state="snapshot"))
            assert endpoint.get("/readyz") == (503, "snapshot\n")
            assert endpoint.get("/healthz") == (200, "ok\n")
            page = endpoint.page()
            assert (page[i.SNAPSHOT_ROWS], page[i.SNAPSHOT_TABLES]) == (0, 0)
            cursor.execute("ROLLBACK")
            page = seen(endpoint, lambda page: page.get(i.STATE, state="streaming"))
            assert (page[i.SNAPSHOT_ROWS], page[i.SNAPSHOT_TABLES]) == (1000, 1)
            assert endpoint.get("/readyz") == (200, "ok\n")


@moves(i.ERRORS)
def test_a_full_disk(table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    capture = capture_into(made, tmp_path)
    with served(capture, made) as endpoint, running(capture) as failed:
        assert wait_until(lambda: endpoint.get("/readyz")[0] == 200)
        monkeypatch.setattr(os, "fsync", fail)
        made.execute("INSERT INTO t VALUES (1, 'a')")
        seen(endpoint, lambda page: page.get(i.ERRORS, code="ENOSPC") == 1)
        assert wait_until(lambda: failed)
    assert "No space left on device" in str(failed[0])
