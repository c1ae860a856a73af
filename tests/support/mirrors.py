"""Mirrors of logs for tests: their tables, and the rows that they must have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgwire_codec import log
from tests.support import build, spark_logs
from tests.support.applied_tables import Table, apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

ID = build.column("id", "int4", key=True)


class MirrorOf:
    """A mirror of a log, which runs until it has the whole log."""

    def __init__(self, spark: SparkSession, folder: Path, engine: str) -> None:
        self.log = str(folder / "log")
        self.lake = folder / "lake"
        self.checkpoint = folder / "checkpoint"
        self.engine = engine
        self.batches: list[Any] = []
        self._spark = spark

    def start(self, tables: str = "*", **options: Any) -> Any:
        """Start the mirror, and return its query."""
        from pgwire_codec.spark import mirror

        options = {"engine": self.engine, "report": self.batches.append} | options
        return mirror(
            self._spark, self.log, f"delta:{self.lake}", tables,
            checkpoint=str(self.checkpoint), **options,
        )  # fmt: skip

    def run(self, tables: str = "*", **options: Any) -> None:
        """Run the mirror to the log's end."""
        self.start(tables, **{"once": True, **options}).awaitTermination()

    def resume(self, table: str) -> None:
        from pgwire_codec.spark import resume_table

        resume_table(self._spark, str(self.lake), table, engine=self.engine)

    def rows(self, table: str | Path) -> list[Row]:
        """Rows of a table of the lake, by name or path, in the order of their texts."""
        path = str(self.lake / table.replace(".", "/") if isinstance(table, str) else table)
        if self.engine == "delta-spark":
            found = self._spark.read.format("delta").load(path).toArrow().to_pylist()
        else:
            import deltalake

            found = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        return in_order(found)

    def versions(self) -> dict[str, int]:
        """Number of commits of each table of the lake."""
        import deltalake

        paths = [each.parent for each in self.lake.glob("*/*/_delta_log")]
        return {
            f"{path.parent.name}.{path.name}": deltalake.DeltaTable(str(path)).version()
            for path in paths
        }

    def status(self) -> dict[str, Row]:
        """Rows of the status table, by table."""
        import deltalake

        found = deltalake.DeltaTable(str(self.lake / "_mirror")).to_pyarrow_table().to_pylist()
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
