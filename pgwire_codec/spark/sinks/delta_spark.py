"""DeltaSpark: a Delta table that Spark's executors write, by Delta's own ``MERGE INTO``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.kept_rows import kept
from pgwire_codec.spark.sinks.columns import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    RenameColumn,
    changed_columns,
)
from pgwire_codec.spark.sinks.delta_bounds import TableBounds, bounds_property
from pgwire_codec.spark.sinks.merge_source import MergeSource, raise_missing_row, source_of
from pgwire_codec.spark.sinks.parquet_files import PARQUET_SETTINGS
from pgwire_codec.spark.sinks.sessions import global_view, session_with
from pgwire_codec.spark.sinks.sql import properties_of, quoted
from pgwire_codec.spark.sinks.target import Applied, Batch, Merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: Property of the tables that this engine writes.
ENGINE: Final = "pgwire_codec.engine"

#: Extension of sessions that have Delta.
EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"

#: Property of tables whose columns can have any names, and be renamed.
_MAPPING: Final = {"delta.columnMapping.mode": "name"}


class DeltaSpark:
    """Delta table, for one stream of changes; see :class:`Target`.

    Delta records one version a commit: here the last commit LSN, under ``{app_id}/{relation}``. So
    the name with the last LSN is that of the relation whose rows the table has. If the relation is
    unknown, the LSN is under ``app_id``.
    """

    def __init__(self, spark: SparkSession, path: str, app_id: str) -> None:
        _check_session(spark)
        self._spark = cast(Any, spark)  # its Java objects have no types
        self._path = path
        self._app_id = app_id
        self._name = f"delta.{quoted(path)}"
        self._schema: StructType | None = None
        self._applied = Applied()
        self._refresh()

    @property
    def schema(self) -> StructType | None:
        return self._schema

    @property
    def applied(self) -> Applied:
        return self._applied

    @property
    def version(self) -> int | None:
        return None if self._schema is None else int(self._snapshot().version())

    @property
    def is_empty(self) -> bool:
        return self._schema is None or not self._snapshot().numOfFiles()

    def append(self, batch: Batch, rows: int) -> Merged:
        self._ensure_bounds()
        added = batch.changes.select(*batch.columns.numbers).toDF(*batch.columns.table)
        if self._schema is None:
            self._create(added.schema)
        rows_of_table = batch.changes.select(*batch.columns.numbers)
        with self._recording(batch) as session, global_view(self._spark, rows_of_table) as view:
            names = ", ".join(map(quoted, batch.columns.table))
            session.sql(f"INSERT INTO {self._name} ({names}) SELECT * FROM {view}")
        return Merged(batch.commit_lsn, inserted=rows)

    def replace(self, batch: Batch) -> Merged:
        with source_of(batch, None, self._path) as source:
            if self._schema is None:
                self._create(source.schema)
            elif _needs_mapping(source.schema):
                self._map_names()
            remaining = source.rows.where("NOT gone").select(*batch.columns.numbers)
            with (
                self._bounds().replacing(source.schema.json()),
                kept(remaining) as rows,
                self._recording(batch) as session,
                global_view(self._spark, rows) as view,
            ):
                found = session.table(view).toDF(*batch.columns.table)
                writer = found.write.format("delta").mode("overwrite")
                writer.option("overwriteSchema", "true").save(self._path)
                return Merged(batch.commit_lsn, inserted=rows.count())

    def alter(self, steps: Sequence[ColumnStep]) -> None:
        assert self._schema is not None
        self._ensure_bounds()
        after, renamed = changed_columns(self._schema, steps)
        self._bounds().restrict(after.json(), renamed)
        for step in steps:
            if isinstance(step, RenameColumn):
                self._map_names()
                names = f"{quoted(step.old)} TO {quoted(step.new)}"
                self._spark.sql(f"ALTER TABLE {self._name} RENAME COLUMN {names}")
                continue
            name = quoted(step.name)
            if isinstance(step, ClearColumn):
                self._update(f"{name} = NULL", f"{name} IS NOT NULL")
            elif isinstance(step, AddColumn):
                kind = step.kind.simpleString()
                self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({name} {kind})")
            else:
                self._set_properties({"delta.enableTypeWidening": "true"})
                kind = step.kind.simpleString()
                self._spark.sql(f"ALTER TABLE {self._name} ALTER COLUMN {name} TYPE {kind}")

    def merge(self, batch: Batch) -> Merged:
        self._ensure_bounds()
        exists = self._schema is not None and not batch.empties
        # After a truncate, the table has no rows that later changes need.
        rows = self._spark.read.format("delta").load(self._path) if exists else None
        # Delta keeps the source itself.
        with source_of(batch, rows, self._path) as source:
            if self._schema is None:
                self._create(source.schema)
            counts = self._merge(batch, source)
        if counts is None:
            return Merged(batch.commit_lsn)
        return Merged(
            batch.commit_lsn,
            inserted=counts["num_inserted_rows"] - source.again,
            updated=counts["num_updated_rows"],
            deleted=counts["num_deleted_rows"] - source.again,
        )

    def _merge(self, batch: Batch, source: MergeSource) -> Mapping[str, int] | None:
        """Merge, and return the metrics; None if another process has merged the batch meanwhile."""
        held = [] if self._schema is None else self._schema.names
        try:
            with self._recording(batch) as session, global_view(self._spark, source.rows) as view:
                found = session.sql(source.statement(self._name, view, batch, held)).collect()
        except Exception as error:
            raise_missing_row(error, self._path)
            raise
        return found[0].asDict() if found else None

    @contextmanager
    def _recording(self, batch: Batch) -> Iterator[Any]:
        """Yield a session whose commits record a batch."""
        app_id = self._app_id if batch.relation is None else f"{self._app_id}/{batch.relation}"
        lsn, held = batch.commit_lsn, self._applied.commit_lsn
        settings = {"commitInfo.userMetadata": f"pgwire_codec.commit_lsn={format_lsn(lsn)}"}
        # Delta passes over a commit whose record it has, as of changes that are applied again.
        if held is None or lsn > held:
            settings |= {"write.txnAppId": app_id, "write.txnVersion": str(lsn)}
        prefixed = {f"spark.databricks.delta.{name}": value for name, value in settings.items()}
        with session_with(self._spark, PARQUET_SETTINGS | prefixed) as session:
            yield session

    def _update(self, assignment: str, condition: str = "true") -> None:
        with session_with(self._spark, PARQUET_SETTINGS) as session:
            session.sql(f"UPDATE {self._name} SET {assignment} WHERE {condition}").collect()

    def _create(self, schema: StructType) -> None:
        columns = ", ".join(
            f"{quoted(each.name)} {each.dataType.simpleString()}" for each in schema.fields
        )
        properties = {ENGINE: "delta-spark"} | bounds_property(schema.json())
        if _needs_mapping(schema):
            properties |= _MAPPING
        self._spark.sql(
            f"CREATE TABLE {self._name} ({columns}) USING delta "
            f"TBLPROPERTIES ({properties_of(properties)})"
        )
        self._schema = schema

    def _ensure_bounds(self) -> None:
        """Have the table no bounds that may not contain their values."""
        if self._schema is not None:
            self._bounds().ensure(lambda name: self._update(f"{quoted(name)} = {quoted(name)}"))

    def _bounds(self) -> TableBounds:
        assert self._schema is not None
        properties, partition_by = self._properties()
        return TableBounds(
            self._path, self._schema.json(), properties, partition_by, self._set_properties
        )

    def _map_names(self) -> None:
        """Have the table map the names of its columns, if it does not already."""
        configuration, _ = self._properties()
        if not configuration.keys() >= _MAPPING.keys():
            self._set_properties(_MAPPING)

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        configuration, _ = self._properties()
        if not properties.items() <= configuration.items():
            self._spark.sql(
                f"ALTER TABLE {self._name} SET TBLPROPERTIES ({properties_of(properties)})"
            )

    def _properties(self) -> tuple[dict[str, str], list[str]]:
        """Return the table's properties, and the columns of its partitions."""
        metadata = self._snapshot().metadata()
        columns = metadata.partitionColumns()
        names = [columns.apply(place) for place in range(columns.length())]
        return _pairs(metadata.configuration()), names

    def _refresh(self) -> None:
        """Read the table's state; mark a table that exists.

        Raises ``TableError`` for one of the other engine.
        """
        snapshot = self._snapshot()
        if snapshot.version() < 0:
            return
        from pyspark.sql.types import StructType

        self._schema = StructType.fromJson(json.loads(snapshot.schema().json()))
        versions = _versions(snapshot)
        self._applied = _applied(versions, self._app_id)
        if snapshot.metadata().configuration().contains(ENGINE):
            return
        if {self._app_id, f"{self._app_id}/relation"} & set(versions):
            raise TableError(
                f"{self._path} belongs to engine='delta-rs'",
                hint="Continue with that engine, or with another target.",
            )
        self._set_properties({ENGINE: "delta-spark"})

    def _snapshot(self) -> Any:
        return delta_snapshot(self._spark, self._path)


