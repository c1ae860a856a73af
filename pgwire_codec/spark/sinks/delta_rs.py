"""DeltaRs: a Delta table that delta-rs writes, in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from pgwire_codec.errors import TableError, missing_extra
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.quoting import quote_identifier
from pgwire_codec.spark.sinks.columns import AddColumn, ClearColumn, ColumnStep
from pgwire_codec.spark.sinks.delta_spark import ENGINE
from pgwire_codec.spark.sinks.merge_rows import (
    CountedRows,
    KeyedRows,
    MergeSource,
    NetRows,
    table_schema,
)
from pgwire_codec.spark.sinks.target import Applied, Batch, Merged

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

#: Properties of new tables; delta-rs ignores them for one that exists. By default, it writes a
#: checkpoint after 100 commits: to open a table, it then reads the files of up to 99, each in a
#: thread.
NEW_TABLE: Final = {"delta.checkpointInterval": "10"}


class DeltaRs:
    """Delta table, for one stream of changes; see :class:`Target`.

    A commit records the last commit LSN under ``app_id``, and the relation under
    ``{app_id}/relation``.
    """

    def __init__(self, path: str, app_id: str, storage_options: dict[str, str]) -> None:
        self._delta = _deltalake()
        self._path = path
        self._app_id = app_id
        self._options = storage_options
        self._table: DeltaTable | None = None
        if self._delta.DeltaTable.is_deltatable(path, storage_options):
            self._table = self._delta.DeltaTable(path, storage_options=storage_options)
            if ENGINE in self._table.metadata().configuration:
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
        self._write(batch, batch.changes.select(*batch.columns.numbers).toArrow(), mode="append")
        return Merged(batch.commit_lsn, inserted=rows)

    def replace(self, batch: Batch) -> Merged:
        net = _net_rows(batch)
        rows = net.source(None, self._path).rows
        rows = rows.filter(pc.invert(rows.column("gone"))).select(batch.columns.numbers)
        self._write(batch, rows, mode="overwrite", schema_mode="overwrite")
        return Merged(batch.commit_lsn, inserted=len(rows))

    def alter(self, steps: Sequence[ColumnStep]) -> None:
        assert self._table is not None
        for step in steps:
            if isinstance(step, AddColumn):
                field = StructField(step.name, step.kind).json()
                self._table.alter.add_columns(self._delta.Field.from_json(field))
            elif isinstance(step, ClearColumn):
                name = quote_identifier(step.name)
                self._table.update({name: "NULL"}, predicate=f"{name} IS NOT NULL")
            else:
                raise TableError(
                    f"delta-rs cannot {step}",
                    hint="Change the target with delta-spark, or remove it, and resume the table.",
                )

    def merge(self, batch: Batch) -> Merged:
        net = _net_rows(batch)
        # After a truncate, the table has no rows that later changes need.
        source = net.source(None if batch.empties else self._table, self._path)
        if self._table is None:
            self._table = self._delta.DeltaTable.create(
                self._path,
                schema=table_schema(net),
                configuration=NEW_TABLE,
                storage_options=self._options or None,
            )
        metrics = _merge(self._table, source, batch, self._commit(batch))
        return Merged(
            batch.commit_lsn,
            inserted=metrics["num_target_rows_inserted"] - source.again,
            updated=metrics["num_target_rows_updated"],
            deleted=metrics["num_target_rows_deleted"] - source.again,
        )

    def _write(self, batch: Batch, rows: pa.Table, *, mode: str, **options: Any) -> None:
        rows = rows.rename_columns(list(batch.columns.table))
        if mode == "append" and self._table is not None:
            # delta-rs appends rows with all columns only.
            for field in pa.schema(self._table.schema().to_arrow()):
                if field.name not in rows.column_names:
                    rows = rows.append_column(field, pa.nulls(len(rows), field.type))
        self._delta.write_deltalake(
            self._path if self._table is None else self._table,
            rows,
            mode=mode,
            configuration=NEW_TABLE,
            commit_properties=self._commit(batch),
            storage_options=self._options or None,
            **options,
        )

    def _commit(self, batch: Batch) -> CommitProperties:
        applied = [self._delta.Transaction(self._app_id, batch.commit_lsn)]
        if batch.relation is not None:
            name = f"{self._app_id}/relation"
            applied.append(self._delta.Transaction(name, batch.relation))
        properties: CommitProperties = self._delta.CommitProperties(
            custom_metadata={"pgwire_codec.commit_lsn": format_lsn(batch.commit_lsn)},
            app_transactions=applied,
        )
        return properties


def _net_rows(batch: Batch) -> NetRows:
    rows = KeyedRows if batch.has_keys else CountedRows
    return rows.of(batch)


def _merge(
    table: DeltaTable, source: MergeSource, batch: Batch, commit: CommitProperties
) -> dict[str, Any]:
    """Merge, and return the metrics."""
    names = batch.columns.table
    merger = table.merge(
        source=source.rows,
        predicate=source.matches,
        source_alias="s",
        target_alias="t",
        commit_properties=commit,
    ).when_matched_delete(predicate="s.gone")
    if source.updates:
        updates = dict(source.updates)
        if batch.empties:  # the row is a new one, in the columns that only the target has, too
            others = {field.name for field in table.schema().fields} - set(names)
            updates |= {quote_identifier(name): "NULL" for name in others}
        merger = merger.when_matched_update(updates=updates, predicate="NOT s.gone")
    row = {quote_identifier(name): f"s.c{number}" for number, name in enumerate(names)}
    merger = merger.when_not_matched_insert(updates=row, predicate="NOT s.gone")
    if batch.empties:
        merger = merger.when_not_matched_by_source_delete()
    return merger.execute()


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise missing_extra("merge_into needs deltalake", "delta") from None
    return deltalake
