"""DeltaMerge: a merge into a Delta table that delta-rs does, in one task of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.protocol.quoting import quote_identifier
from pgwire_codec.spark.arrow_types import arrow_schema, spark_schema
from pgwire_codec.spark.failures import error_of
from pgwire_codec.spark.reduction.map_in_arrow import map_in_arrow
from pgwire_codec.spark.sinks.delta_bounds import are_bounded
from pgwire_codec.spark.sinks.delta_record import BatchRecord
from pgwire_codec.spark.sinks.delta_table import (
    create_table,
    deltalake,
    open_table,
    writer_properties,
)
from pgwire_codec.spark.sinks.merge_rows import MergeSource, source_of
from pgwire_codec.spark.sinks.target import Merged

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Row that the task returns: numbers of rows; or the text of an error, or of a conflict of commits.
_RESULT: Final = pa.schema(
    {
        "inserted": pa.int64(),
        "updated": pa.int64(),
        "deleted": pa.int64(),
        "error": pa.string(),
        "conflict": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class DeltaMerge:
    """Merge of a batch, in one commit.

    Attributes
    ----------
    path : str
        Path or URI of the table.
    options : dict of str to str
        As ``storage_options`` of ``deltalake.DeltaTable``.
    schema : StructType
        Columns of a new table.
    columns : ChangeColumns
    record : BatchRecord
    held : int or None
        Commit LSN of the last transaction that the table has.
    empties : bool
        As of :class:`Batch`.
    """

    path: str
    options: dict[str, str]
    schema: StructType
    columns: ChangeColumns
    record: BatchRecord
    held: int | None
    empties: bool

    def __call__(self, rows: DataFrame, partitions: int | None) -> Merged:
        """Merge net rows, which are in so many partitions if that is known.

        Raises ``TableError`` if the table lacks a row that they need, and ``CommitFailedError`` of
        ``deltalake`` if another process has changed the table meanwhile.
        """
        schema = arrow_schema(rows.schema)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist([self._outcome(batches, schema)], _RESULT)

        one = rows.coalesce(1) if partitions == 1 else rows.repartition(1)
        found: Any = map_in_arrow(one, run, spark_schema(_RESULT)).collect()
        # Spark passes over the task if it knows that it has no rows.
        outcome = found[0].asDict() if found else self._outcome(iter(()), schema)
        error, conflict = outcome.pop("error"), outcome.pop("conflict")
        if error is not None:
            raise error_of(error)
        if conflict is not None:
            raise deltalake().exceptions.CommitFailedError(conflict)
        return Merged(self.record.commit_lsn, **outcome)

    def _outcome(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> dict[str, Any]:
        """Merge, and return the row of :data:`_RESULT`."""
        delta = deltalake()
        outcome = dict.fromkeys(_RESULT.names)
        first = next(batches, None)
        rows = pa.Table.from_batches(
            [] if first is None else [first, *batches], None if first is not None else schema
        )
        try:
            counts = self._merge(rows)
        except TableError as error:
            return outcome | {"error": str(error)}
        except delta.exceptions.CommitFailedError as error:
            return outcome | {"conflict": str(error)}
        return outcome | counts

    def _merge(self, rows: pa.Table) -> dict[str, int]:
        """Merge, and return the numbers of rows; none if an earlier attempt has merged them."""
        table = open_table(self.path, self.options)
        version = None if table is None else table.transaction_version(self.record.app_id)
        if version != self.held:
            if version is not None and version >= self.record.commit_lsn:
                return dict.fromkeys(("inserted", "updated", "deleted"), 0)
            raise deltalake().exceptions.CommitFailedError(
                f"another process has changed {self.path} since it was read"
            )
        # After a truncate, the table has no rows that later changes need.
        source = source_of(rows, self.columns, None if self.empties else table, self.path)
        if table is None:
            table = create_table(self.path, self.schema, self.options)
        metrics = self._execute(table, source)
        return {
            "inserted": metrics["num_target_rows_inserted"] - source.again,
            "updated": metrics["num_target_rows_updated"],
            "deleted": metrics["num_target_rows_deleted"] - source.again,
        }

    def _finds_files(self, table: DeltaTable) -> bool:
        """Return whether delta-rs may find the files with keys of the source by their bounds.

        It makes a condition of them, which it cannot write for times after the year 262142. Of
        partitions, it makes a condition with a part for each of the source.
        """
        keys = [self.columns.table[number] for number in self.columns.keys]
        is_bounded = bool(keys) and are_bounded(table.schema().to_json(), keys)
        return is_bounded and not table.metadata().partition_columns

    def _execute(self, table: DeltaTable, source: MergeSource) -> dict[str, Any]:
        """Merge, and return the metrics."""
        names = self.columns.table
        merger = table.merge(
            source=source.rows,
            predicate=source.matches,
            source_alias="s",
            target_alias="t",
            writer_properties=writer_properties(table.schema().to_json()),
            streamed_exec=not self._finds_files(table),
            commit_properties=self.record.properties,
        ).when_matched_delete(predicate="s.gone")
        if source.updates:
            updates = dict(source.updates)
            if self.empties:  # the row is a new one, in the columns that only the target has, too
                others = {field.name for field in table.schema().fields} - set(names)
                updates |= {quote_identifier(name): "NULL" for name in others}
            merger = merger.when_matched_update(updates=updates, predicate="NOT s.gone")
        row = {quote_identifier(name): f"s.c{number}" for number, name in enumerate(names)}
        merger = merger.when_not_matched_insert(updates=row, predicate="NOT s.gone")
        if self.empties:
            merger = merger.when_not_matched_by_source_delete()
        return merger.execute()
