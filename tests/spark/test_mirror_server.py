"""A mirror of a real server's tables has the server's rows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import MirrorOf
from tests.support.servers import Database, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")

TABLES = {
    "keyed": "id int PRIMARY KEY, v text, note text, n numeric(10, 2)",
    "pairs": "a int, b int, v text, PRIMARY KEY (a, b)",
    "bag": "v int, w text",
    "moved": "id int PRIMARY KEY, code int NOT NULL, v text",
}


class Changes:
    """Random changes to the tables; each is a transaction."""

    def __init__(self, made: Database, seed: int) -> None:
        self._made = made
        self._random = Random(seed)

    def apply(self, count: int) -> None:
        statements = {
            self._insert: 5, self._update: 5, self._key: 3, self._delete: 2, self._truncate: 0.1,
        }  # fmt: skip
        chosen = self._random.choices(list(statements), list(statements.values()), k=count)
        self._made.execute(*(statement() for statement in chosen))

    def _some(self) -> int:
        return self._random.randrange(30)

    def _text(self) -> str:
        return self._random.choice(["NULL", f"'{self._some()}'", f"repeat('{self._some()}', 3000)"])

    def _insert(self) -> str:
        one, two, text = self._some(), self._some(), self._text()
        return self._random.choice(
            [
                f"INSERT INTO keyed (id, v, note) VALUES ({one}, '{two}', {text})"
                f" ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                f"INSERT INTO pairs VALUES ({one}, {two}, {text}) ON CONFLICT DO NOTHING",
                f"INSERT INTO bag VALUES ({one % 3}, '{two % 2}')",
                f"INSERT INTO moved VALUES ({one}, {two + 1000 * one}, {text})"
                " ON CONFLICT DO NOTHING",
            ]
        )

    def _update(self) -> str:
        one, two = self._some(), self._some()
        return self._random.choice(
            [
                f"UPDATE keyed SET v = '{two}' WHERE id < {one}",
                f"UPDATE pairs SET v = {self._text()} WHERE a = {one}",
                f"UPDATE bag SET w = '{two % 2}' WHERE v = {one % 3}",
                f"UPDATE moved SET v = {self._text()} WHERE id > {one}",
            ]
        )

    def _key(self) -> str:
        one = self._some()
        return self._random.choice(
            [
                f"UPDATE keyed SET id = -id - 100 WHERE id = {one}",
                f"UPDATE pairs SET a = -a - 100 WHERE b = {one} AND a >= 0",
                f"UPDATE moved SET id = -id - 100, code = -code - 1 WHERE id = {one}",
            ]
        )

    def _delete(self) -> str:
        table = self._random.choice(
            ["keyed WHERE id", "pairs WHERE b", "bag WHERE v", "moved WHERE id"]
        )
        return f"DELETE FROM {table} = {self._some()}"

    def _truncate(self) -> str:
        return f"TRUNCATE {self._random.choice(['keyed', 'pairs', 'bag'])}"


def rows(found: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found)


def check(made: Database, mirror: MirrorOf, *without: str) -> None:
    """Compare the tables; columns ``without`` were dropped on the server."""
    for name in TABLES:
        columns = [
            column
            for (column,) in made.query(
                "SELECT attname::text FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
                f" AND attrelid = '{name}'::regclass ORDER BY attnum"
            )
        ]
        expected = [
            dict(zip(columns, row, strict=True)) for row in made.query(f"SELECT * FROM {name}")
        ]
        found = mirror.rows(f"public.{name}")
        for row in found:
            for column in without:
                row.pop(column, None)
        assert rows(found) == rows(expected), name


def test_the_tables_of_a_server(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    mirror = MirrorOf(spark, tmp_path, engine)
    with database(request.getfixturevalue("pg18")) as made:
        for name, columns in TABLES.items():
            made.execute(f"CREATE TABLE {name} ({columns})")
        made.execute(
            "ALTER TABLE keyed ALTER note SET STORAGE EXTERNAL",
            "ALTER TABLE pairs ALTER v SET STORAGE EXTERNAL",
            "ALTER TABLE bag REPLICA IDENTITY FULL",
            "CREATE UNIQUE INDEX code ON moved (code)",
            "INSERT INTO keyed SELECT n, n, repeat('long', 1000), n FROM generate_series(0, 20) n",
            "INSERT INTO bag SELECT n % 3, n % 2 FROM generate_series(0, 20) n",
            "CREATE PUBLICATION p FOR ALL TABLES",
        )

        def follow() -> None:
            capture = capture_into(made, tmp_path / "log", snapshot=True)
            capture.run(until_lsn=flush_lsn(made))
            mirror.run()
            aside = {row["table"]: row["error"] for row in mirror.status().values()}
            assert not any(aside.values()), aside

        changes = Changes(made, 5)
        follow()
        changes.apply(60)
        follow()
        check(made, mirror)
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
        check(made, mirror, "n")
        assert mirror.rows("public.later") == [{"id": 1}, {"id": 2}]
        if engine == "delta-spark":
            made.execute(
                "ALTER TABLE moved RENAME id TO number",
                "ALTER TABLE moved ALTER code TYPE bigint",
                "INSERT INTO moved VALUES (500, 5000000000, 'x')",
            )
            follow()
            check(made, mirror, "n")
