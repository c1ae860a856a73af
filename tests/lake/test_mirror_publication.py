"""A mirror of a publication whose list of columns changes: no value goes to another column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import MirrorOf, Row
from tests.support.servers import database

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")


@pytest.mark.slow
def test_lists_of_columns(mirror: MirrorOf, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Of the same types, as a rename would look: a value is the server's, or null."""
    with database(request.getfixturevalue("pg18")) as made:
        made.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text, c text, d text)",
            "INSERT INTO t VALUES (1, 'b1', 'c1', 'd1'), (2, 'b2', 'c2', 'd2')",
            "CREATE PUBLICATION p FOR TABLE t (a, b, d)",
        )

        def follow(*statements: str, lacks: str = "") -> list[Row]:
            """Mirror changes, and return the rows by key. Some lack values of columns."""
            made.execute(*statements)
            capture_into(made, tmp_path / "log", snapshot=True).run(until_lsn=flush_lsn(made))
            mirror.run()
            status = mirror.status()["public.t"]
            assert {each.partition(" ")[0] for each in status["incomplete"]} == set(lacks)
            assert (status["state"], status["error"]) == ("incomplete" if lacks else "ok", None)
            [(server,)] = made.query("SELECT json_object_agg(a, to_json(t)) FROM t")
            found = sorted(mirror.rows("public.t"), key=lambda row: row["a"])
            for row in found:
                expected = server[str(row["a"])]
                for name in row.keys() & expected.keys():
                    assert row[name] in (None, expected[name]), name
            return found

        assert follow() == [
            {"a": 1, "b": "b1", "d": "d1"},
            {"a": 2, "b": "b2", "d": "d2"},
        ]
        assert follow(
            "UPDATE t SET b = 'b3' WHERE a = 2",
            "ALTER PUBLICATION p SET TABLE t (a, c, d)",
            "UPDATE t SET c = 'c3' WHERE a = 1",
            lacks="c",
        ) == [
            {"a": 1, "b": None, "d": "d1", "c": "c3"},
            {"a": 2, "b": "b3", "d": "d2", "c": None},
        ]
        # The new value of b was not sent, but the rows were.
        assert follow(
            "UPDATE t SET b = 'b4'",
            "ALTER PUBLICATION p SET TABLE t",
            "UPDATE t SET d = 'd3' WHERE a = 1",
            lacks="b",
        ) == [
            {"a": 1, "b": "b4", "d": "d3", "c": "c3"},
            {"a": 2, "b": None, "d": "d2", "c": "c2"},
        ]
        assert follow(
            "BEGIN; ALTER TABLE t DROP COLUMN d; ALTER TABLE t ADD COLUMN e text; "
            "UPDATE t SET e = 'e1' WHERE a = 1; COMMIT",
            "ALTER TABLE t RENAME COLUMN b TO f",
            "UPDATE t SET f = 'f1' WHERE a = 1",
            lacks="ef",
        ) == [
            {"a": 1, "b": None, "d": None, "c": "c3", "e": "e1", "f": "f1"},
            {"a": 2, "b": None, "d": "d2", "c": "c2", "e": None, "f": None},
        ]
