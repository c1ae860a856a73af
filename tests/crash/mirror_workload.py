"""A random workload for mirrors: changes of rows, columns, identities and tables."""

from __future__ import annotations

import threading
from contextlib import suppress
from random import Random
from typing import Any

import psycopg2

from tests.support import mirrored_server
from tests.support.mirrored_server import TABLES
from tests.support.servers import Database

#: A row of the journal that is applied twice is there twice: it has no key.
SETUP = (
    *mirrored_server.SETUP,
    "CREATE TABLE journal (note text, number int)",
    "ALTER TABLE journal REPLICA IDENTITY NOTHING",
)

_MOST_TABLES = 3
_ROWS_AT_ONCE = 400
_FIRST_OF_MANY = 100_000


class MirrorWorkload:
    """Changes by one session, until the ``with`` block ends.

    ``committed`` counts its transactions. ``replaces``: also tables by others of their names.
    """

    def __init__(self, made: Database, seed: int, *, replaces: bool = True) -> None:
        self.committed = 0
        self._made = made
        self._random = Random(seed)
        self._changes = mirrored_server.Changes(made, seed)
        self._replaces = replaces
        self._columns: list[tuple[str, str]] = []
        self._narrow: list[tuple[str, str]] = []  # columns of a type that can become wider
        self._number = 0
        self._tables = 0
        self._stopping = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="workload")

    def __enter__(self) -> MirrorWorkload:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the workload hangs"
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._random.expovariate(3)):
                for _ in range(self._random.randint(1, 15)):
                    self._change()
                self._execute(f"INSERT INTO journal VALUES ('x', {self.committed % 100})")
                if self._random.random() < 0.15:
                    kinds: list[Any] = [self._add, self._drop, self._identity, self._many]
                    kinds += [self._widen, self._create, self._replace]
                    weights = [4, 2, 1, 2, 2, 1, 0.5 * self._replaces]
                    self._random.choices(kinds, weights)[0]()
        except Exception as error:  # noqa: BLE001  (raised by the workload)
            self._failed = error

    def _change(self) -> None:
        # The new key of a row can exist already.
        with suppress(psycopg2.errors.UniqueViolation):
            self._changes.apply(1)
            self.committed += 1

    def _execute(self, *statements: str) -> None:
        self._made.execute(*statements)
        self.committed += len(statements)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _add(self) -> None:
        table, number = self._random.choice(list(TABLES)), self._next()
        kind = self._random.choice(["int", "text", "numeric(8, 3)", "timestamptz", "int[]"])
        self._columns.append((table, f"c{number}"))
        if kind == "int":
            self._narrow.append((table, f"c{number}"))
        value = {"timestamptz": "now()", "int[]": "'{1,NULL}'"}.get(kind, f"'{number}'")
        self._execute(
            f"ALTER TABLE {table} ADD COLUMN c{number} {kind}",
            f"UPDATE {table} SET c{number} = {value} WHERE length(v::text) = 1",
        )

    def _drop(self) -> None:
        if self._columns:
            place = self._random.randrange(len(self._columns))
            table, column = self._columns.pop(place)
            self._narrow = [each for each in self._narrow if each != (table, column)]
            self._execute(f"ALTER TABLE {table} DROP COLUMN {column}")

    def _widen(self) -> None:
        if self._narrow:
            table, column = self._narrow.pop()
            self._execute(
                f"ALTER TABLE {table} ALTER COLUMN {column} TYPE bigint",
                f"UPDATE {table} SET {column} = {1 << 40} WHERE length(v::text) = 1",
            )

    def _identity(self) -> None:
        identity = self._random.choice(["USING INDEX code", "DEFAULT", "FULL"])
        self._execute(f"ALTER TABLE moved REPLICA IDENTITY {identity}")

    def _many(self) -> None:
        """Write a transaction that is streamed where that is asked for."""
        first = _FIRST_OF_MANY + _ROWS_AT_ONCE * self._next()
        self._execute(
            "INSERT INTO keyed (id, v, note) SELECT n, n, repeat('x', 100)"
            f" FROM generate_series({first}, {first + _ROWS_AT_ONCE - 1}) n",
            f"DELETE FROM keyed WHERE id >= {first} AND id % 3 = 0",
        )

    def _create(self) -> None:
        if self._tables < _MOST_TABLES:
            self._tables += 1
            name = f"later_{self._tables}"
            self._execute(
                f"CREATE TABLE {name} (id int PRIMARY KEY, v text)",
                f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 20) n",
                f"UPDATE {name} SET v = 'x', id = id + 100 WHERE id > 10",
            )

    def _replace(self) -> None:
        """Replace a table by another one of the same name."""
        self._columns = [each for each in self._columns if each[0] != "pairs"]
        self._narrow = [each for each in self._narrow if each[0] != "pairs"]
        self._execute("DROP TABLE pairs", f"CREATE TABLE pairs ({TABLES['pairs']}, other uuid)")
