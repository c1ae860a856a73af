"""Iceberg: an Iceberg table that Spark's executors write, by Iceberg's own ``MERGE INTO``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from pgwire_codec.errors import TableError
from pgwire_codec.spark.kept_rows import kept
from pgwire_codec.spark.sinks.columns import AddColumn, ClearColumn, ColumnStep, RenameColumn
from pgwire_codec.spark.sinks.iceberg_catalog import CatalogTable, columns_of
from pgwire_codec.spark.sinks.iceberg_record import (
    STAGING,
    StreamRecord,
    is_conflict,
    staged_snapshot,
)
from pgwire_codec.spark.sinks.merge_source import raise_missing_row, source_of
from pgwire_codec.spark.sinks.sessions import global_view, session_with
from pgwire_codec.spark.sinks.sql import properties_of, quoted
from pgwire_codec.spark.sinks.target import Applied, Batch, Merged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOGGER: Final = logging.getLogger("pgwire_codec.spark.iceberg")

#: Property with the name of the table whose changes a table has.
SOURCE: Final = "pgwire_codec.table"

_ATTEMPTS: Final = 4

_STAGED_AS: Final = "spark.wap.id"

_SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."

#: Node of a plan that reads a table of a catalog.
_TABLE: Final = "DataSourceV2Relation"

_METRIC: Final = "spark.merge-into.num-target-rows-"


class Iceberg:
    """Iceberg table of a catalog of the session, for one stream of changes; see :class:`Target`.

    ``source`` is the name of the table whose changes it has, if that is known.
    """

    def __init__(
        self, spark: SparkSession, name: str, app_id: str, source: str | None = None
    ) -> None:
        self._spark = cast(Any, spark)  # its Java objects have no types
        self._name = name
        self._table = CatalogTable.parse(spark, name)
        self._record = StreamRecord(app_id)
        self._properties = {} if source is None else {SOURCE: source}
        self._refresh()

    @property
    def schema(self) -> StructType | None:
        return None if self._state is None else columns_of(self._spark, self._state)

    @property
    def applied(self) -> Applied:
        return self._applied

    @property
    def version(self) -> int | None:
        snapshot = None if self._state is None else self._state.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    @property
    def is_empty(self) -> bool:
        snapshot = None if self._state is None else self._state.currentSnapshot()
        return snapshot is None or snapshot.summary().get("total-records") == "0"

    def append(self, batch: Batch, rows: int) -> Merged:
        def append() -> Merged:
            found = batch.changes.select(*batch.columns.numbers)
            if self._state is None:
                self._create(found.toDF(*batch.columns.table).schema)
            names = ", ".join(map(quoted, batch.columns.table))
            insert = f"INSERT INTO {self._table.sql} ({names}) SELECT * FROM"
            self._commit(batch, found, lambda view: f"{insert} {view}")
            return Merged(batch.commit_lsn, inserted=rows)

        return self._retried(batch, append)

    def replace(self, batch: Batch) -> Merged:
        with source_of(batch, None, self._name) as source:
            remaining = source.rows.where("NOT gone").select(*batch.columns.numbers)
            with kept(remaining) as rows:
                self._replace(batch, rows.toDF(*batch.columns.table))
                return Merged(batch.commit_lsn, inserted=rows.count())

    def alter(self, steps: Sequence[ColumnStep]) -> None:
        for step in steps:
            try:
                self._spark.sql(self._statement(step)).collect()
            except Exception as error:
                # Iceberg's rules for types are narrower than the mirror's: the scale of a decimal.
                if "Cannot change column type" not in str(error):
                    raise
                raise TableError(
                    f"Iceberg cannot {step}",
                    hint="Change the type in the target, and resume the table. Or remove the table "
                    "from the target, and resume it.",
                ) from error
        self._refresh()

    def merge(self, batch: Batch) -> Merged:
        return self._retried(batch, lambda: self._merge(batch))

    def _merge(self, batch: Batch) -> Merged:
        exists = self._state is not None and not batch.empties
        # After a truncate, the table has no rows that later changes need.
        rows = self._spark.table(self._table.sql) if exists else None
        with source_of(batch, rows, self._name) as source, kept(source.rows):
            if self._state is None:
                self._create(source.schema)
            held = self.schema.names if self.schema is not None else []
            summary = self._commit(
                batch,
                source.rows,
                lambda view: source.statement(self._table.sql, view, batch, held),
            )
        return Merged(
            batch.commit_lsn,
            inserted=_count(summary, "inserted") - source.again,
            updated=_count(summary, "updated"),
            deleted=_count(summary, "deleted") - source.again,
        )

    def _retried(self, batch: Batch, attempt: Callable[[], Merged]) -> Merged:
        """Apply a batch, again if another writer has changed the table meanwhile."""
        before = self._applied
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except Exception as error:
                if not is_conflict(error):
                    raise
                reason, *_ = str(error).splitlines()  # Java's errors have a stack
                LOGGER.warning("%s is merged again: %s", self._name, reason)
            self._refresh()
            if (self._applied.commit_lsn or -1) >= batch.commit_lsn:
                return Merged(self._applied.commit_lsn)
            if self._applied != before:
                raise TableError(
                    f"another process has applied changes to {self._name} at the same time",
                    hint="Run one mirror of a table, and resume it.",
                    is_transient=True,
                )
        raise TableError(
            f"{self._name} was changed by another writer during each of {_ATTEMPTS} merges: "
            f"{reason}",
            hint="Resume the table when that writer is done.",
            is_transient=True,
        )

    def _commit(self, batch: Batch, rows: DataFrame, statement: Callable[[str], str]) -> Any:
        """Run a statement on a view of rows, and return the summary of its snapshot."""
        name = uuid4().hex
        try:
            source = _in_plan_of_their_own(rows)
            with (
                self._recording(batch, {_STAGED_AS: name}) as session,
                global_view(self._spark, source) as view,
            ):
                table = self._table.load(session)
                if any(table.properties().get(each) != value for each, value in STAGING.items()):
                    _set_properties(table, STAGING)
                session.sql(statement(view)).collect()
                staged = staged_snapshot(table, name)
                self._record.publish(table, staged, batch, self._applied, self._properties)
        except Exception as error:
            raise_missing_row(error, self._name)
            raise
        self._refresh()
        return staged.summary()

    def _replace(self, batch: Batch, rows: DataFrame) -> None:
        properties = self._record.of_new_table(batch) | self._properties | STAGING
        self._table.create_namespaces(self._spark)
        source = _in_plan_of_their_own(rows)
        with self._recording(batch, {}) as session, global_view(self._spark, source) as view:
            self._table.load(session)
            session.sql(
                f"CREATE OR REPLACE TABLE {self._table.sql} USING iceberg "
                f"TBLPROPERTIES ({properties_of(properties)}) AS SELECT * FROM {view}"
            )
        self._refresh()

    @contextmanager
    def _recording(self, batch: Batch, settings: dict[str, str]) -> Iterator[Any]:
        """Yield a session whose snapshots record a batch."""
        recorded = self._record.of(batch)
        properties = {f"{_SNAPSHOT_PROPERTY}{name}": each for name, each in recorded.items()}
        with session_with(self._spark, properties | settings) as session:
            yield session

    def _statement(self, step: ColumnStep) -> str:
        table = self._table.sql
        if isinstance(step, RenameColumn):
            return f"ALTER TABLE {table} RENAME COLUMN {quoted(step.old)} TO {quoted(step.new)}"
        name = quoted(step.name)
        if isinstance(step, ClearColumn):
            return f"UPDATE {table} SET {name} = NULL WHERE {name} IS NOT NULL"
        kind = step.kind.simpleString()
        if isinstance(step, AddColumn):
            return f"ALTER TABLE {table} ADD COLUMNS ({name} {kind})"
        return f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}"

    def _create(self, schema: StructType) -> None:
        self._table.create(self._spark, schema, self._properties | STAGING)
        self._refresh()

    def _refresh(self) -> None:
        """Read the table's state.

        Raises ``TableError`` for the table of another source.
        """
        self._state = self._table.load(self._spark)
        self._applied = Applied() if self._state is None else self._record.read(self._state)
        if self._state is None:
            return
        source, held = self._properties.get(SOURCE), self._state.properties().get(SOURCE)
        if source is not None and held not in (None, source):
            raise TableError(
                f"{self._name} is the table of {held}, not of {source}",
                hint="The catalog has the same name for both, as some do if they differ in case "
                "only. Mirror one of them into another catalog or namespace.",
            )


def _in_plan_of_their_own(rows: DataFrame) -> DataFrame:
    """Return rows in a plan that Spark's ``MERGE INTO`` accepts as the source.

    It has the plan twice: to find files, and to merge. A plan with numbers that Spark has given to
    rows is not deterministic then, although these rows are kept. One with the target itself, as for
    values under a former key, has columns that Spark confuses with those of the target.
    """
    found, spark = cast(Any, rows), cast(Any, rows.sparkSession)
    execution = found._jdf.queryExecution()
    leaves = execution.analyzed().collectLeaves()
    names = {leaves.apply(place).nodeName() for place in range(leaves.length())}
    if execution.analyzed().deterministic() and _TABLE not in names:
        return rows
    session = spark._jsparkSession
    made = session.internalCreateDataFrame(execution.toRdd(), found._jdf.schema(), False)
    return cast("DataFrame", type(found)(made, spark))


def _set_properties(table: Any, properties: dict[str, str]) -> None:
    update = table.updateProperties()
    for name, value in properties.items():
        update.set(name, value)
    update.commit()


def _count(summary: Any, rows: str) -> int:
    """Return the number of rows that a merge has inserted, updated or deleted."""
    return int(summary.get(f"{_METRIC}{rows}"))
