"""Measures a mirror's merges beside a hand-written MERGE INTO of the same net changes.

Called as ``python -m benchmarks.merge_speed SIZE FORMAT``, by ``make bench-merge``, with FORMAT
delta or iceberg, in an environment with Spark 4.1. A round adds a batch of changes to a log. The
mirror's micro-batch reads it, reduces it, merges it, and writes the status; the hand-written
statement merges ready-made Arrow batches of the net changes. Spark has two cores. Times are those
of ``foreachBatch``: of the mirror, Spark's own (``addBatch``, which has the reading), of the
statement, the clock's.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import pgwire_codec as pgc
from benchmarks.machine import machine
from benchmarks.spark_data import write_log
from benchmarks.spark_speed import Ready
from pgwire_codec.spark import mirror
from pgwire_codec.spark.local import local_spark
from tests.support.lakehouse import lakehouse_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows of the table, changes of a batch, and rounds.
SIZES = {"tiny": (2_000, 500, 1), "quick": (200_000, 20_000, 3), "full": (1_000_000, 100_000, 5)}

#: Shares of updates, inserts and deletes in a batch.
SHAPES = {"updates": (1.0, 0.0, 0.0), "all kinds": (0.6, 0.3, 0.1)}

SCHEMA = pa.schema(
    {
        "id": pa.int64(), "balance": pa.int64(), "amount": pa.decimal128(12, 2),
        "name": pa.string(), "note": pa.string(),
    }
)  # fmt: skip

_RELATION = pgc.Relation(
    None, 1, "public", "acct", "d",
    (
        pgc.RelationColumn(1, "id", 20, -1),
        pgc.RelationColumn(0, "balance", 20, -1),
        pgc.RelationColumn(0, "amount", 1700, (12 << 16 | 2) + 4),
        pgc.RelationColumn(0, "name", 25, -1),
        pgc.RelationColumn(0, "note", 25, -1),
    ),
)  # fmt: skip


class Changes:
    """Batches of changes of the table: as a log, and as net changes in files."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.log = folder / "log"
        self._ready = folder / "ready"
        self._chance = np.random.default_rng(18)
        self._keys = np.arange(rows)
        self._next = rows
        self._lsn = 0

    def begin(self) -> None:
        """Write the inserts of all rows."""
        self._write([(b"I", int(key)) for key in self._keys])

    def add(self, count: int, shares: tuple[float, float, float]) -> Path:
        """Write a batch; return the folder of its net changes."""
        updates, inserts, deletes = (int(count * share) for share in shares)
        chosen = self._chance.choice(len(self._keys), updates + deletes, replace=False)
        changed, gone = self._keys[chosen[:updates]], self._keys[chosen[updates:]]
        new = np.arange(self._next, self._next + inserts)
        self._next += inserts
        self._keys = np.append(np.delete(self._keys, chosen[updates:]), new)
        changes = [(b"U", int(key)) for key in changed] + [(b"I", int(key)) for key in new]
        changes += [(b"D", int(key)) for key in gone]
        self._chance.shuffle(changes)
        return self._keep(changes, self._write(changes))

    def _write(self, changes: list[tuple[bytes, int]]) -> int:
        self._lsn += 1 << 20
        messages = [pgc.encode_message(pgc.Begin(self._lsn, 0, 7)), pgc.encode_message(_RELATION)]
        messages += [pgc.encode_message(self._message(kind, key)) for kind, key in changes]
        messages.append(pgc.encode_message(pgc.Commit(0, self._lsn, self._lsn + 8, 0)))
        write_log([pa.array(messages, pa.large_binary())], self.log)
        return self._lsn

    def _message(self, kind: bytes, key: int) -> Any:
        if kind == b"D":
            old = pgc.TupleData(b"tnnnn", (b"%d" % key, None, None, None, None))
            return pgc.Delete(None, 1, old, None)
        values = tuple(str(value).encode() for value in self._row(key, self._lsn))
        row = pgc.TupleData(b"ttttt", values)
        return pgc.Insert(None, 1, row) if kind == b"I" else pgc.Update(None, 1, None, None, row)

    @staticmethod
    def _row(key: int, lsn: int) -> tuple[int, int, str, str, str]:
        number = key * 31 + (lsn >> 20)
        return key, number, f"{number % 10**9}.25", f"name {key}", f"note {number} " * 4

    def _keep(self, changes: list[tuple[bytes, int]], lsn: int) -> Path:
        """Write net changes as files of two partitions, with the column ``gone``."""
        folder = self._ready / str(lsn)
        folder.mkdir(parents=True)
        schema = pa.schema([*SCHEMA, ("gone", pa.bool_())])
        rows = [(*self._row(key, lsn), kind == b"D") for kind, key in changes]
        for number, part in enumerate((rows[::2], rows[1::2])):
            columns = [pa.array(each) for each in zip(*part, strict=True)]
            table = pa.table(columns, names=schema.names).cast(schema)
            with pa.ipc.new_file(str(folder / f"{number}.arrow"), schema) as writer:
                writer.write_table(table, max_chunksize=10_000)
        return folder


