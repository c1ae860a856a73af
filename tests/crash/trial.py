"""A trial: 28 tables of all kinds, three writers, kills of capture and mirror, a full disk.

The comparison at the end uses psycopg2, delta-rs and Python only. A table in the state ok has the
server's rows. Another one has a reason and a hint, and lacks nothing but what they name.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import psycopg2
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.crash.harness import COMMAND
from tests.soak.services import Service
from tests.support.servers import Database
from tests.support.small_disk import SmallDisk, small_disk

#: Bytes of the disk that has the log.
_DISK: Final = 1 << 30

#: Seconds in which the last commands end.
_LIMIT: Final = 1800.0

#: Types, each with an expression of a value from the number ``n``.
_TYPES: Final = {
    "boolean": "n % 2 = 0",
    "smallint": "n % 30000",
    "integer": "n",
    "bigint": "n * 10000000000",
    "real": "CASE n % 9 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE n / 7.0 END",
    "double precision": "CASE n % 9 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' ELSE n / 7.0 END",
    "numeric(12, 3)": "n / 8.0",
    "numeric": "n / 9.0",
    "text": "repeat(n::text, 1 + n % 400)",
    "varchar(40)": "'é ' || n",
    "char(8)": "n % 100",
    "bytea": "decode(md5(n::text), 'hex')",
    "date": "date '2000-01-01' + n % 9999",
    "timestamp": "timestamp '1999-12-31 23:59:59.5' + n * interval '1 h'",
    "timestamptz": "timestamptz '1999-12-31 23:59:59.5Z' + n * interval '1 h'",
    "time": "time '00:00' + n * interval '7 s'",
    "interval": "n * interval '1 day 1 s'",
    "uuid": "md5(n::text)::uuid",
    "jsonb": "jsonb_build_object('n', n)",
    "int[]": "ARRAY[n, NULL, -n]",
}

#: Types that psycopg2 and Spark have as the same values; others are compared as texts.
_NATIVE: Final = frozenset({
    "bool", "int2", "int4", "int8", "float8", "date", "timestamp", "timestamptz",
    "text", "varchar", "bytea", "_int4",
})  # fmt: skip

#: Other tables: without a key, without identity, with two keys, partitioned, generated, named.
_OTHERS: Final = {
    "bag": "(id int, v text, note text); ALTER TABLE bag REPLICA IDENTITY FULL",
    "journal": "(id int, v text, note text); ALTER TABLE journal REPLICA IDENTITY NOTHING",
    "pairs": "(id int, part int DEFAULT 1, v text, note text, PRIMARY KEY (id, part))",
    "parted": "(id int PRIMARY KEY, v text, note text) PARTITION BY RANGE (id);"
    " CREATE TABLE low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (500);"
    " CREATE TABLE high PARTITION OF parted FOR VALUES FROM (500) TO (MAXVALUE)",
    "sums": "(id int PRIMARY KEY, v text, note text,"
    " twice int GENERATED ALWAYS AS (id * 2) STORED)",
    '"a.b".c': "(id int PRIMARY KEY, v text, note text)",
    'a."b.c"': "(id int PRIMARY KEY, v text, note text)",
    '"Mixed"': '(id int PRIMARY KEY, v text, note text, "Other" int)',
}

_KEYLESS: Final = ("bag", "journal")
_IDS: Final = 1000


@dataclass(frozen=True)
class TrialOutcome:
    """Result of a trial."""

    capture_kills: int
    mirror_kills: int
    transactions: int
    ok_tables: int
    other_tables: int
    faults: list[str]


def run(
    made: Database, folder: Path, seed: int, capture_kills: int, mirror_kills: int
) -> TrialOutcome:
    """Run a trial, with all that is random from the seed."""
    chance = random.Random(seed)
    tables = _create(made)
    with ExitStack() as stack:
        place = folder / "disk"
        place.mkdir()
        disk = stack.enter_context(small_disk(place, _DISK))
        runner = chance.choice(["local", "spark"])
        print(f"the mirror's runner is {runner}", flush=True)
        commands = _Commands(made, disk.path / "log", folder, runner)
        capture = Service("capture", commands.capture(), folder, print)
        stack.callback(capture.end)
        with _Writers(made, tables, seed) as writers:
            mirror = Service("mirror", commands.mirror("--every", "1 second"), folder, print)
            stack.callback(mirror.end)
            _disturb(chance, capture, mirror, disk, capture_kills, mirror_kills)
            for service in (capture, mirror):
                service.check()
        mirror.stop(_LIMIT)
        capture.stop(_LIMIT)
        faults = [*commands.finish(), *writers.faults]
        lake = folder / "lake"
        status = {row["table"]: row for row in target_rows(lake / "_mirror")}
        names = {_spelled(table): table for table in tables}
        faults += [f"{name}: no status" for name in names.keys() - status.keys()]
        current = {name: row for name, row in status.items() if name in names}
        for name, row in sorted(current.items()):
            path = lake.joinpath(*_segments(names[name]))
            faults += [f"{name}: {each}" for each in _differences(made, names[name], path, row)]
    states = Counter(row["state"] for row in current.values())
    return TrialOutcome(
        capture_kills,
        mirror_kills,
        writers.committed,
        states["ok"],
        len(current) - states["ok"],
        faults,
    )


class _Commands:
    """Commands of the trial."""

    def __init__(self, made: Database, log: Path, folder: Path, runner: str) -> None:
        self._made, self._log, self._folder = made, log, folder
        self._runner = runner

    def capture(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-c", COMMAND, "capture", "--json", "--dsn", self._made.dsn),
            *("--slot", self._made.slot, "--publication", "p", "--log", str(self._log)),
            *("--snapshot", "--streaming", "on", "--segment-bytes", "1000000", *options),
        ]

    def mirror(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-c", COMMAND, "mirror", "--json", "--log", str(self._log)),
            *("--to", f"delta:{self._folder / 'lake'}", "--runner", self._runner),
            *("--conf", "spark.driver.memory=1g"),
            *("--checkpoint", str(self._folder / "checkpoint"), *options),
        ]

    def finish(self) -> Iterator[str]:
        """Capture and mirror what is left; yield faults."""
        for command in (self.capture("--until-lsn", "now"), self.mirror("--once")):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
            # 4: tables that are not up to date, which their statuses explain.
            if done.returncode not in (0, 4):
                yield f"{command[3]} ended with {done.returncode}: {done.stderr[-2000:]}"


def _create(made: Database) -> list[str]:
    """Create and publish the tables; return their names."""
    made.execute('CREATE SCHEMA "a.b"', "CREATE SCHEMA a")
    tables = []
    for number, kind in enumerate(_TYPES):
        tables.append(f"t{number}")
        made.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, v {kind}, note text)")
    for table, definition in _OTHERS.items():
        tables.append(table)
        made.execute(*f"CREATE TABLE {table} {definition}".split(";"))
    options = "publish_via_partition_root = true"
    if made.major >= 18:
        options += ", publish_generated_columns = stored"
    made.execute(f"CREATE PUBLICATION p FOR ALL TABLES WITH ({options})")
    return tables


class _Writers:
    """Three sessions that write until the ``with`` block ends, and one that changes columns.

    Attributes
    ----------
    committed : int
        Transactions.
    faults : list of str
        Errors of the sessions.
    """

    def __init__(self, made: Database, tables: list[str], seed: int) -> None:
        self.committed = 0
        self.faults: list[str] = []
        self._made, self._tables, self._seed = made, tables, seed
        self._stopping = threading.Event()
        self._columns = 0
        bodies = [self._write, self._write, self._write, self._alter]
        self._threads = [
            threading.Thread(target=self._run, args=(body, random.Random(seed + number)))
            for number, body in enumerate(bodies)
        ]

    def __enter__(self) -> _Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, body: Any, chance: random.Random) -> None:
        try:
            with closing(psycopg2.connect(self._made.dsn)) as connection:
                while not self._stopping.is_set():
                    body(connection, chance)
        except Exception as error:  # noqa: BLE001  (an outcome of the trial)
            self.faults.append(f"a writer failed: {error}")

    def _write(self, connection: Any, chance: random.Random) -> None:
        """Commit a transaction, or roll it back with some of it in a savepoint."""
        try:
            cursor = connection.cursor()
            for _ in range(chance.randrange(1, 9)):
                table = chance.choice(self._tables)
                cursor.execute("SAVEPOINT s")
                cursor.execute(_statement(table, chance))
                if chance.random() < 0.1:
                    cursor.execute("ROLLBACK TO s")
            connection.commit()
            self.committed += 1
        except psycopg2.Error as error:
            connection.rollback()
            # A key that exists, a deadlock, a column that was dropped meanwhile.
            if error.pgcode not in ("23505", "40P01", "42703", "40001", "0A000", "22001", "22003"):
                raise
        self._stopping.wait(chance.expovariate(20))

    def _alter(self, connection: Any, chance: random.Random) -> None:
        self._stopping.wait(chance.uniform(2, 8))
        table = chance.choice([each for each in self._tables if each not in _KEYLESS])
        self._columns += 1
        number = self._columns
        statements = chance.choice(
            [
                [f"ADD COLUMN c{number} int"],
                [f"ADD COLUMN c{number} int DEFAULT 7"],
                [f"ADD COLUMN c{number} text", f"DROP COLUMN c{number}"],
                [f"ADD COLUMN c{number} int", f"RENAME COLUMN c{number} TO d{number}"],
                [f"ADD COLUMN c{number} smallint", f"ALTER COLUMN c{number} TYPE bigint"],
            ]
        )
        for statement in statements:
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE {table} {statement}")
            connection.commit()
            self._stopping.wait(chance.uniform(0, 2))


def _statement(table: str, chance: random.Random) -> str:
    """Return a change of a table, with a number of rows that it changes."""
    n = chance.randrange(_IDS)
    kind = list(_TYPES.values())[int(table[1:])] if table[1:].isdigit() else "n::text"
    value = f"(SELECT ({kind})::text FROM (SELECT {n}) AS s(n))"
    cast = list(_TYPES)[int(table[1:])] if table[1:].isdigit() else "text"
    value = f"{value}::{cast}"
    insert = f"INSERT INTO {table} (id, v, note) VALUES ({n}, {value}, repeat('n{n} ', {n * 9}))"
    if table == "journal":
        return insert
    if table not in _KEYLESS:
        conflict = "id, part" if table == "pairs" else "id"
        insert += f" ON CONFLICT ({conflict}) DO UPDATE SET v = excluded.v"
    return chance.choices(
        [
            insert,
            f"UPDATE {table} SET v = {value} WHERE id BETWEEN {n} AND {n + 5}",
            f"UPDATE {table} SET id = id + {_IDS} WHERE id = {n}",
            f"DELETE FROM {table} WHERE id % {_IDS} = {n}",
            f"INSERT INTO {table} (id, v) SELECT -g, {value} FROM generate_series(1, 20) g"
            + ("" if table in _KEYLESS else " ON CONFLICT DO NOTHING"),
        ],
        [8, 6, 2, 3, 1],
    )[0]


def _disturb(
    chance: random.Random,
    capture: Service,
    mirror: Service,
    disk: SmallDisk,
    capture_kills: int,
    mirror_kills: int,
) -> None:
    """Kill the processes at random moments, and fill the disk once."""
    kills = [capture] * capture_kills + [mirror] * mirror_kills
    chance.shuffle(kills)
    fills_at = len(kills) // 2
    for number, service in enumerate(kills):
        time.sleep(chance.uniform(1, 4) if service is capture else chance.uniform(5, 25))
        if number == fills_at:
            disk.fill()
            time.sleep(5)
            disk.empty()
        service.kill(chance.uniform(0, 1), group=True)


def _differences(made: Database, table: str, path: Path, status: dict[str, Any]) -> Iterator[str]:
    """Yield differences of a table that its status does not explain."""
    state = status["state"]
    if state != "ok" and not ((status["error"] or status["incomplete"]) and status["hint"]):
        yield f"{state} without a reason or a hint: {status}"
    if state not in ("ok", "incomplete"):
        return
    lacking = {each.rpartition(" since ")[0] for each in status["incomplete"] or ()}
    # Before PostgreSQL 18, generated columns are not published.
    published = " AND a.attgenerated = ''" if made.major < 18 else ""
    columns = made.query(
        "SELECT a.attname, t.typname, a.atttypmod FROM pg_attribute a JOIN pg_type t"
        f" ON t.oid = a.atttypid WHERE a.attrelid = '{table}'::regclass AND a.attnum > 0"
        f" AND NOT a.attisdropped{published} ORDER BY a.attnum"
    )
    rows = target_rows(path)
    present = set(rows[0]) if rows else set()
    compared = [column for column in columns if column[0] not in lacking]
    if rows and (unknown := [name for name, _, _ in compared if name not in present]):
        # A column that no change has been sent with is not known yet.
        compared = [column for column in compared if column[0] not in unknown]
        texts = ", ".join(f'count("{name}")' for name in unknown)
        counts = made.query(f"SELECT {texts} FROM {table}")[0]
        if any(counts):
            yield f"ok without the columns {unknown}, which have values"
    selected = ", ".join(_expression(*column) for column in compared)
    names = [name for name, _, _ in compared]
    server = Counter(
        tuple(map(normal, row)) for row in made.query(f"SELECT {selected} FROM {table}")
    )
    target = Counter(tuple(normal(row.get(name)) for name in names) for row in rows)
    for row, count in list((server - target).items())[:3]:
        yield f"{state}, lacks {count} of {names} {str(row)[:300]}"
    for row, count in list((target - server).items())[:3]:
        yield f"{state}, has {count} too many of {names} {str(row)[:300]}"


def _expression(name: str, kind: str, modifier: int) -> str:
    if kind == "float4":
        return f'"{name}"::float8'
    if kind in _NATIVE or (kind == "numeric" and modifier != -1):
        return f'"{name}"'
    # format() keeps the padding of char(n), which a cast to text removes.
    return f'CASE WHEN "{name}" IS NOT NULL THEN format(\'%s\', "{name}") END'


def normal(value: Any) -> Any:
    """Return a value that is equal if it is the same, NaN and -0.0 included."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (memoryview, bytes)):
        return bytes(value)
    if isinstance(value, list):
        return tuple(map(normal, value))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return value


def target_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Delta table; none if it does not exist."""
    if not (path / "_delta_log").exists():
        return []
    query = QueryBuilder().register("t", DeltaTable(str(path)))
    rows: list[dict[str, Any]] = pa.table(query.execute("SELECT * FROM t").read_all()).to_pylist()
    return rows


def _spelled(table: str) -> str:
    return table if "." in table else f"public.{table}"


def _segments(table: str) -> list[str]:
    """Return the folders of a table in the lake."""
    special = {'"a.b".c': ["a.b", "c"], 'a."b.c"': ["a", "b.c"], '"Mixed"': ["public", "Mixed"]}
    return special.get(table) or ["public", table]
