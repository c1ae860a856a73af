"""A random workload of every kind of transaction, which survives the server's restarts."""

from __future__ import annotations

import random
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2

#: Table: the columns that identify a row.
KEYS = {"accounts": ("id",), "notes": ("id",), "scratch": ("id",), "journal": ("id",)}

DDL = """
CREATE TABLE accounts (id bigint PRIMARY KEY, amount numeric(12,2), note text);
ALTER TABLE accounts ALTER note SET STORAGE EXTERNAL;
CREATE TABLE notes (id bigint, body text);
ALTER TABLE notes REPLICA IDENTITY FULL;
CREATE TABLE scratch (id bigint PRIMARY KEY);
CREATE TABLE journal (id bigserial PRIMARY KEY, worker int, number int);
"""

WORKERS = 3
PACE = 50.0  #: Transactions of a worker in a second.
_FIRST_OF_WORKER = 1_000_000_000  # more rows than a worker makes
_MOST_COLUMNS = 6
_PASSING = ("08", "57", "55", "40")


def passes(error: psycopg2.Error) -> bool:
    """Return whether a client goes on after an error, with a new connection.

    The server is away, or a lock is not available, as while a restarted server's prepared
    transactions hold it, or there was a deadlock.
    """
    return error.pgcode is None or error.pgcode[:2] in _PASSING


class Workload:
    """Workers, each with rows of its own, until the ``with`` block ends.

    Each begins ``pace`` transactions in a second, or as many as it can. ``committed`` counts their
    transactions.
    """

    def __init__(self, dsn: str, seed: int, pace: float = PACE) -> None:
        self.dsn = dsn
        self._stopping = threading.Event()
        self._workers = [
            _Worker(dsn, seed, number, self._stopping, pace) for number in range(WORKERS)
        ]

    def __enter__(self) -> Workload:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.join(60)
            assert not worker.is_alive(), "a worker of the workload hangs"
        for worker in self._workers:
            if worker.failed is not None:
                raise worker.failed

    @property
    def committed(self) -> int:
        return sum(worker.number for worker in self._workers)


