"""Report of a real server's stream: lag by its clock, its snapshot, its schema changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pgwire_codec import log, report
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.pages import Page
from tests.support.servers import Database

pytestmark = pytest.mark.slow

_SECOND = 1_000_000


def test_a_capture_that_came_late(pg: Database, tmp_path: Path) -> None:
    pg.execute(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'before' FROM generate_series(1, 50) g",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    capture_into(pg, tmp_path, snapshot=True).run(until_lsn=flush_lsn(pg))
    pg.execute("INSERT INTO t VALUES (100, 'a')", "ALTER TABLE t ADD COLUMN price numeric(8, 2)")
    time.sleep(0.2)
    pg.execute(
        "UPDATE t SET price = 'NaN' WHERE k <= 10",
        "INSERT INTO t SELECT g, 'x', 1 FROM generate_series(200, 4000) g",  # streamed
        "TRUNCATE t",
    )
    capture_into(pg, tmp_path, streaming="on").run(until_lsn=flush_lsn(pg))
    found = report.gather(log.Log(tmp_path))
    [snapshot] = found.snapshot
    assert (snapshot.table, snapshot.inserts, snapshot.updates) == ("public.t", 50, 0)
    [count] = found.tables
    assert (count.inserts, count.updates, count.deletes, count.truncates) == (3802, 10, 0, 1)
    assert [each.changes for each in found.largest] == [3801, 10, 1, 1]
    assert (found.transactions, found.lags.known, found.lags.unknown) == (4, 4, 0)
    first, *others = sorted(found.largest, key=lambda each: each.commit_lsn)
    assert first.lag is not None
    assert 0.2 * _SECOND <= first.lag == found.lags.worst < 60 * _SECOND
    assert all(each.lag is not None and 0 <= each.lag < first.lag for each in others)
    assert [each.details for each in found.schema.first] == [(("+", "price numeric(8,2)"),)]
    assert found.problems.errors == {"unrepresentable": 10}
    shown = Page(report.render(found))
    assert shown.tables["Rows by table"][1][:2] == ["public.t", "50"]
    assert f"PostgreSQL {pg.major}." in shown.text
