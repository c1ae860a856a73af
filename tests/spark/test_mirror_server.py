"""A mirror of a real server's tables has the server's rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrored_server import SETUP, TABLES, Changes, check
from tests.support.mirrors import MirrorOf
from tests.support.servers import database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")


def test_the_tables_of_a_server(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    mirror = MirrorOf(spark, tmp_path, engine)
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
        if engine != "delta-rs":
            made.execute(
                "ALTER TABLE moved RENAME id TO number",
                "ALTER TABLE moved ALTER code TYPE bigint",
                "INSERT INTO moved VALUES (500, 5000000000, 'x')",
            )
            follow()
            check(made, mirror.rows, "n")
