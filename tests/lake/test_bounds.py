"""Rows are found by their keys and by filters, whatever bounds their files have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.support.key_types import ALL, FEW, KeyType, texts
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import MirrorOf
from tests.support.servers import Database, database

pytestmark = pytest.mark.slow

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")
pytest.importorskip("polars")

from tests.support import table_readers  # noqa: E402  (needs what may be missing)

#: Operators of filters: the other ones are asked for by thorough tests.
FEW_OPERATORS: Final = ("=", "<", ">")

#: Types of a thorough test: on Spark, each turn costs seconds.
_PART: Final = 4

CASES: Final = [
    pytest.param("local", FEW, id="local-few"),
    *(
        pytest.param(
            engine, part, id=f"{engine}-{part[0].name}-{part[-1].name}", marks=pytest.mark.thorough
        )
        for engine in ("local", "delta", "iceberg")
        for part in (ALL[start : start + _PART] for start in range(0, len(ALL), _PART))
    ),
]


class KeyedTables:
    """A table for each type, in a server and in a lake."""

    def __init__(self, made: Database, mirror: MirrorOf, types: Sequence[KeyType]) -> None:
        self._made = made
        self._mirror = mirror
        self.types = types
        made.execute(
            *(
                f"CREATE TABLE {each.name}"
                f" (k {each.sql} PRIMARY KEY, id int NOT NULL, v int, n {each.sql})"
                for each in types
            ),
            "CREATE PUBLICATION p FOR ALL TABLES",
        )
        capture_into(made, mirror.log, snapshot=True).run(until_lsn=flush_lsn(made))

    @property
    def places(self) -> range:
        """Places of values of the type with the most of them."""
        return range(max(len(each.values) for each in self.types))

    def insert(self, place: int) -> None:
        """Insert the values at a place, except the one that :meth:`move_key` leads to."""
        for each in self.types:
            if place != 1 and place < len(each.values):
                self._made.execute(
                    f"INSERT INTO {each.name}"
                    f" VALUES ('{each.values[place]}', {place}, 0, {self._other(each, place)})"
                )

    @staticmethod
    def _other(kind: KeyType, place: int) -> str:
        return f"'{kind.values[(place + 1) % len(kind.values)]}'" if place % 3 else "NULL"

    def update(self) -> None:
        self._made.execute(*(f"UPDATE {each.name} SET v = v + id + 1" for each in self.types))

    def move_key(self) -> None:
        self._made.execute(
            *(f"UPDATE {each.name} SET k = '{each.values[1]}' WHERE id = 0" for each in self.types)
        )

    def delete(self) -> None:
        """Delete the row with the highest key, and the one with the moved key."""
        for each in self.types:
            last = len(each.values) - 1
            self._made.execute(f"DELETE FROM {each.name} WHERE id IN (0, {last})")

    def follow(self) -> None:
        """Have the lake the server's rows, and compare them."""
        capture_into(self._made, self._mirror.log).run(until_lsn=flush_lsn(self._made))
        self._mirror.run()
        status = self._mirror.status()
        failed = {name: row["error"] for name, row in status.items() if row["state"] != "ok"}
        assert not failed
        for each in self.types:
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

    def place(self, kind: KeyType, reader: Any) -> Path | str:
        """Folder of a table, or its name in Spark's catalog."""
        if self._mirror.engine == "iceberg" and isinstance(reader, table_readers.Spark):
            return self._mirror.name(f"public.{kind.name}")
        return self._mirror.lake / "public" / kind.name

    def queries(
        self, operators: Iterable[str]
    ) -> Iterator[tuple[KeyType, str, str, pa.Scalar | None, int, int]]:
        """Type, column, operator, value, number of the server's rows, and of those without NaN."""
        with self._made.connect() as connection:
            cursor = connection.cursor()

            def count(table: str, condition: str) -> int:
                cursor.execute(f"SELECT count(*) FROM {table} WHERE {condition}")
                return int(cursor.fetchone()[0])

            for each in self.types:
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
                        for operator in operators:
                            condition = f"{found} {operator} {same}"
                            rows_found = count(each.name, condition)
                            without = rows_found
                            if each.is_floating:
                                without = count(each.name, f"{condition} {number}")
                            yield each, column, operator, value, rows_found, without


def _shown(value: Any) -> str | None:
    return None if value is None else str(value)


@pytest.mark.parametrize(("engine", "types"), CASES, indirect=["engine"])
def test_keys_and_filters(
    mirror: MirrorOf, request: pytest.FixtureRequest, types: Sequence[KeyType]
) -> None:
    """Of values that differ in the last digit, in files of one row, and in those of all rows."""
    with database(request.getfixturevalue("pg18")) as made, ExitStack() as stack:
        tables = KeyedTables(made, mirror, types)
        for place in tables.places:
            tables.insert(place)
            tables.follow()
        readers = _readers(request, mirror.engine, stack, is_thorough=types is not FEW)
        operators = FEW_OPERATORS if types is FEW else table_readers.OPERATORS
        _check(tables, readers, operators)
        tables.update()
        tables.follow()
        tables.update()
        tables.follow()
        _check(tables, readers, FEW_OPERATORS)
        tables.move_key()
        tables.follow()
        tables.delete()
        tables.follow()


def _readers(
    request: pytest.FixtureRequest, engine: str, stack: ExitStack, *, is_thorough: bool
) -> list[Any]:
    if engine == "local":
        readers = [table_readers.Polars(), table_readers.DeltaRs()]
        return [*readers, stack.enter_context(table_readers.DuckDb())] if is_thorough else readers
    spark = table_readers.Spark(request.getfixturevalue("spark"))
    if engine == "delta":
        return [spark]
    return [spark, stack.enter_context(table_readers.PyIceberg())]


def _check(tables: KeyedTables, readers: Sequence[Any], operators: Iterable[str]) -> None:
    wrong = []
    number = 0
    for kind, queries in groupby(tables.queries(operators), lambda query: query[0]):
        _, *columns = zip(*queries, strict=True)
        filters, counts = [*zip(*columns[:3], strict=True)], columns[3:]
        for reader in readers:
            # To PyArrow, NaN is neither equal to nor greater than a number.
            expected = counts[1 if reader.name == "pyiceberg" else 0]
            found = reader.counts(tables.place(kind, reader), filters)
            number += len(found)
            for each in zip(filters, found, expected, strict=True):
                if each[1] != each[2]:
                    wrong.append((reader.name, kind.name, *each))
    assert number > 10 * len(tables.types)
    assert not wrong, "\n".join(map(str, wrong))