class _Worker(threading.Thread):
    def __init__(
        self, dsn: str, seed: int, worker: int, stopping: threading.Event, pace: float
    ) -> None:
        super().__init__(name=f"worker {worker}")
        self.number = 0
        self.failed: Exception | None = None
        self._dsn = dsn
        self._random = random.Random(f"{seed} {worker}")
        self._worker = worker
        self._stopping = stopping
        self._pace = pace
        self._next = (worker + 1) * _FIRST_OF_WORKER
        self._columns = 0
        self._cursor: Any = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._connect()
                    while not self._stopping.is_set():
                        self._transaction()
                        self._stopping.wait(self._random.expovariate(self._pace))
                except psycopg2.Error as error:
                    if not passes(error):
                        raise
                    self._stopping.wait(0.05)
        except Exception as error:  # noqa: BLE001  (raised by the workload)
            self.failed = error

    def _connect(self) -> None:
        connection = psycopg2.connect(self._dsn)
        connection.autocommit = True
        self._cursor = connection.cursor()
        self._cursor.execute("SET lock_timeout = '2s'")
        # A transaction that a crash left prepared holds locks on the worker's rows.
        self._cursor.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", (f"w{self._worker} %",)
        )
        for (gid,) in self._cursor.fetchall():
            self._cursor.execute("COMMIT PREPARED %s", (gid,))

    def _transaction(self) -> None:
        kinds = [self._small, self._large, self._prepared, self._truncate, self._message]
        [kind] = self._random.choices(kinds, [10, 3, 3, 1, 1])
        kind()
        if self._worker == 0 and self._random.random() < 0.02:
            self._add_column()

    @contextmanager
    def _block(self, ends: dict[str, float]) -> Iterator[Any]:
        """A transaction that ends in one of some ways."""
        self._cursor.execute("BEGIN")
        yield self._cursor
        self.number += 1
        self._cursor.execute(
            "INSERT INTO journal (worker, number) VALUES (%s, %s)", (self._worker, self.number)
        )
        [end] = self._random.choices([*ends], [*ends.values()])
        self._cursor.execute(end)

    def _small(self) -> None:
        with self._block({"COMMIT": 9, "ROLLBACK": 1}):
            for _ in range(self._random.randint(1, 4)):
                self._change(1)

    def _large(self) -> None:
        """Larger than logical_decoding_work_mem: streamed where that is asked for."""
        with self._block({"COMMIT": 5, "ROLLBACK": 1}) as cursor:
            for part in range(self._random.randint(1, 3)):
                self._change(self._random.randint(200, 800))
                cursor.execute(f"SAVEPOINT s{part}")
                self._change(self._random.randint(1, 500))
                if self._random.random() < 0.6:
                    cursor.execute(f"ROLLBACK TO SAVEPOINT s{part}")
                    self._change(1)

    def _prepared(self) -> None:
        gid = f"w{self._worker} {self._next}"
        with self._block({f"PREPARE TRANSACTION '{gid}'": 1}) as cursor:
            self._change(self._random.choice([1, 3, 700]))
            cursor.execute("SAVEPOINT s")
            self._change(2)
            if self._random.random() < 0.5:
                cursor.execute("ROLLBACK TO SAVEPOINT s")
        self._stopping.wait(self._random.expovariate(10))
        end = "COMMIT" if self._random.random() < 0.75 else "ROLLBACK"
        self._cursor.execute(f"{end} PREPARED %s", (gid,))

    def _truncate(self) -> None:
        with self._block({"COMMIT": 1}) as cursor:
            cursor.execute("TRUNCATE scratch")
            cursor.execute("INSERT INTO scratch VALUES (%s)", (self._take(1),))

    def _message(self) -> None:
        alone = self._random.choice(["true", "false"])
        self._cursor.execute(f"SELECT pg_logical_emit_message({alone}, 'crash', 'x')")

    def _add_column(self) -> None:
        if self._columns < _MOST_COLUMNS:
            self._columns += 1
            try:
                self._cursor.execute(
                    f"ALTER TABLE accounts ADD COLUMN IF NOT EXISTS c{self._columns} int"
                )
            except psycopg2.errors.LockNotAvailable:
                self._columns -= 1

    def _take(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        return first

    def _change(self, count: int) -> None:
        """Insert, update or delete so many rows of ours."""
        execute, chance = self._cursor.execute, self._random.random()
        if chance < 0.5:
            first = self._take(count)
            execute(
                "INSERT INTO accounts (id, amount, note) SELECT g, g / 7.0, %s"
                " FROM generate_series(%s, %s) g",
                (self._text(), first, first + count - 1),
            )
        elif chance < 0.7:
            first = self._take(count)
            execute(
                "INSERT INTO notes SELECT g, %s FROM generate_series(%s, %s) g",
                (self._text(), first, first + count - 1),
            )
        else:
            table, changed = self._random.choice(
                [("accounts", "amount = amount + 1"), ("notes", "body = body || '.'")]
            )
            mine = (
                f"id IN (SELECT id FROM {table} WHERE id BETWEEN %s AND %s"
                " ORDER BY md5(id::text || %s) LIMIT %s)"
            )
            first = (self._worker + 1) * _FIRST_OF_WORKER
            arguments = (first, first + _FIRST_OF_WORKER - 1, str(chance), count)
            if chance < 0.9:
                execute(f"UPDATE {table} SET {changed} WHERE {mine}", arguments)
            else:
                execute(f"DELETE FROM {table} WHERE {mine}", arguments)

    def _text(self) -> str:
        """Now and then so long that it is stored out of line."""
        length = 3000 if self._random.random() < 0.05 else self._random.randint(0, 60)
        return "".join(self._random.choices(string.printable, k=length))


def settle(dsn: str) -> None:
    """Commit what is still prepared."""
    connection = psycopg2.connect(dsn)
    try:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
        for (gid,) in cursor.fetchall():
            cursor.execute("COMMIT PREPARED %s", (gid,))
    finally:
        connection.close()
