"""Tables of a server for mirrors: random changes to them, and comparison with the server's rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.support.servers import Database

TABLES: Final = {
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


#: The tables with rows, large values, and replica identities of all kinds.
SETUP: Final = (
    *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()),
    "ALTER TABLE keyed ALTER note SET STORAGE EXTERNAL",
    "ALTER TABLE pairs ALTER v SET STORAGE EXTERNAL",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "CREATE UNIQUE INDEX code ON moved (code)",
    "INSERT INTO keyed SELECT n, n, repeat('long', 1000), n FROM generate_series(0, 20) n",
    "INSERT INTO bag SELECT n % 3, n % 2 FROM generate_series(0, 20) n",
    "CREATE PUBLICATION p FOR ALL TABLES",
)


def _texts(found: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found)


def check(made: Database, mirrored: Callable[[str], list[dict[str, Any]]], *without: str) -> None:
    """Compare the tables with those of a mirror; columns ``without`` were dropped on the server."""
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
        found = mirrored(f"public.{name}")
        for row in found:
            for column in without:
                row.pop(column, None)
        assert _texts(found) == _texts(expected), name
