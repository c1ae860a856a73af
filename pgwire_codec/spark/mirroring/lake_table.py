"""Tables of a mirror's own in the lake, written by one of the engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.reduction.map_in_arrow import map_in_arrow
from pgwire_codec.spark.sinks.delta_bounds import bounds_property
from pgwire_codec.spark.sinks.delta_files import TableForm, write_files
from pgwire_codec.spark.sinks.delta_spark import delta_snapshot
from pgwire_codec.spark.sinks.delta_table import (
    NEW_TABLE,
    absolute,
    create_table,
    deltalake,
    open_table,
)
from pgwire_codec.spark.sinks.hadoop_folder import HadoopFolder
from pgwire_codec.spark.sinks.iceberg_catalog import CatalogTable
from pgwire_codec.spark.sinks.parquet_files import append_parquet
from pgwire_codec.spark.sinks.sessions import global_view, session_with
from pgwire_codec.spark.sinks.sql import properties_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Conditions that all are true of a row, as for ``pyarrow.parquet.read_table``: the name of an
#: integer column, ``=``, ``<``, ``>=`` or ``<=``, and a number. Delta and Iceberg pass over files
#: without such rows.
Filters = Sequence[tuple[str, str, int]]

#: Hours for which former versions of a table are kept.
_KEPT_HOURS: Final = 24

#: Settings for a table in one folder, which Delta lists with as many tasks.
_LISTING: Final = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "1"}

#: Column of what a task returns that has replaced rows: the version of the Delta table before.
_REPLACED: Final = pa.schema({"version": pa.int64()})

#: Property of Iceberg's tables that keep few versions of their metadata.
_METADATA_DELETED: Final = "write.metadata.delete-after-commit.enabled"


class LakeTable(Protocol):
    """Table of a lake, which need not exist."""

    def version(self) -> int | None:
        """Return the number of its last commit, one more than the one before it.

        None if it does not exist, or its commits have no numbers.
        """

    def read(self, columns: Sequence[str], filters: Filters = ()) -> pa.Table | None:
        """Return columns of the rows; None if the table does not exist."""

    def read_version(self, version: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows after a commit, one of the last."""

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows. The table is made if it does not exist."""

    def append(self, rows: DataFrame) -> None:
        """Add rows. The table is made if it does not exist."""

    def replace(self, filters: Filters, key: str, rows: DataFrame) -> None:
        """Replace the rows of a condition by others, of which it is true. The table exists.

        No two rows have the same ``key``, the name of a column. A reader never misses a row that
        is there before and after.
        """

    def delete(self, filters: Filters) -> None:
        """Delete the rows of a condition. The table exists."""

    def tidy(self) -> None:
        """Remove versions that are older than a day. The table exists."""


def lake_table(
    spark: SparkSession, path: str, engine: str, storage_options: Mapping[str, str]
) -> LakeTable:
    """Return the table at a location."""
    if engine == "delta-spark":
        return _OfSpark(spark, path)
    if engine == "iceberg":
        return _OfIceberg(spark, path)
    if engine == "parquet":
        return _OfParquet(spark, path)
    return _OfDeltaRs(path, dict(storage_options))


def _delta_retention() -> dict[str, str]:
    """Return the properties of a Delta table whose former versions are kept for some time."""
    names = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
    return dict.fromkeys(names, f"interval {_KEPT_HOURS} hours")


def _selected(rows: DataFrame, columns: Sequence[str], filters: Filters) -> pa.Table:
    if filters:
        rows = rows.where(_sql(filters))
    return rows.select(*columns).toArrow()


def _sql(filters: Filters) -> str:
    """Return a condition in SQL. No name of a column of these tables needs quotes."""
    return " AND ".join(f"{name} {comparison} {value}" for name, comparison, value in filters)


class _OfDeltaRs:
    def __init__(self, path: str, storage_options: dict[str, str]) -> None:
        self._delta: Any = deltalake()
        self._path = absolute(path)
        self._options = storage_options

    def version(self) -> int | None:
        table = open_table(self._path, self._options)
        return None if table is None else int(table.version())

    def read(self, columns: Sequence[str], filters: Filters = ()) -> pa.Table | None:
        table = open_table(self._path, self._options)
        if table is None:
            return None
        rows = table.to_pyarrow_table(columns=list(columns), filters=list(filters) or None)
        return pa.table(rows)

    def read_version(self, version: int, columns: Sequence[str]) -> pa.Table:
        table = self._delta.DeltaTable(self._path, version, storage_options=self._options)
        return pa.table(table.to_pyarrow_table(columns=list(columns)))

    def overwrite(self, rows: pa.Table) -> None:
        schema = self._delta.Schema.from_arrow(rows.schema).to_json()
        self._delta.write_deltalake(
            self._path,
            rows,
            mode="overwrite",
            configuration=NEW_TABLE | bounds_property(schema),
            storage_options=self._options,
        )

    def append(self, rows: DataFrame) -> None:
        table = open_table(self._path, self._options)
        form = TableForm(rows.schema.json()) if table is None else TableForm.of(table)
        added = write_files(rows.coalesce(1), rows.columns, form, self._path, self._options)
        if table is None:
            table = create_table(self._path, rows.schema, self._options)
        schema = self._delta.Schema.from_json(form.schema)
        table.create_write_transaction([*added], "append", schema, form.partition_by)

    def replace(self, filters: Filters, key: str, rows: DataFrame) -> None:
        replacing = _replacing(self._path, self._options, _sql(filters))
        # A task without rows, which Spark may pass over, returns no row.
        if not map_in_arrow(rows.coalesce(1), replacing, spark_schema(_REPLACED)).collect():
            self.delete(filters)

    def delete(self, filters: Filters) -> None:
        self._open().delete(_sql(filters))

    def tidy(self) -> None:
        table = self._open()
        held, needed = table.metadata().configuration, NEW_TABLE | _delta_retention()
        if not all(name in held for name in needed):
            table.alter.set_table_properties(needed)
        # Also files of versions that are no longer in the log.
        table.vacuum(_KEPT_HOURS, dry_run=False, enforce_retention_duration=False, full=True)

    def _open(self) -> Any:
        return self._delta.DeltaTable(self._path, storage_options=self._options)


def _replacing(
    path: str, options: dict[str, str], condition: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task that replaces the rows of a condition by its own.

    A second attempt of the task does the same again.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is not None:
            table = deltalake().DeltaTable(path, storage_options=options)
            rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
            deltalake().write_deltalake(table, rows, mode="overwrite", predicate=condition)
            yield pa.record_batch([[table.version()]], _REPLACED)

    return run


class _OfSpark:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark: Any = spark
        self._path = path
        self._name = f"delta.{quoted(path)}"

    def version(self) -> int | None:
        version = int(delta_snapshot(self._spark, self._path).version())
        return None if version < 0 else version

    def read(self, columns: Sequence[str], filters: Filters = ()) -> pa.Table | None:
        tables = self._spark._jvm.io.delta.tables.DeltaTable
        if not tables.isDeltaTable(self._spark._jsparkSession, self._path):
            return None
        return _selected(self._spark.read.format("delta").load(self._path), columns, filters)

    def read_version(self, version: int, columns: Sequence[str]) -> pa.Table:
        reader = self._spark.read.format("delta").option("versionAsOf", version)
        return _selected(reader.load(self._path), columns, ())

    def overwrite(self, rows: pa.Table) -> None:
        self._write(self._spark.createDataFrame(rows).coalesce(1), "overwrite")

    def append(self, rows: DataFrame) -> None:
        self._write(rows, "append")

    def replace(self, filters: Filters, key: str, rows: DataFrame) -> None:
        self._write(rows, "overwrite", replaceWhere=_sql(filters))

    def delete(self, filters: Filters) -> None:
        self._spark.sql(f"DELETE FROM {self._name} WHERE {_sql(filters)}").collect()

    def tidy(self) -> None:
        held = delta_snapshot(self._spark, self._path).metadata().configuration()
        kept = _delta_retention()
        if not all(held.contains(name) for name in kept):
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({properties_of(kept)})")
        with session_with(self._spark, _LISTING) as session:
            session.sql(f"VACUUM {self._name}").collect()

    def _write(self, rows: DataFrame, mode: str, **options: str) -> None:
        # Delta uses properties among the options only for a new table.
        options |= bounds_property(rows.schema.json())
        rows.write.format("delta").mode(mode).options(**options).save(self._path)


class _OfIceberg:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark: Any = spark
        self._table = CatalogTable.parse(spark, name)
        self._read: int | None = None

    def version(self) -> int | None:
        snapshot = self._snapshot()
        self._read = _id_of(snapshot)
        number = 0 if snapshot is None else int(snapshot.sequenceNumber())
        return number or None  # tables of format 1 do not count

    def read(self, columns: Sequence[str], filters: Filters = ()) -> pa.Table | None:
        self._read = _id_of(self._snapshot())
        if self._read is None:
            return None
        return _selected(self._spark.table(self._table.sql), columns, filters)

    def read_version(self, version: int, columns: Sequence[str]) -> pa.Table:
        snapshots = self._table.load(self._spark).snapshots()
        [found] = (each for each in snapshots if each.sequenceNumber() == version)
        return _selected(self._table.rows_at(self._spark, found.snapshotId()), columns, ())

    def overwrite(self, rows: pa.Table) -> None:
        from pyspark.sql.functions import lit

        found = self._spark.createDataFrame(rows).coalesce(1)
        if self._read is None:
            self._create(found)
            return
        # Rows that another process has written since the last read are not overwritten.
        writer = found.writeTo(self._table.sql).option("isolation-level", "serializable")
        writer.option("validate-from-snapshot-id", str(self._read)).overwrite(lit(True))

    def append(self, rows: DataFrame) -> None:
        if self._snapshot() is None:
            self._create(rows)
        else:
            rows.writeTo(self._table.sql).append()

    def replace(self, filters: Filters, key: str, rows: DataFrame) -> None:
        with global_view(self._spark, rows) as view:
            self._spark.sql(
                f"MERGE INTO {self._table.sql} t USING {view} s ON t.{key} = s.{key} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
                f"WHEN NOT MATCHED BY SOURCE AND {_sql(filters)} THEN DELETE"
            ).collect()

    def delete(self, filters: Filters) -> None:
        self._spark.sql(f"DELETE FROM {self._table.sql} WHERE {_sql(filters)}").collect()

    def tidy(self) -> None:
        table = self._table.load(self._spark)
        if not table.properties().get(_METADATA_DELETED):
            table.updateProperties().set(_METADATA_DELETED, "true").commit()
        before = (time.time() - _KEPT_HOURS * 3600) * 1000
        table.expireSnapshots().expireOlderThan(int(before)).retainLast(1).commit()

    def _snapshot(self) -> Any:
        """Return the newest snapshot, a Java object, which the session then reads."""
        table = self._table.load(self._spark)
        return None if table is None else table.currentSnapshot()

    def _create(self, rows: DataFrame) -> None:
        self._table.create_namespaces(self._spark)
        rows.writeTo(self._table.sql).using("iceberg").createOrReplace()


def _id_of(snapshot: Any) -> int | None:
    return None if snapshot is None else int(snapshot.snapshotId())


class _OfParquet:
    """Parquet files that are replaced, or added, as a whole."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark: Any = spark
        self._path = path
        self._folder = HadoopFolder(spark, path)

    def version(self) -> int | None:
        return None

    def read_version(self, version: int, columns: Sequence[str]) -> pa.Table:
        raise NotImplementedError("Parquet files have no versions")

    def read(self, columns: Sequence[str], filters: Filters = ()) -> pa.Table | None:
        found = []
        for name in self._names():
            with self._folder.open(name) as file:
                found.append(
                    pq.read_table(file, columns=list(columns), filters=list(filters) or None)
                )
        return pa.concat_tables(found) if found else None

    def overwrite(self, rows: pa.Table) -> None:
        self._write("rows.parquet", rows)
        for name in self._names():
            if name != "rows.parquet":
                self._folder.remove(name)

    def append(self, rows: DataFrame) -> None:
        append_parquet(self._spark, rows, self._path, uuid4().hex)

    def replace(self, filters: Filters, key: str, rows: DataFrame) -> None:
        names = self._names()
        self.append(rows)
        self._delete(filters, names)

    def delete(self, filters: Filters) -> None:
        self._delete(filters, self._names())

    def tidy(self) -> None:
        pass  # it has no former versions

    def _delete(self, filters: Filters, names: Iterable[str]) -> None:
        is_deleted = pq.filters_to_expression(list(filters))
        for name in names:
            with self._folder.open(name) as file:
                rows = pq.read_table(file)
            remaining = rows.filter(~pc.coalesce(is_deleted, pc.scalar(False)))
            if not len(remaining):
                self._folder.remove(name)
            elif len(remaining) < len(rows):
                self._write(name, remaining)

    def _names(self) -> list[str]:
        return [name for name in self._folder.names() if name.endswith(".parquet")]

    def _write(self, name: str, rows: pa.Table) -> None:
        content = pa.BufferOutputStream()
        pq.write_table(rows, content)
        self._folder.write(name, content.getvalue().to_pybytes())