def delta_snapshot(spark: Any, path: str) -> Any:
    """Return the newest snapshot of a table, a Java object; its version is -1 without a table."""
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    return log.forTableWithSnapshot(spark._jsparkSession, path)._2()


def _needs_mapping(schema: StructType) -> bool:
    """Return whether Delta takes the names of columns only if it maps them to others."""
    return any(re.search(r"[ ,;{}()\n\t=]", name) for name in schema.names)


def _versions(snapshot: Any) -> dict[str, int]:
    """Return the versions that the table's commits recorded (``txn`` actions), by name."""
    return _pairs(snapshot.transactions())


def _pairs(entries: Any) -> dict[str, Any]:
    """Return a map of Scala's as a dict."""
    found = {}
    iterator = entries.iterator()
    while iterator.hasNext():
        entry = iterator.next()
        found[entry._1()] = entry._2()
    return found


def _applied(versions: Mapping[str, int], app_id: str) -> Applied:
    found = [Applied()]
    for name, version in versions.items():
        own, _, relation = name.rpartition("/")
        if name == app_id:
            found.append(Applied(version))
        elif own == app_id and relation.isdecimal():
            found.append(Applied(version, int(relation)))
    return max(found, key=lambda each: -1 if each.commit_lsn is None else each.commit_lsn)


def _check_session(spark: Any) -> None:
    """Raise ``OptionError`` for a session that cannot merge."""
    if not hasattr(spark, "_jsparkSession"):
        raise OptionError(
            "engine='delta-spark' needs a session that is not one of Spark Connect",
            hint="Delta's classes read the LSN that a table has, which needs the driver's Java.",
        )
    if EXTENSION not in spark.conf.get("spark.sql.extensions", ""):
        raise OptionError(
            f"engine='delta-spark' needs {EXTENSION} in spark.sql.extensions",
            hint="Start Spark with Delta's jars (spark.jars.packages) and its two settings: see "
            "Delta's quick start.",
        )
