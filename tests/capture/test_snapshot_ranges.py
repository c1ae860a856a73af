"""Snapshots of tables in ranges of pages: every row once, over all connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.catalog.published_tables import published_tables
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.snapshot import table_copies, table_ranges
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.capture.snapshot.progress import SnapshotProgress
from pgwire_codec.capture.snapshot.table_copies import CopiedRows, TableCopies
from pgwire_codec.capture.snapshot.table_ranges import TableRange
from tests.support.log_captures import applied, capture_into, decoded, flush_lsn, slots
from tests.support.servers import Database

pytestmark = pytest.mark.slow

ROWS = 20_000
COPYING = "query LIKE 'COPY (%%' AND state = 'active' AND datname = current_database()"
TERMINATE = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {COPYING}"


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_ranges, "_RANGE_BYTES", 1 << 20)


@pytest.fixture
def filled(pg: Database) -> Database:
    """A table of 5 MB, whose pages have gaps."""
    pg.execute(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "CREATE INDEX ON t (v)",
        "CREATE PUBLICATION p FOR TABLE t",
        f"INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS}) g",
        "DELETE FROM t WHERE k % 7 = 0",
        "VACUUM ANALYZE t",
        "UPDATE t SET v = 'u' WHERE k % 50 = 0",
    )
    return pg


@contextmanager
def under_snapshot(made: Database) -> Iterator[tuple[CopySession, list[TableRange]]]:
    """A session under a snapshot, and the ranges of the published tables."""
    with made.connect() as connection:
        exporter = connection.cursor()
        tables = published_tables(exporter, ["p"])
        exporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()")
        [(snapshot,)] = exporter.fetchall()
        session = CopySession(made.dsn, snapshot, tables, Interrupt())
        with closing(session):
            session.open()
            yield session, table_ranges.table_ranges(session.cursor(), tables)


def once(capture: LogCapture, action: Callable[[], Any]) -> None:
    """Act when the first rows have been copied; the connections are blocked meanwhile."""
    original = capture._copied
    done = False

    def act(*arguments: Any) -> None:
        nonlocal done
        if not done:
            done = True
            action()
        original(*arguments)

    capture._copied = act  # type: ignore[method-assign]


def snapshot_rows(folder: Path, table: str = "public.t") -> list[tuple[Any, ...]]:
    """Return the rows of the snapshot, in the order of their keys."""
    rows = [row for row in decoded(folder, table) if row["_xid"] == 0]
    return sorted((row["k"], row["v"]) for row in rows)


class TestRanges:
    @pytest.mark.since(14, "TID range scans")
    def test_are_read_by_their_pages(self, filled: Database) -> None:
        with under_snapshot(filled) as (session, ranges):
            [(pages,)] = filled.query("SELECT pg_relation_size('t') / 8192")
            assert len(ranges) > 4
            assert [each.planned.first_page for each in ranges[1:]] == [
                each.planned.end_page for each in ranges[:-1]
            ]
            assert (ranges[0].planned.first_page, ranges[-1].planned.end_page) == (0, None)
            assert 0 < ranges[-1].planned.first_page < pages
            for each in ranges:
                cursor = session.cursor()
                cursor.execute(f"EXPLAIN {each.query(binary=False)} OFFSET 10")
                plan = [line for (line,) in cursor.fetchall()]
                assert "Tid Range Scan" in plan[1], plan
                assert not any("Seq Scan" in line for line in plan)

    @pytest.mark.since(15, "row filters")
    def test_with_a_row_filter_that_has_an_index(self, filled: Database) -> None:
        """An index would be read once for each range, and not in the order of the pages."""
        filled.execute("ALTER PUBLICATION p SET TABLE t WHERE (k = 10)")
        with under_snapshot(filled) as (session, ranges):
            cursor = session.cursor()
            cursor.execute(f"EXPLAIN {ranges[1].query(binary=False)}")
            assert "Tid Range Scan" in cursor.fetchone()[0]

    def test_of_an_older_server(self, filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_ranges, "_FIRST_WITH_RANGES", 990000)
        with under_snapshot(filled) as (session, [whole]):
            cursor = session.cursor()
            cursor.execute(f"EXPLAIN {whole.query(binary=False)}")
            assert cursor.fetchone()[0].startswith("Seq Scan on t")

    def test_toast_counts(self, pg: Database) -> None:
        """A few pages can have large values, which are in another file."""
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, v text)",
            "ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
            "CREATE PUBLICATION p FOR TABLE t",
            "INSERT INTO t SELECT g, repeat('x', 20000) FROM generate_series(1, 300) g",
        )
        if pg.major < 14:
            pytest.skip("TID range scans came with PostgreSQL 14")
        with under_snapshot(pg) as (_, ranges):
            assert len(ranges) > 1
            assert sum(each.planned.bytes for each in ranges) > 5 << 20

    @pytest.mark.since(14, "TID range scans")
    def test_of_one_table_use_all_connections(
        self, filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        meeting = threading.Barrier(3, timeout=30)
        used: set[CopySession] = set()
        original = TableCopies._copy_range

        def meet(copies: TableCopies, session: CopySession, *arguments: Any) -> None:
            if session not in used:
                used.add(session)
                meeting.wait()
            original(copies, session, *arguments)

        monkeypatch.setattr(TableCopies, "_copy_range", meet)
        before = filled.query("SELECT k, v FROM t ORDER BY k")
        capture_into(filled, tmp_path, snapshot=True, snapshot_jobs=3).run(until_lsn=0)
        assert len(used) == 3
        assert snapshot_rows(tmp_path) == before


class TestRows:
    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    @pytest.mark.since(14, "binary")
    def test_written_while_the_table_is_copied(
        self, filled: Database, tmp_path: Path, binary: bool
    ) -> None:
        """The table grows beyond the last range, and rows move there."""
        capture = capture_into(filled, tmp_path, snapshot=True, snapshot_jobs=2, binary=binary)

        def write() -> None:
            filled.execute(
                f"INSERT INTO t SELECT g, repeat('n', 200) FROM generate_series({ROWS + 1},"
                f" {2 * ROWS}) g",
                "UPDATE t SET v = 'moved' || v WHERE k % 3 = 0",
                "DELETE FROM t WHERE k % 5 = 0",
                "VACUUM t",
            )

        once(capture, write)
        before = filled.query("SELECT k, v FROM t ORDER BY k")
        capture.run(until_lsn=0)
        assert snapshot_rows(tmp_path) == before
        capture_into(filled, tmp_path, binary=binary).run(until_lsn=flush_lsn(filled))
        found = applied(tmp_path, "public.t", "k").rows
        after = filled.query("SELECT k, v FROM t ORDER BY k")
        assert sorted((row["k"], row["v"]) for row in found.values()) == after
        assert log.verify(tmp_path).damage == ()

    def test_that_came_between_the_count_of_pages_and_the_copy(
        self, filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The count of a table's pages may be too low: the last range has no end."""
        bounds = table_ranges._bounds

        def counted_before(file: Any, version: int) -> Any:
            found = bounds(file, version)
            return [*found[: len(found) // 2], (found[len(found) // 2][0], None)]

        monkeypatch.setattr(table_ranges, "_bounds", counted_before)
        capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        assert snapshot_rows(tmp_path) == filled.query("SELECT k, v FROM t ORDER BY k")

    @pytest.mark.parametrize("may_read_partitions", [True, False])
    @pytest.mark.since(13, "publish_via_partition_root")
    def test_of_partitions_under_their_root(
        self, pg: Database, tmp_path: Path, may_read_partitions: bool
    ) -> None:
        role = pg.create_role("REPLICATION")
        pg.execute(
            "CREATE TABLE t (k int, v text) PARTITION BY RANGE (k)",
            "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (9000)",
            "CREATE TABLE high (v text, gone int, k int)",
            "ALTER TABLE high DROP COLUMN gone",
            "ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (9000) TO (90000)",
            "CREATE TABLE deep PARTITION OF t DEFAULT PARTITION BY LIST (v)",
            "CREATE TABLE deepest PARTITION OF deep DEFAULT",
            f"INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS}) g",
            "INSERT INTO t VALUES (-1, 'deep')",
            f"GRANT SELECT ON t TO {role}",
            "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root)",
        )
        if may_read_partitions:
            pg.execute(f"GRANT SELECT ON low, high, deepest TO {role}")
        dsn = pg.server.dsn_for(pg.name, role)
        capture = LogCapture(
            dsn, tmp_path, slot=pg.slot, publication="p", snapshot=True, snapshot_jobs=2
        )
        found: set[str] = set()
        original = capture._copied

        def note(writer: Any, rows: CopiedRows, progress: SnapshotProgress) -> None:
            found.add(rows.range.planned.source)
            original(writer, rows, progress)

        capture._copied = note  # type: ignore[method-assign]
        status = capture.run(until_lsn=0)
        partitions = {f"ONLY public.{name}" for name in ("low", "high", "deepest")}
        assert found == (partitions if may_read_partitions else {'"public"."t"'})
        assert snapshot_rows(tmp_path) == pg.query("SELECT k, v FROM t ORDER BY k")
        assert status.snapshot_tables == status.snapshot_tables_expected == 1


class TestLostConnection:
    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    @pytest.mark.parametrize("first_with_ranges", [140000, 990000], ids=["ranges", "whole"])
    @pytest.mark.since(14, "binary")
    def test_only_its_range_is_continued(
        self,
        filled: Database,
        tmp_path: Path,
        binary: bool,
        first_with_ranges: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(table_ranges, "_FIRST_WITH_RANGES", first_with_ranges)
        monkeypatch.setattr(table_copies, "_PIECE_BYTES", 20_000)
        capture = capture_into(
            filled, tmp_path, snapshot=True, snapshot_jobs=2, binary=binary, max_retries=0
        )
        terminated: list[int] = []

        def terminate() -> None:
            filled.execute("UPDATE t SET v = 'later' WHERE k % 2 = 0", "VACUUM t")
            terminated.extend(count for (count,) in filled.query(TERMINATE))

        once(capture, terminate)
        before = filled.query("SELECT k, v FROM t ORDER BY k")
        status = capture.run(until_lsn=0)
        assert terminated[0] > 0, "nothing was copied at that moment"
        assert snapshot_rows(tmp_path) == before
        assert status.snapshot_rows == status.snapshot_rows_expected == len(before)

    def test_again_and_again(
        self, filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each loss is retried as long as rows arrive in between."""
        monkeypatch.setattr(table_copies, "_PIECE_BYTES", 20_000)
        capture = capture_into(filled, tmp_path, snapshot=True, snapshot_jobs=1, max_retries=0)
        original, calls, lost = capture._copied, 0, 0

        def terminate(*arguments: Any) -> None:
            nonlocal calls, lost
            calls += 1
            if calls % 20 == 0:
                lost += filled.query(TERMINATE)[0][0]
            original(*arguments)

        capture._copied = terminate  # type: ignore[method-assign]
        capture.run(until_lsn=0)
        assert lost > 4
        assert snapshot_rows(tmp_path) == filled.query("SELECT k, v FROM t ORDER BY k")


class TestProgress:
    def test_of_a_table_with_statistics(self, filled: Database, tmp_path: Path) -> None:
        filled.execute("ANALYZE t")
        [(rows, size)] = filled.query("SELECT count(*), pg_table_size('t') FROM t")
        capture = capture_into(filled, tmp_path, snapshot=True)
        seen: list[tuple[int, int]] = []
        original = capture._copied

        def note(*arguments: Any) -> None:
            original(*arguments)
            seen.append((capture.status.snapshot_rows, capture.status.snapshot_rows_expected))

        capture._copied = note  # type: ignore[method-assign]
        status = capture.run(until_lsn=0)
        copied, expected = zip(*seen, strict=True)
        assert list(copied) == sorted(copied)
        assert all(abs(each - rows) < rows / 10 for each in expected)
        assert (copied[-1], expected[-1]) == (rows, rows)
        assert (status.snapshot_tables, status.snapshot_tables_expected) == (1, 1)
        assert abs(status.snapshot_bytes_expected - size) < 10
        assert status.snapshot_bytes == status.snapshot_bytes_expected

    def test_of_tables_without_statistics(self, pg: Database, tmp_path: Path) -> None:
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, v text)",
            "CREATE TABLE little (k int)",
            "CREATE TABLE nothing (k int)",
            "CREATE PUBLICATION p FOR ALL TABLES",
            "INSERT INTO little VALUES (1)",
            f"INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS}) g",
        )
        with under_snapshot(pg) as (_, ranges):
            estimated = {"t": 0.0, "little": 0.0, "nothing": 0.0}
            for each in ranges:
                estimated[each.table.relation.name] += each.planned.rows
        assert ROWS / 10 < estimated["t"] < ROWS * 10
        assert 0 < estimated["little"] < 300
        assert estimated["nothing"] == 0
        status = capture_into(pg, tmp_path, snapshot=True).run(until_lsn=0)
        assert status.snapshot_rows == status.snapshot_rows_expected == ROWS + 1
        assert status.snapshot_tables == status.snapshot_tables_expected == 3
        assert slots(pg) == [pg.slot]
