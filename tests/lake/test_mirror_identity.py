"""A mirror of a table whose replica identity changes, also in the middle of a transaction."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from tests.support import build
from tests.support.build import column
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import ID, MirrorOf, Writer, in_order, relation
from tests.support.servers import database

pytest.importorskip("deltalake")

X = column("x", "int4")
BY_ID = relation(1, ID, X)
BY_X = relation(1, column("id", "int4"), column("x", "int4", key=True), identity="i")
WHOLE = relation(1, ID, column("x", "int4", key=True), identity="f")


@pytest.mark.slow
def test_altered_between_two_updates_of_a_transaction(
    mirror: MirrorOf, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The server does not send the old value of the new key: the rows cannot be found by it."""
    pytest.importorskip("psycopg2")
    with database(request.getfixturevalue("pg18")) as made:
        made.execute(
            "CREATE TABLE t (id int PRIMARY KEY, x int NOT NULL UNIQUE, v text)",
            "CREATE TABLE other (id int PRIMARY KEY)",
            "INSERT INTO t VALUES (1, 5, 'a'), (2, 6, 'b')",
            "CREATE PUBLICATION p FOR ALL TABLES",
        )

        def follow() -> dict[str, Any]:
            capture_into(made, tmp_path / "log", snapshot=True).run(until_lsn=flush_lsn(made))
            mirror.run()
            status: dict[str, Any] = mirror.status()["public.t"]
            return status

        assert follow()["state"] == "ok"
        made.execute(
            "UPDATE t SET v = 'a2' WHERE id = 1",
            "BEGIN; UPDATE t SET x = 50 WHERE id = 1; "
            "ALTER TABLE t REPLICA IDENTITY USING INDEX t_x_key; "
            "UPDATE t SET x = 60 WHERE id = 2; COMMIT",
            "INSERT INTO other VALUES (1)",
        )
        status = follow()
        assert status["state"] == "set aside"
        assert "was sent with the replica identity id, and the table has x" in status["error"]
        assert "log add-table" in status["hint"]
        # Up to the transaction before.
        assert mirror.rows("public.t") == [
            {"id": 1, "x": 5, "v": "a2"},
            {"id": 2, "x": 6, "v": "b"},
        ]
        assert mirror.rows("public.other") == [{"id": 1}]
        log.TableRequests(tmp_path / "log").add(["public.t"])
        follow()
        made.execute("UPDATE t SET v = 'b2' WHERE x = 60", "INSERT INTO t VALUES (3, 7, 'c')")
        mirror.resume("public.t")
        assert follow()["state"] == "ok"
        assert mirror.rows("public.t") == [
            {"id": 1, "x": 50, "v": "a2"},
            {"id": 2, "x": 60, "v": "b2"},
            {"id": 3, "x": 7, "v": "c"},
        ]


def begin(made: MirrorOf, writer: Writer) -> None:
    writer.commit(BY_ID, build.insert(1, "1", "5"), build.insert(1, "2", "6"))
    writer.flush()
    made.run()


UPDATE_BY_ID = build.update(1, build.row("1", "50"))
UPDATE_BY_X = build.update(1, build.row("2", "60"), key=build.row(None, "6"))


@pytest.mark.parametrize(
    "inside",
    [
        (UPDATE_BY_ID, BY_X, UPDATE_BY_X),
        (UPDATE_BY_ID, BY_X, build.insert(1, "3", "7")),
        (UPDATE_BY_ID, BY_X, UPDATE_BY_X, BY_ID),
        (BY_X, UPDATE_BY_X, BY_ID, UPDATE_BY_ID),
        (BY_X, UPDATE_BY_X, BY_ID, build.insert(1, "3", "7")),
        (UPDATE_BY_ID, WHOLE, build.insert(1, "3", "7")),
        (WHOLE, build.delete(1, old=build.row("1", "5")), BY_ID, build.insert(1, "1", "7")),
    ],
)
def test_changes_of_two_identities_in_a_transaction(
    made: MirrorOf, writer: Writer, inside: tuple[Any, ...]
) -> None:
    begin(made, writer)
    writer.commit(*inside)
    writer.flush()
    made.run()
    status = made.status()["public.t1"]
    assert (status["state"], status["commit_lsn"]) == ("set aside", 10)
    assert "commit LSN 0/14: update or delete was sent" in status["error"].replace("an ", "")
    assert made.rows("public.t1") == in_order([{"id": 1, "x": 5}, {"id": 2, "x": 6}])


def test_inserts_before_another_identity(made: MirrorOf, writer: Writer) -> None:
    """An insert has the whole row: any key finds it."""
    begin(made, writer)
    writer.commit(build.insert(1, "3", "7"), BY_X, UPDATE_BY_X)
    writer.commit(build.delete(1, key=build.row(None, "7")))
    writer.flush()
    made.run()
    assert made.status()["public.t1"]["error"] is None
    assert made.rows("public.t1") == in_order([{"id": 1, "x": 5}, {"id": 2, "x": 60}])


@pytest.mark.slow
@pytest.mark.thorough
def test_a_partition_with_another_identity_than_its_root(
    mirror: MirrorOf, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The hint's SQL mends it, and another table of the log is mirrored meanwhile."""
    pytest.importorskip("psycopg2")
    with database(request.getfixturevalue("pg18")) as made:
        made.execute(
            "CREATE TABLE t (id int, r int, code int NOT NULL, PRIMARY KEY (id, r))"
            " PARTITION BY RANGE (r)",
            "CREATE TABLE leaf (r int NOT NULL, code int NOT NULL UNIQUE, id int NOT NULL)",
            "ALTER TABLE t ATTACH PARTITION leaf FOR VALUES FROM (0) TO (10)",
            "ALTER TABLE leaf REPLICA IDENTITY USING INDEX leaf_code_key",
            "CREATE TABLE other (id int PRIMARY KEY)",
            "INSERT INTO t VALUES (1, 1, 101), (2, 1, 102)",
            "CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = true)",
        )

        def follow() -> dict[str, Any]:
            capture_into(made, tmp_path / "log", snapshot=True).run(until_lsn=flush_lsn(made))
            mirror.run()
            return {name: row for name, row in mirror.status().items() if name != "public.leaf"}

        follow()
        made.execute(
            "DELETE FROM t WHERE id = 1",
            "INSERT INTO other VALUES (1)",
        )
        status = follow()
        failed = status["public.t"]
        assert failed["state"] == "set aside"
        assert 'identity code of "public"."leaf", and the table has id, r' in failed["error"]
        assert status["public.other"]["state"] == "ok"
        (statement,) = re.findall(r"ALTER TABLE .*?;", failed["hint"])
        made.execute(statement)
        log.TableRequests(tmp_path / "log").add(["public.t"])
        follow()
        made.execute("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 1, 103)")
        mirror.resume("public.t")
        assert follow()["public.t"]["state"] == "ok"
        assert mirror.rows("public.t") == [{"id": 3, "r": 1, "code": 103}]