def main(size: str, form: str) -> None:
    rows, count, rounds = SIZES[size]
    folder = Path(tempfile.mkdtemp(prefix="pgwire-bench-"))
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        "spark.sql.extensions":
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }  # fmt: skip
    settings = {"spark.driver.memory": "4g"} | lakehouse_settings()
    settings |= catalog if form == "iceberg" else {}
    try:
        with local_spark(settings) as spark:
            spark.dataSource.register(Ready)
            print(f"{form}, {rows:,} rows, {count:,} changes a batch, local[2] on {machine()}")
            for shape, shares in SHAPES.items():
                found = _measure(spark, folder / shape, form, rows, count, rounds, shares)
                print(f"{shape}: {found}", flush=True)
    finally:
        shutil.rmtree(folder)


def _measure(
    spark: SparkSession, folder: Path, form: str, rows: int, count: int, rounds: int,
    shares: tuple[float, float, float],
) -> str:  # fmt: skip
    """Return the times of both, and their ratio, when their targets are equal."""
    name = folder.name.replace(" ", "_")
    target = f"lake.{name}" if form == "iceberg" else str(folder / "lake")
    changes = Changes(folder, rows)
    changes.begin()
    mirrored = f"{target}.public.acct" if form == "iceberg" else f"delta.`{target}/public/acct`"
    written = f"{target}.written" if form == "iceberg" else f"delta.`{folder}/written`"
    run = partial(_mirror, spark, changes.log, f"{form}:{target}", str(folder / "checkpoint"))
    run()
    spark.sql(f"CREATE TABLE {written} USING {form} AS SELECT * FROM {mirrored}").collect()
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        ready = changes.add(count, shares)
        jobs: list[Callable[[], float]] = [run, partial(_merge, spark, ready, written)]
        for place in (0, 1) if number % 2 else (1, 0):
            seconds = jobs[place]()
            if number:  # the first one warms up
                times[place].append(seconds)
    left, right = (f"SELECT * FROM {each}" for each in (mirrored, written))
    different = spark.sql(f"({left} EXCEPT ALL {right}) UNION ALL ({right} EXCEPT ALL {left})")
    assert different.isEmpty()
    mine, other = map(median, times)
    ratio = median(one / two for one, two in zip(*times, strict=True))
    return f"mirror {mine:.2f} s, MERGE INTO {other:.2f} s, {ratio:.2f} ×"


def _mirror(spark: SparkSession, log: Path, target: str, checkpoint: str) -> float:
    """Apply the new changes of a log by a mirror; return the seconds of its only micro-batch."""
    query = mirror(spark, log, target, checkpoint=checkpoint, once=True)
    query.awaitTermination()
    [batch] = query.recentProgress
    return float(batch.durationMs["addBatch"]) / 1000


def _merge(spark: SparkSession, ready: Path, target: str) -> float:
    """Merge net changes from files; return the seconds."""
    begin = perf_counter()
    spark.read.format("ready").load(str(ready)).createOrReplaceTempView("net")
    names = SCHEMA.names
    spark.sql(
        f"MERGE INTO {target} t USING net s ON t.id = s.id"
        " WHEN MATCHED AND s.gone THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{each} = s.{each}' for each in names)}"
        f" WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({', '.join(names)})"
        f" VALUES ({', '.join(f's.{each}' for each in names)})"
    ).collect()
    return perf_counter() - begin


if __name__ == "__main__":
    main(*sys.argv[1:3])
