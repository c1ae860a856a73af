"""Rows are found by their keys and by filters, whatever bounds their files have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from tests.support.key_types import ALL, FEW, KeyType, texts
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import MirrorOf
from tests.support.servers import Database, database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")
pytest.importorskip("polars")

from tests.support import table_readers  # noqa: E402  (needs what may be missing)

ROOT: Final = Path(__file__).resolve().parents[2]

OPERATORS: Final = ("=", "<=", ">=")

CASES: Final = [
    pytest.param("local", FEW, id="local-few"),
    *(
        pytest.param(engine, ALL, id=f"{engine}-all", marks=pytest.mark.thorough)
        for engine in ("local", "iceberg")
    ),
]


class KeyedTables:
    """A table for each type, in a server and in a lake."""

    def __init__(self, made: Database, mirror: MirrorOf, types: Sequence[KeyType]) -> None:
        self._made = made
        self._mirror = mirror
        self._types = types
        made.execute(
            *(
                f"CREATE TABLE {each.name}"
                f" (k {each.sql} PRIMARY KEY, id int NOT NULL, v int, n {each.sql})"
                for each in types
            ),
            "CREATE PUBLICATION p FOR ALL TABLES",
        )
        capture_into(made, mirror.log, snapshot=True).run(until_lsn=flush_lsn(made))

    def insert(self, half: int) -> None:
        """Insert the values of one half, except the one that :meth:`move_key` leads to."""
        for each in self._types:
            values, middle = each.values, (len(each.values) + 1) // 2
            places = range(middle) if half == 0 else range(middle, len(values))
            rows = [
                f"('{values[place]}', {place}, 0, {self._other(each, place)})"
                for place in places
                if place != 1
            ]
            if rows:
                self._made.execute(f"INSERT INTO {each.name} VALUES {', '.join(rows)}")

    @staticmethod
    def _other(kind: KeyType, place: int) -> str:
        return f"'{kind.values[(place + 1) % len(kind.values)]}'" if place % 3 else "NULL"

    def update(self) -> None:
        self._made.execute(*(f"UPDATE {each.name} SET v = v + id + 1" for each in self._types))

    def move_key(self) -> None:
        self._made.execute(
            *(f"UPDATE {each.name} SET k = '{each.values[1]}' WHERE id = 0" for each in self._types)
        )

    def delete(self) -> None:
        """Delete the row with the highest key, and the one with the moved key."""
        for each in self._types:
            last = len(each.values) - 1
            self._made.execute(f"DELETE FROM {each.name} WHERE id IN (0, {last})")

    def follow(self) -> None:
        """Have the lake the server's rows, and compare them."""
        capture_into(self._made, self._mirror.log).run(until_lsn=flush_lsn(self._made))
        self._mirror.run()
        status = self._mirror.status()
        failed = {name: row["error"] for name, row in status.items() if row["state"] != "ok"}
        assert not failed
        for each in self._types:
            assert self._lake_rows(each) == self._server_rows(each), each.name

    def _server_rows(self, kind: KeyType) -> list[tuple[Any, ...]]:
        key, other = kind.shown.format("k"), kind.shown.format("n")
        rows = self._made.query(
            f"SELECT id, v, {key}, CASE WHEN n IS NOT NULL THEN {other} END FROM {kind.name}"
        )
        return sorted((row[0], row[1], *map(_shown, row[2:])) for row in rows)

    def _lake_rows(self, kind: KeyType) -> list[tuple[Any, ...]]:
        rows = self.lake_table(kind)
        columns = (
            rows["id"].to_pylist(),
            rows["v"].to_pylist(),
            texts(rows["k"]),
            texts(rows["n"]),
        )
        return sorted(zip(*columns, strict=True))

    def lake_table(self, kind: KeyType) -> pa.Table:
        """All rows of a table of the lake."""
        return self._mirror.table(f"public.{kind.name}")

    def queries(self) -> Iterator[tuple[KeyType, str, str, pa.Scalar | None, int, int]]:
        """Type, column, operator, value, number of the server's rows, and of those without NaN."""
        with self._made.connect() as connection:
            cursor = connection.cursor()

            def count(table: str, condition: str) -> int:
                cursor.execute(f"SELECT count(*) FROM {table} WHERE {condition}")
                return int(cursor.fetchone()[0])

            for each in self._types:
                rows = self.lake_table(each)
                for column in ("k", "n"):
                    nulls = count(each.name, f"{column} IS NULL")
                    yield each, column, "=", None, nulls, nulls
                    is_text = pa.types.is_string(rows[column].type)
                    for id_, value in zip(rows["id"].to_pylist(), rows[column], strict=True):
                        if not value.is_valid:
                            continue
                        same = f"(SELECT {column} FROM {each.name} WHERE id = {id_})"
                        found = column
                        if is_text:  # as which readers compare it
                            found = f'{each.shown.format(column)} COLLATE "C"'
                            same = each.shown.format(same)
                        number = f"AND {column} <> 'NaN' AND {same} <> 'NaN'"
                        for operator in OPERATORS:
                            condition = f"{found} {operator} {same}"
                            rows_found = count(each.name, condition)
                            without = rows_found
                            if each.is_floating:
                                without = count(each.name, f"{condition} {number}")
                            yield each, column, operator, value, rows_found, without


