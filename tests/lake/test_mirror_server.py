"""A mirror of a real server's tables has the server's rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgwire_codec import log
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrored_server import SETUP, TABLES, Changes, check
from tests.support.mirrors import MirrorOf, in_order
from tests.support.servers import database

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")


@pytest.mark.slow
def test_the_tables_of_a_server(
    mirror: MirrorOf, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with database(request.getfixturevalue("pg18")) as made:
        made.execute(*SETUP)

        def follow() -> None:
            capture = capture_into(made, tmp_path / "log", snapshot=True)
            capture.run(until_lsn=flush_lsn(made))
            mirror.run(on_schema_change="rename")
            aside = {row["table"]: row["error"] for row in mirror.status().values()}
            assert not any(aside.values()), aside

        changes = Changes(made, 5)
        follow()
        changes.apply(60)
        follow()
        check(made, mirror.rows)
        made.execute(
            "ALTER TABLE keyed ADD COLUMN more int",
            "ALTER TABLE pairs ADD COLUMN more text",
            "ALTER TABLE moved REPLICA IDENTITY USING INDEX code",
            "ALTER TABLE keyed DROP COLUMN n",
        )
        changes.apply(30)
        made.execute(
            "UPDATE keyed SET more = id WHERE id % 2 = 0",
            "CREATE TABLE later (id int PRIMARY KEY)",
            "INSERT INTO later VALUES (1), (2)",
            "DROP TABLE pairs",
            f"CREATE TABLE pairs ({TABLES['pairs']}, other uuid)",
        )
        changes.apply(30)
        follow()
        check(made, mirror.rows, "n")
        assert mirror.rows("public.later") == [{"id": 1}, {"id": 2}]
        if mirror.engine != "local":
            made.execute(
                "ALTER TABLE moved RENAME id TO number",
                "ALTER TABLE moved ALTER code TYPE bigint",
                "INSERT INTO moved VALUES (500, 5000000000, 'x')",
            )
            follow()
            check(made, mirror.rows, "n")


@pytest.mark.slow
def test_a_table_that_is_published_later(
    mirror: MirrorOf, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Its rows of before are missing, also those that an update needs, until they are copied."""
    with database(request.getfixturevalue("pg18")) as made:
        made.execute(
            "CREATE TABLE first (id int PRIMARY KEY)",
            "CREATE TABLE later (id int PRIMARY KEY, v int, note text)",
            "ALTER TABLE later ALTER note SET STORAGE EXTERNAL",
            "INSERT INTO later SELECT n, n, repeat('x', 3000) FROM generate_series(1, 20) n",
            "CREATE PUBLICATION p FOR TABLE first",
        )

        def follow() -> None:
            capture = capture_into(made, tmp_path / "log", snapshot=True)
            capture.run(until_lsn=flush_lsn(made))
            mirror.run()

        def expected() -> list[dict[str, object]]:
            names = ("id", "v", "note")
            rows = made.query("SELECT * FROM later")
            return in_order([dict(zip(names, row, strict=True)) for row in rows])

        follow()
        made.execute("ALTER PUBLICATION p ADD TABLE later", "UPDATE later SET v = -v WHERE id < 5")
        follow()
        assert mirror.status()["public.later"]["state"] == "set aside"
        log.TableRequests(tmp_path / "log").add(["public.later"])
        made.execute("DELETE FROM later WHERE id = 7", "INSERT INTO first VALUES (1)")
        follow()
        mirror.resume("public.later")
        follow()
        assert mirror.rows("public.later") == expected()
        made.execute("UPDATE later SET v = -v WHERE id > 15")
        log.TableRequests(tmp_path / "log").add(["public.later"])
        follow()
        assert mirror.rows("public.later") == expected()
        assert mirror.status()["public.later"]["error"] is None
        assert mirror.rows("public.first") == [{"id": 1}]
