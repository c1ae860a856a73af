"""Rows with a table's own columns, then the metadata columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.identity import PossibleLeaves, check_identity
from pgwire_codec.changes.table_schema import (
    CommitColumns,
    TableSchema,
    misfit,
    table_schema,
    to_record_batch,
)
from pgwire_codec.errors import TableError
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import TypeOptions, TypeRegistry

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class NativeRows:
    """The table's columns, then the metadata columns, as :func:`decode_changes` returns them.

    Batches of another relation are accepted if its columns fit. Updates and deletes must have been
    sent with the replica identity of the version that is ``checked``, if there is one. Rows of
    the style ``debezium`` are made of these.
    """

    table: TableSchema
    types: TypeOptions
    registry: TypeRegistry
    schema: pa.Schema
    checked: Relation | None
    database: str

    @classmethod
    def of(
        cls,
        options: SourceOptions,
        newest: RelationVersion,
        versions: Sequence[RelationVersion],
        database: str,
        leaves: PossibleLeaves,
        registry: TypeRegistry,
    ) -> Self:
        """Return the format of a table, by its newest version and all versions of all tables."""
        types = options.decoder.type_options
        table = table_schema(
            newest,
            versions,
            types,
            registry,
            before=options.decoder.before,
            invalid=options.decoder.unrepresentable != "raise",
            relation_oid=options.with_relation_oid,
            columns=options.columns,
            leaves=leaves,
        )
        checked = newest.relation if options.check_identity else None
        schema = spark_arrow_schema(pa.schema(cls.fields(table)))
        return cls(table, types, registry, schema, checked, database)

    @classmethod
    def fields(cls, table: TableSchema) -> list[pa.Field]:
        """Return the columns of the rows."""
        return list(table.arrow)

    @property
    def commit_columns(self) -> CommitColumns:
        """Columns by which rows are filtered before they are decoded."""
        names = self.table.metadata
        return CommitColumns((names["_commit_lsn"],), (names["_commit_time"],))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows of a batch."""
        return cast_batch(self.convert(batch).columns, self.schema)

    def check(self, versions: Sequence[RelationVersion]) -> None:
        """Raise ``TableError`` when one of these versions of the table does not fit."""
        for version in versions:
            if version not in self.table.versions:
                reason = misfit(version, self.table, self.types, self.registry)
                if reason is not None:
                    raise TableError(
                        f"{version.qualified_name} {reason}: the query has an older schema",
                        hint="Start the query again, from its checkpoint if it is a stream, to "
                        "use the new schema. Or name the columns that it reads, with the option "
                        "columns.",
                    )

    def convert(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows in the types of ``table.arrow``."""
        if self.checked is not None:
            check_identity(batch, self.checked)
        return to_record_batch(batch, self.table)

    def rows(self, converted: pa.RecordBatch) -> pa.StructArray:
        """Return the table's columns of converted rows as one struct, never null."""
        fields = row_fields(self.table)
        if not fields:  # of no arrays, pyarrow makes a struct without rows
            return pa.array([{}] * len(converted), pa.struct([]))
        arrays = [converted.column(name) for name in self.table.columns]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def old_rows(self, converted: pa.RecordBatch) -> pa.StructArray:
        """Return the old tuples of converted rows as one struct, null if a row has none."""
        fields = row_fields(self.table)
        if "_before" not in self.table.metadata:  # no column, or no old tuple ever
            return pa.nulls(len(converted), pa.struct(fields))
        before: Any = self.metadata(converted, "_before")
        arrays = [before.field(name) for name in self.table.columns]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=before.is_null())

    def metadata(self, converted: pa.RecordBatch, name: str) -> pa.Array:
        """Return a metadata column of converted rows, by its usual name."""
        return converted.column(self.table.metadata[name])


def row_fields(table: TableSchema) -> list[pa.Field]:
    """Return the fields of a table's columns."""
    return [table.arrow.field(name) for name in table.columns]