@pytest.fixture(scope="module")
def duckdb() -> Iterator[table_readers.DuckDb]:
    """DuckDB with its extension for Delta, which only an older release has."""
    tool = [ROOT / "tools/duckdb-environment", sys.executable]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    with table_readers.DuckDb(str(ROOT / done.stdout.strip())) as reader:
        yield reader


def _shown(value: Any) -> str | None:
    return None if value is None else str(value)


@pytest.mark.parametrize(("engine", "types"), CASES, indirect=["engine"])
def test_keys_and_filters(
    mirror: MirrorOf, request: pytest.FixtureRequest, engine: str, types: Sequence[KeyType]
) -> None:
    """Of values that differ in the last digit, in turns of their own."""
    with database(request.getfixturevalue("pg18")) as made:
        tables = KeyedTables(made, mirror, types)
        tables.insert(0)
        tables.follow()
        tables.insert(1)
        tables.follow()
        tables.update()
        tables.follow()
        tables.update()
        tables.follow()
        if engine == "iceberg":
            _check_with_spark(request.getfixturevalue("spark"), mirror, tables)
        else:
            _check_with_readers(request, mirror, tables, is_thorough=types is ALL)
        tables.move_key()
        tables.follow()
        tables.delete()
        tables.follow()


def _check_with_readers(
    request: pytest.FixtureRequest, mirror: MirrorOf, tables: KeyedTables, is_thorough: bool
) -> None:
    readers: list[Any] = [table_readers.Polars(), table_readers.DeltaRs()]
    if is_thorough:
        readers.append(request.getfixturevalue("duckdb"))
    wrong = []
    number = 0
    for kind, column, operator, value, expected, _ in tables.queries():
        for reader in readers:
            path = mirror.lake / "public" / kind.name
            count = reader.count(path, column, operator, value)
            number += 1
            if count != expected:
                wrong.append((reader.name, kind.name, column, operator, value, count, expected))
    assert number > 300
    assert not wrong, "\n".join(map(str, wrong))


def _check_with_spark(spark: SparkSession, mirror: MirrorOf, tables: KeyedTables) -> None:
    wrong = []
    for kind, column, operator, value, expected, _ in tables.queries():
        rows = spark.table(mirror.name(f"public.{kind.name}"))
        condition = f"{column} IS NULL"
        if value is not None:
            of_column = rows.schema[column].dataType.simpleString()
            condition = f"{column} {operator} {table_readers.spark_literal(value, of_column)}"
        count = rows.where(condition).count()
        if count != expected:
            wrong.append((kind.name, condition, count, expected))
    assert not wrong, "\n".join(map(str, wrong))
