"""A server, its log and the mirror of it, for comparisons."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import MirrorOf
from tests.support.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = """
    id int PRIMARY KEY, amount numeric(10, 2), free numeric, f float8, d date, ts timestamp,
    tz timestamptz, u uuid, j jsonb, a int[], b bytea, c char(5), t text
"""


class Shop:
    """A server, its log, and the mirror of it."""

    def __init__(
        self, made: Database, spark: SparkSession | None, folder: Path, engine: str
    ) -> None:
        self.made = made
        self.mirror = MirrorOf(spark, folder, engine)
        self._spark = spark
        self._folder = folder

    def capture(self) -> None:
        capture = capture_into(self.made, self._folder / "log", snapshot=True)
        capture.run(until_lsn=flush_lsn(self.made))

    def follow(self) -> None:
        self.capture()
        self.mirror.run()

    def compare(self, **options: Any) -> dict[str, Any]:
        """Results by table, without the schema."""
        found = self.mirror.compare(self.made.dsn, **{"wait": 0} | options)
        assert found.is_equal == all(each.state == "equal" for each in found.tables)
        return {each.table.partition(".")[2]: each for each in found.tables}

    def compare_captured(self, **options: Any) -> dict[str, Any]:
        """Compare while a capture runs: without one, a log may lack the server's last changes."""
        done = threading.Event()

        def follow() -> None:
            while not done.is_set():
                self.capture()

        with ThreadPoolExecutor(1) as executor:
            running = executor.submit(follow)
            try:
                return self.compare(wait=300, **options)
            finally:
                done.set()
                running.result()

    def damage(self, table: str, statement: str) -> None:
        """Run a statement on a table of the lake."""
        path = str(self.mirror.lake / "public" / table)
        if self.mirror.engine == "local":
            self._delta_rs(path, statement)
            return
        is_iceberg = self.mirror.engine == "iceberg"
        name = self.mirror.name(f"public.{table}") if is_iceberg else f"delta.`{path}`"
        assert self._spark is not None
        self._spark.sql(statement.format(name)).collect()

    def remove(self, table: str) -> None:
        """Remove a table from the lake."""
        if self.mirror.engine == "iceberg":
            assert self._spark is not None
            self._spark.sql(f"DROP TABLE {self.mirror.name(f'public.{table}')}")
        else:
            shutil.rmtree(self.mirror.lake / "public" / table)

    @staticmethod
    def _delta_rs(path: str, statement: str) -> None:
        import deltalake

        table = deltalake.DeltaTable(path)
        verb, *words = statement.split()
        where = statement.partition(" WHERE ")[2]
        if verb == "UPDATE":
            table.update({words[2]: words[4]}, predicate=where)
        elif verb == "DELETE":
            table.delete(where)
        else:
            found = deltalake.QueryBuilder().register("t", table)
            rows = found.execute(f"SELECT * FROM t WHERE {where}").read_all()
            deltalake.write_deltalake(path, rows, mode="append")


def fill(made: Database) -> None:
    """Create the tables, with rows."""
    made.execute(
        f"CREATE TABLE typed ({VALUES})",
        "CREATE TABLE bag (v int, w text)",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag SELECT n % 3, NULLIF(n % 2, 0) FROM generate_series(1, 20) n",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    made.execute(
        "INSERT INTO typed SELECT n, n / 3.0, 1e30 * n, n / 7.0, DATE '2020-01-01' + n,"
        " TIMESTAMP '2020-01-01 01:02:03.4' + n * INTERVAL '1 hour', now(),"
        " gen_random_uuid(), '{\"a\": 1}', ARRAY[n, NULL], '\\\\x00ff', 'x', repeat('y', n)"
        " FROM generate_series(1, 500) n"
    )
    made.execute(
        "INSERT INTO typed VALUES (-1, NULL, 'NaN', 'NaN', NULL, NULL, NULL, NULL, NULL, '{}',"
        " '', NULL, '')",
        "INSERT INTO typed (id, f) VALUES (-2, '-0')",
    )
