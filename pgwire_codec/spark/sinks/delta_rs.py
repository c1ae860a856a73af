"""DeltaRs: a Delta table that delta-rs writes, in Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.types import StructField, StructType

from pgwire_codec.errors import TableError
from pgwire_codec.protocol.quoting import quote_identifier
from pgwire_codec.spark.reduction.change_columns import table_schema
from pgwire_codec.spark.sinks.columns import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    changed_columns,
)
from pgwire_codec.spark.sinks.delta_bounds import TableBounds
from pgwire_codec.spark.sinks.delta_files import TableForm, write_files
from pgwire_codec.spark.sinks.delta_merge import DeltaMerge
from pgwire_codec.spark.sinks.delta_record import BatchRecord
from pgwire_codec.spark.sinks.delta_spark import ENGINE
from pgwire_codec.spark.sinks.delta_table import (
    absolute,
    create_table,
    deltalake,
    open_table,
    writer_properties,
)
from pgwire_codec.spark.sinks.merge_rows import net_rows
from pgwire_codec.spark.sinks.merge_source import source_of
from pgwire_codec.spark.sinks.target import Applied, Batch, Merged

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

#: Number of the tasks that decode changes whose rows one task writes: a file of some 50 MB.
_TASKS_A_FILE: Final = 16

#: Feature of tables with timestamps without a time zone.
_NTZ: Final = "timestampNtz"


class DeltaRs:
    """Delta table, for one stream of changes; see :class:`Target`.

    A commit records the last commit LSN under ``app_id``, and the relation under
    ``{app_id}/relation``.
    """

    def __init__(self, path: str, app_id: str, storage_options: dict[str, str]) -> None:
        self._path = absolute(path)
        self._app_id = app_id
        self._options = storage_options
        self._table = open_table(self._path, storage_options)
        if self._table is not None and ENGINE in self._table.metadata().configuration:
            raise TableError(
                f"{path} belongs to engine='delta-spark'",
                hint="delta-rs does not see what that engine has applied.",
            )

    @property
    def schema(self) -> StructType | None:
        if self._table is None:
            return None
        return StructType.fromJson(json.loads(self._table.schema().to_json()))

    @property
    def applied(self) -> Applied:
        if self._table is None:
            return Applied()
        version = self._table.transaction_version
        return Applied(version(self._app_id), version(f"{self._app_id}/relation"))

    @property
    def version(self) -> int | None:
        return None if self._table is None else int(self._table.version())

    @property
    def is_empty(self) -> bool:
        return self._table is None or not self._table.file_uris()

    def append(self, batch: Batch, rows: int) -> Merged:
        self._ensure_bounds()
        added = batch.changes.select(*batch.columns.numbers)
        if batch.partitions is not None:
            added = added.coalesce(-(-batch.partitions // _TASKS_A_FILE))
        self._write(batch, added, mode="append")
        return Merged(batch.commit_lsn, inserted=rows)

    def replace(self, batch: Batch) -> Merged:
        with source_of(batch, None, self._path) as source:
            rows = source.rows.where("NOT gone").select(*batch.columns.numbers)
            with self._replacing(table_schema(rows, batch.columns)):
                inserted = self._write(batch, rows, mode="overwrite")
        return Merged(batch.commit_lsn, inserted=inserted)

    def alter(self, steps: Sequence[ColumnStep]) -> None:
        self._ensure_bounds()
        schema, bounds = self.schema, self._bounds()
        assert schema is not None
        assert bounds is not None
        after, renamed = changed_columns(schema, steps)
        bounds.restrict(after.json(), renamed)
        for step in steps:
            self._alter(step)

    def _alter(self, step: ColumnStep) -> None:
        assert self._table is not None
        if isinstance(step, AddColumn):
            field = StructField(step.name, step.kind).json()
            self._table.alter.add_columns(deltalake().Field.from_json(field))
        elif isinstance(step, ClearColumn):
            name = quote_identifier(step.name)
            self._update({name: "NULL"}, f"{name} IS NOT NULL")
        else:
            raise TableError(
                f"delta-rs cannot {step}",
                hint="Change the target with delta-spark, or remove it, and resume the table.",
            )

    def merge(self, batch: Batch) -> Merged:
        self._ensure_bounds()
        rows = net_rows(batch)
        merge = DeltaMerge(
            self._path,
            self._options,
            table_schema(rows, batch.columns),
            batch.columns,
            self._record(batch),
            self.applied.commit_lsn,
            batch.empties,
        )
        merged = merge(rows, batch.partitions)
        self._table = open_table(self._path, self._options)
        return merged

    def _write(self, batch: Batch, rows: DataFrame, mode: Literal["append", "overwrite"]) -> int:
        """Append or replace rows in one commit, and return their number."""
        schema = table_schema(rows, batch.columns)
        form = TableForm(schema.json())
        if self._table is not None:
            form = TableForm.of(self._table, schema.json() if mode == "overwrite" else None)
        added = write_files(rows, batch.columns.table, form, self._path, self._options)
        if self._table is None:
            self._table = create_table(self._path, schema, self._options)
        elif mode == "overwrite" and _has_ntz(schema):
            _take_ntz(self._table)
        self._table.create_write_transaction(
            [*added],
            mode,
            deltalake().Schema.from_json(form.schema),
            form.partition_by,
            commit_properties=self._record(batch).properties,
        )
        return sum(json.loads(each.stats)["numRecords"] for each in added)

    def _ensure_bounds(self) -> None:
        """Have the table no bounds that may not contain their values."""
        bounds = self._bounds()
        if bounds is not None:
            bounds.ensure(
                lambda name: self._update({quote_identifier(name): quote_identifier(name)})
            )

    def _replacing(self, after: StructType) -> AbstractContextManager[None]:
        bounds = self._bounds()
        return nullcontext() if bounds is None else bounds.replacing(after.json())

    def _bounds(self) -> TableBounds | None:
        if self._table is None:
            return None
        metadata = self._table.metadata()
        return TableBounds(
            self._path,
            self._table.schema().to_json(),
            metadata.configuration,
            metadata.partition_columns,
            self._set_properties,
        )

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        assert self._table is not None
        self._table.update_incremental()  # a commit of other columns is not in the table's state
        if not properties.items() <= self._table.metadata().configuration.items():
            self._table.alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def _update(self, updates: dict[str, str], predicate: str | None = None) -> None:
        assert self._table is not None
        properties = writer_properties(self._table.schema().to_json())
        self._table.update(updates, predicate=predicate, writer_properties=properties)

    def _record(self, batch: Batch) -> BatchRecord:
        return BatchRecord(self._app_id, batch.commit_lsn, batch.relation)


def _has_ntz(schema: StructType) -> bool:
    return '"timestamp_ntz"' in schema.json()


def _take_ntz(table: DeltaTable) -> None:
    """Have a table take timestamps without a time zone, as a new table with such columns does."""
    if _NTZ not in (table.protocol().reader_features or ()):
        feature = deltalake().TableFeatures.TimestampWithoutTimezone
        table.alter.add_feature(feature, allow_protocol_versions_increase=True)
