"""Random schema changes of a soak, each followed by changes of the table's rows.

They are such as a mirror follows: a default's values and a renamed column's are written once more,
because the stream does not have them; see docs/howto/mirror.md. Under REPLICA IDENTITY FULL, a row
is found by these values, too, so that the mirror would set the table aside.
"""

from __future__ import annotations

import time
from contextlib import closing
from random import Random
from typing import Any

import psycopg2

from tests.crash.random_workload import passes
from tests.soak.load import KEYS

#: Tables of the load that get columns, too.
_LOADED = ("accounts", "pgbench_tellers")
_OWN = "extra_"
_MOST_TABLES = 4
_MOST_COLUMNS = 6  # that were added to a table
_SECONDS = 120.0  # in which a lock is available
#: Types of added columns, and values of them.
_TYPES = {
    "int": "{key} % 1000",
    "text": "repeat(({key} % 1000)::text, 30)",
    "numeric(12,2)": "({key} % 1000) / 7.0",
    "timestamptz": "date_trunc('second', now())",
    "boolean": "{key} % 2 = 0",
    "int[]": "ARRAY[{key} % 5, {key} % 7]::int[]",
    "jsonb": "jsonb_build_object('key', {key} % 10)",
    "uuid": "md5({key}::text)::uuid",
}
#: Types of which columns become wider ones.
_WIDER = {"integer": "bigint", "numeric(12,2)": "numeric(14,2)"}


class SchemaChanges:
    """Schema changes; no name is used twice."""

    def __init__(self, dsn: str, chance: Random) -> None:
        self._dsn = dsn
        self._chance = chance
        self._number = 0

    def apply(self) -> str:
        """Change something, and return the statement."""
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                with closing(psycopg2.connect(self._dsn)) as connection:
                    connection.autocommit = True
                    cursor = connection.cursor()
                    cursor.execute("SET lock_timeout = '1s'")
                    return self._apply(cursor)
            except psycopg2.Error as error:
                if not passes(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def _apply(self, cursor: Any) -> str:
        cursor.execute(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^{_OWN}'")
        own = sorted(name for (name,) in cursor.fetchall())
        kinds = [self._add_column] * 3 + [self._drop_column] * 2 + [self._rename_column] * 2
        kinds += [self._widen_column] * 2
        if own:
            kinds.append(self._change_identity)
        if len(own) > 1:
            kinds.append(self._drop_table)
        if len(own) < _MOST_TABLES:
            kinds += [self._create_table] * (1 if own else 100)
        return self._chance.choice(kinds)(cursor, own)

    def _create_table(self, cursor: Any, own: list[str]) -> str:
        table = f"{_OWN}{self._next()}"
        statement = f"CREATE TABLE {table} (id int PRIMARY KEY, v text)"
        cursor.execute(statement)
        cursor.execute(f"INSERT INTO {table} SELECT g, 'row ' || g FROM generate_series(1, 200) g")
        return statement

    def _drop_table(self, cursor: Any, own: list[str]) -> str:
        statement = f"DROP TABLE {self._chance.choice(own)}"
        cursor.execute(statement)
        return statement

    def _add_column(self, cursor: Any, own: list[str]) -> str:
        table = self._chance.choice([*own, *_LOADED])
        key = KEYS.get(table, "id")
        if len(self._added(cursor, table)) >= _MOST_COLUMNS:
            return self._drop_column(cursor, [table])
        column, kind = f"s{self._next()}", self._chance.choice(list(_TYPES))
        statement = f"ALTER TABLE {table} ADD COLUMN {column} {kind}"
        if self._chance.random() < 0.3 and not self._is_full(cursor, table):
            statement += f" DEFAULT {_TYPES[kind].format(key=12345)}"
            cursor.execute(f"BEGIN; {statement}; UPDATE {table} SET {column} = {column}; COMMIT")
        else:
            value = _TYPES[kind].format(key=key)
            cursor.execute(statement)
            cursor.execute(f"UPDATE {table} SET {column} = {value} WHERE {key} % 3 = 0")
        return statement

    def _drop_column(self, cursor: Any, own: list[str]) -> str:
        found = [
            (table, column) for table in {*own, *_LOADED} for column in self._added(cursor, table)
        ]
        if not found:
            return self._add_column(cursor, own)
        table, column = self._chance.choice(sorted(found))
        statement = f"ALTER TABLE {table} DROP COLUMN {column}"
        cursor.execute(statement)
        key = KEYS.get(table, "id")
        cursor.execute(f"UPDATE {table} SET {key} = {key} WHERE {key} % 5 = 0")
        return statement

    def _rename_column(self, cursor: Any, own: list[str]) -> str:
        tables = [each for each in (*own, "pgbench_tellers") if not self._is_full(cursor, each)]
        found = [(table, column) for table in tables for column in self._added(cursor, table)]
        if not found:
            return self._add_column(cursor, own)
        table, column = self._chance.choice(sorted(found))
        name = f"s{self._next()}"
        statement = f"ALTER TABLE {table} RENAME COLUMN {column} TO {name}"
        cursor.execute(f"BEGIN; {statement}; UPDATE {table} SET {name} = {name}; COMMIT")
        return statement

    def _widen_column(self, cursor: Any, own: list[str]) -> str:
        found = []
        for table in (*own, *_LOADED):
            cursor.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attname = ANY(%s)",
                (table, self._added(cursor, table)),
            )
            found += [(table, *row) for row in cursor.fetchall() if row[1] in _WIDER]
        if not found:
            return self._add_column(cursor, own)
        table, column, kind = self._chance.choice(sorted(found))
        statement = f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {_WIDER[kind]}"
        cursor.execute(statement)
        key = KEYS.get(table, "id")
        cursor.execute(f"UPDATE {table} SET {key} = {key} WHERE {key} % 7 = 0")
        return statement

    def _change_identity(self, cursor: Any, own: list[str]) -> str:
        table = self._chance.choice(own)
        identity = self._chance.choice(["FULL", "DEFAULT"])
        statement = f"ALTER TABLE {table} REPLICA IDENTITY {identity}"
        cursor.execute(statement)
        cursor.execute(f"UPDATE {table} SET v = v || '.' WHERE id % 2 = 0")
        cursor.execute(f"DELETE FROM {table} WHERE id = {self._chance.randint(1, 200)}")
        return statement

    def _is_full(self, cursor: Any, table: str) -> bool:
        cursor.execute("SELECT relreplident FROM pg_class WHERE oid = %s::regclass", (table,))
        return bool(cursor.fetchone()[0] == "f")

    def _added(self, cursor: Any, table: str) -> list[str]:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped AND attname ~ '^s[0-9]+$' ORDER BY attnum",
            (table,),
        )
        return [name for (name,) in cursor.fetchall()]

    def _next(self) -> int:
        self._number += 1
        return self._number
