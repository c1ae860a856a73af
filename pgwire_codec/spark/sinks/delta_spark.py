"""DeltaSpark: a Delta table that Spark's executors write, by Delta's own ``MERGE INTO``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.sinks.merge_source import MISSING, MergeSource, source_of
from pgwire_codec.spark.sinks.sql import literal, quoted
from pgwire_codec.spark.sinks.target import MISSING_ROW_HINT, Applied, Batch, Merged, missing_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: Property of the tables that this engine writes.
ENGINE: Final = "pgwire_codec.engine"

_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"

_MISSING: Final = re.compile(rf"{MISSING}(.*?){MISSING}", re.DOTALL)


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
        if self._spark._jvm.io.delta.tables.DeltaTable.isDeltaTable(
            self._spark._jsparkSession, path
        ):
            self._schema = spark.read.format("delta").load(path).schema
            self._adopt()

    @property
    def columns(self) -> list[str] | None:
        return None if self._schema is None else self._schema.names

    @cached_property
    def applied(self) -> Applied:
        found = [Applied()]
        if self._schema is not None:
            for name, version in self._versions().items():
                own, _, relation = name.rpartition("/")
                if name == self._app_id:
                    found.append(Applied(version))
                elif own == self._app_id and relation.isdecimal():
                    found.append(Applied(version, int(relation)))
        return max(found, key=lambda each: -1 if each.commit_lsn is None else each.commit_lsn)

    def merge(self, batch: Batch) -> Merged:
        exists = self._schema is not None and not batch.empties
        # After a truncate, the table has no rows that later changes need.
        rows = self._spark.read.format("delta").load(self._path) if exists else None
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
        view = f"pgwire_codec_{uuid4().hex}"
        source.rows.createOrReplaceTempView(view)
        try:
            session = self._recording(batch)
            found = session.sql(self._statement(view, batch, source)).collect()
        except Exception as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            raise TableError(missing_row(self._path, missing[1]), hint=MISSING_ROW_HINT) from None
        finally:
            self._spark.catalog.dropTempView(view)
        return found[0].asDict() if found else None

    def _statement(self, view: str, batch: Batch, source: MergeSource) -> str:
        names = list(map(quoted, batch.columns.table))
        clauses = ["WHEN MATCHED AND s.gone THEN DELETE"]
        if source.updates:
            updates = dict(zip(names, source.updates, strict=True))
            if batch.empties:  # the row is a new one, in the columns that only the target has, too
                updates |= {
                    quoted(name): "NULL"
                    for name in self.columns or ()
                    if name not in batch.columns.table
                }
            assigned = ", ".join(f"t.{name} = {value}" for name, value in updates.items())
            clauses.append(f"WHEN MATCHED THEN UPDATE SET {assigned}")
        clauses.append(
            f"WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(source.inserts)})"
        )
        if batch.empties:
            clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
        into = f"MERGE INTO {self._name} AS t USING {view} AS s ON {source.matches}"
        return "\n".join([into, *clauses])

    def _recording(self, batch: Batch) -> SparkSession:
        """Return a session whose commits record the batch; it has the views of the target's."""
        from pyspark.sql import SparkSession

        app_id = self._app_id if batch.relation is None else f"{self._app_id}/{batch.relation}"
        session = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        settings = {
            "write.txnAppId": app_id,
            "write.txnVersion": str(batch.commit_lsn),
            "commitInfo.userMetadata": f"pgwire_codec.commit_lsn={format_lsn(batch.commit_lsn)}",
        }
        for name, value in settings.items():
            session.conf.set(f"spark.databricks.delta.{name}", value)
        return session

    def _create(self, schema: StructType) -> None:
        columns = ", ".join(
            f"{quoted(each.name)} {each.dataType.simpleString()}" for each in schema.fields
        )
        properties = {ENGINE: "delta-spark"}
        if any(re.search(r"[ ,;{}()\n\t=]", name) for name in schema.names):
            properties["delta.columnMapping.mode"] = "name"  # else Delta does not take these names
        listed = ", ".join(
            f"{literal(name)} = {literal(value)}" for name, value in properties.items()
        )
        self._spark.sql(
            f"CREATE TABLE {self._name} ({columns}) USING delta TBLPROPERTIES ({listed})"
        )
        self._schema = schema

    def _adopt(self) -> None:
        """Mark a table that exists. Raise ``TableError`` for one of the other engine."""
        properties = self._spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()
        if any(each["key"] == ENGINE for each in properties):
            return
        if {self._app_id, f"{self._app_id}/relation"} & set(self._versions()):
            raise TableError(
                f"{self._path} belongs to engine='delta-rs'",
                hint="Continue with that engine, or with another target.",
            )
        self._spark.sql(
            f"ALTER TABLE {self._name} SET TBLPROPERTIES ({literal(ENGINE)} = 'delta-spark')"
        )

    def _versions(self) -> dict[str, int]:
        """Return the versions that the table's commits recorded (``txn`` actions), by name."""
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog
        snapshot = log.forTableWithSnapshot(self._spark._jsparkSession, self._path)._2()
        found: dict[str, int] = {}
        entries = snapshot.transactions().iterator()
        while entries.hasNext():
            entry = entries.next()
            found[entry._1()] = entry._2()
        return found


def _check_session(spark: Any) -> None:
    """Raise ``OptionError`` for a session that cannot merge."""
    if not hasattr(spark, "_jsparkSession"):
        raise OptionError(
            "engine='delta-spark' needs a session that is not one of Spark Connect",
            hint="Delta's classes read the LSN that a table has, which needs the driver's Java.",
        )
    if _EXTENSION not in spark.conf.get("spark.sql.extensions", ""):
        raise OptionError(
            f"engine='delta-spark' needs {_EXTENSION} in spark.sql.extensions",
            hint="Start Spark with Delta's jars (spark.jars.packages) and its two settings: see "
            "Delta's quick start.",
        )
