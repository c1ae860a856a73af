"""Mirrors of logs for tests: their tables, and the rows that they must have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec import log
from pgwire_codec.comparing import comparison
from pgwire_codec.comparing.result import Comparison
from pgwire_codec.lake import mirroring
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.requests import replay_table, resume_table
from pgwire_codec.protocol.messages import Relation
from tests.support import build, spark_logs
from tests.support.applied_tables import Table, apply
from tests.support.lakehouse import (
    delta_rows,
    iceberg_catalog,
    iceberg_snapshots,
    iceberg_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

ID = build.column("id", "int4", key=True)


class MirrorOf:
    """A mirror of a log, which runs until it has the whole log.

    The engine is "local", of Delta tables without Spark, "local parquet", or the format of the
    tables that Spark writes.
    """

    def __init__(self, spark: SparkSession | None, folder: Path, engine: str) -> None:
        self.log = str(folder / "log")
        self.lake = folder / "lake"
        self.engine = engine
        self.batches: list[Any] = []
        self._spark = spark
        self.target = f"parquet:{self.lake}" if "parquet" in engine else f"delta:{self.lake}"
        if engine == "iceberg":
            assert spark is not None
            self.target = f"iceberg:{iceberg_catalog(spark, self.lake)}"

    @property
    def opened(self) -> Lake:
        """The lake."""
        return Lake.parse(self.target, spark=self._spark)

    def run(self, tables: str = "*", **options: Any) -> None:
        """Run the mirror to the log's end."""
        options = {"report": self.batches.append, "once": True} | options
        self._mirror(tables, **options).run()

    @contextmanager
    def running(self, **options: Any) -> Iterator[None]:
        """Run the mirror meanwhile. Raises its error."""
        running = self._mirror("*", **options).start()
        try:
            yield
        finally:
            running.stop()
            running.awaitTermination()

    def _mirror(self, tables: str, **options: Any) -> mirroring.Mirror:
        if self._spark is None:
            return mirroring.mirror(self.log, self.target, tables, **options)
        from pgwire_codec.spark import mirror

        return mirror(self._spark, self.log, self.target, tables, **options)

    def compare(self, dsn: str, **options: Any) -> Comparison:
        """Compare the tables with the server's."""
        if self._spark is None:
            return comparison.compare(self.log, self.target, dsn, **options)
        from pgwire_codec.spark import compare

        return compare(self._spark, self.log, self.target, dsn, **options)

    def resume(self, table: str) -> None:
        resume_table(self.opened, table)

    def replay(self, table: str) -> None:
        replay_table(self.opened, self.log, table)

    def name(self, table: str) -> str:
        """Name of a table in Iceberg's catalog."""
        schema, _, name = table.rpartition(".")
        return f"{self.target.partition(':')[2]}.`{schema}`.`{name}`"

    def rows(self, table: str) -> list[Row]:
        """Rows of a table of the lake, in the order of their texts."""
        return in_order(self.table(table).to_pylist())

    def table(self, table: str) -> pa.Table:
        """Rows of a table of the lake, as another program reads them."""
        schema, _, name = table.rpartition(".")
        return self._rows(
            self.name(table) if self.engine == "iceberg" else str(self.lake / schema / name)
        )

    def table_of(self, relation: Relation) -> pa.Table:
        """Rows of the table of a relation."""
        return self._rows(self.opened.path(relation))

    def _rows(self, place: str) -> pa.Table:
        if self.engine == "iceberg":
            assert self._spark is not None
            return iceberg_table(self._spark, place)
        if "parquet" in self.engine:
            return self._parquet_rows(place)
        if self.engine == "delta":
            assert self._spark is not None
            return self._spark.read.format("delta").load(place).toArrow()
        return delta_rows(place)

    def _parquet_rows(self, path: str) -> pa.Table:
        """Rows of a folder as another program reads them, without the column of its partitions."""
        if self._spark is None:
            files = [each for each in Path(path).rglob("*.parquet") if "_pgwire" not in str(each)]
            return pa.concat_tables(
                [pq.ParquetFile(each).read() for each in files], promote_options="default"
            )
        rows = self._spark.read.option("mergeSchema", "true").parquet(path)
        return rows.drop("commit_date").toArrow()

    def versions(self) -> dict[str, int]:
        """Newest version of each table of the lake."""
        return {table: versions[-1] for table, versions in self._versions().items()}

    def commits(self) -> dict[str, int]:
        """Number of commits of each table of the lake."""
        return {table: len(versions) for table, versions in self._versions().items()}

    def _versions(self) -> dict[str, list[int]]:
        names = {"iceberg": "metadata", "parquet": "_pgwire_codec"}
        marks = self.lake.glob(f"[!_]*/*/{names.get(self.engine, '_delta_log')}")
        paths = {f"{each.parent.parent.name}.{each.parent.name}": each.parent for each in marks}
        if self.engine == "iceberg":
            assert self._spark is not None
            return {table: iceberg_snapshots(self._spark, self.name(table)) for table in paths}
        if "parquet" in self.engine:
            from pgwire_codec.lake.tables.parquet import ParquetTarget

            opened = {
                table: ParquetTarget(str(path), "pgwire_codec") for table, path in paths.items()
            }
            return {table: list(range((each.version or 0) + 1)) for table, each in opened.items()}
        import deltalake

        return {
            table: list(range(deltalake.DeltaTable(str(path)).version() + 1))
            for table, path in paths.items()
        }

    def status(self) -> dict[str, Row]:
        """Rows of the status table, by table."""
        found = self.rows("_mirror.status" if self.engine == "iceberg" else "_mirror")
        return {row["table"]: row for row in found}

    def expected(self, name: str) -> list[Row]:
        """Rows that a table has after the log's changes, as a subscriber applies them."""
        source = log.Log(self.log)
        tables: dict[int, Table] = {}
        apply(source.read(name), tables)
        return in_order([row for each in tables.values() for row in each.rows])


class Writer:
    """Writes transactions to a log, each with a commit LSN that is higher by 10."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "log"
        self._messages: list[Any] = []
        self.lsn = 0

    def commit(self, *inside: Any) -> int:
        """Add a transaction, and return its LSN."""
        self.lsn += 10
        self._messages += build.transaction(*inside, xid=self.lsn, lsn=self.lsn)
        return self.lsn

    def flush(self) -> None:
        """Write the transactions to the log."""
        spark_logs.write(self._folder, build.wire(self._messages))
        self._messages.clear()


def relation(oid: int, *columns: Any, name: str | None = None, **options: Any) -> Any:
    """Return a relation whose name, by default, has its OID."""
    return build.relation(oid, *columns, name=name or f"t{oid}", **options)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)
