"""Tables whose names have dots, capitals and quotes, from the server into a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgwire_codec import log
from tests.support.log_captures import capture_into, flush_lsn, running
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

pytestmark = pytest.mark.slow

#: Without quotes, the first two have one name.
TABLES = ('"a.b".c', 'a."b.c"', 'a."Users"', 'a."say ""hi"""', 'a."größe"')


def ids(folder: Path, table: str) -> list[int]:
    rows = (row for batch in log.Log(folder).read(table) for row in batch.to_pylist())
    return sorted(row["id"] for row in rows if row["_op"] == "I")


def test_each_table_has_its_own_rows(pg: Database, tmp_path: Path) -> None:
    """By a snapshot, by the stream, and by a copy that is asked for later."""
    pg.execute('CREATE SCHEMA "a.b"', "CREATE SCHEMA a")
    for number, table in enumerate(TABLES):
        pg.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES ({number})"
        )
    pg.execute(f"CREATE PUBLICATION p FOR TABLE {', '.join(TABLES[:-1])}")
    capture, requests = capture_into(pg, tmp_path, snapshot=True), log.TableRequests(tmp_path)
    with running(capture) as failed:
        assert wait_until(lambda: capture.status.state == "streaming")
        pg.execute(f"ALTER PUBLICATION p ADD TABLE {TABLES[-1]}")
        request = requests.add([TABLES[-1]])
        assert wait_until(lambda: requests.get(request) is None, 60.0)
        for number, table in enumerate(TABLES):
            pg.execute(f"INSERT INTO {table} VALUES ({number + 10})")
    assert not failed
    capture_into(pg, tmp_path).run(until_lsn=flush_lsn(pg))
    assert {relation.name for relation in log.Log(tmp_path).relations} == set(TABLES)
    assert {table: ids(tmp_path, table) for table in TABLES} == {
        table: [number, number + 10] for number, table in enumerate(TABLES)
    }
