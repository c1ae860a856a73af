"""What a row of ``format("pgoutput")`` looks like: its schema, and how a batch of changes gets it.

All shapes are picklable, and give record batches of exactly their ``schema``: Spark takes nothing
else from a data source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.spark.arrow_types import SPARK
from pgwire_codec.spark.formats.table_rows import to_record_batch
from pgwire_codec.spark.formats.table_schema import TableSchema, misfit, table_schema
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import TypeOptions, default_registry

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Shape(Protocol):
    """What rows look like."""

    @property
    def schema(self) -> pa.Schema:
        """In the form that Spark has in Arrow."""

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows of a batch."""

    def check(self, versions: Sequence[RelationVersion]) -> None:
        """Raise ``ValueError`` when one of these versions of the table does not fit."""


def shape_of(
    options: SourceOptions,
    newest: RelationVersion | None,
    versions: Sequence[RelationVersion],
    database: str,
) -> Shape:
    """Return the shape that the options ask for.

    ``newest`` is the newest version of the table, or None for all tables; ``versions`` are those of
    all relations. Raises ``ValueError`` when the table does not have a column.
    """
    from pgwire_codec.spark.formats.any_table import AnyTable
    from pgwire_codec.spark.formats.debezium import DebeziumRows, DeltaRows

    if newest is None:
        return AnyTable.of(relation_oid=options.with_relation_oid)
    rows = TableRows.of(options, newest, versions)
    if options.style == "debezium":
        return DebeziumRows.of(rows, database)
    if options.style == "delta":
        return DeltaRows.of(rows)
    return rows


def spark_schema(schema: pa.Schema) -> StructType:
    """Give the schema as Spark has it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # Asked for, because it is not what older releases do: a timestamp is none with a time zone.
    found: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return found


def exact(schema: pa.Schema) -> pa.Schema:
    """Give a schema in the very form in which Spark has it in Arrow: names of list elements."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(schema), timezone="UTC")


def to_exact(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Give a record batch of arrays that differ from the schema in names of elements at most."""
    fitting = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitting, schema=schema)


@dataclass(frozen=True)
class TableRows:
    """The table's columns, then the metadata columns, as :func:`decode_changes` gives them.

    Batches can be of another relation, too, if its columns fit.
    """

    columns: TableSchema
    types: TypeOptions
    schema: pa.Schema

    @classmethod
    def of(
        cls,
        options: SourceOptions,
        newest: RelationVersion,
        versions: Sequence[RelationVersion],
    ) -> TableRows:
        types = TypeOptions(
            types=options.decoder["types"], numeric=options.decoder["numeric"], arrow_types=SPARK
        )
        columns = table_schema(
            newest,
            versions,
            types,
            default_registry,
            before=options.decoder["before"],
            invalid=options.decoder["unrepresentable"] != "raise",
            relation_oid=options.with_relation_oid,
            columns=options.columns,
        )
        return cls(columns, types, exact(columns.arrow))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        return to_exact(self.native(batch).columns, self.schema)

    def native(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows in the types of ``columns.arrow``."""
        return to_record_batch(batch, self.columns, self.types)

    def check(self, versions: Sequence[RelationVersion]) -> None:
        for version in versions:
            if version not in self.columns.versions:
                reason = misfit(version, self.columns, self.types, default_registry)
                if reason is not None:
                    raise ValueError(
                        f"{version.qualified_name} {reason}, since the schema of this query was "
                        "made: start the query again, from its checkpoint if it is a stream, and "
                        "it takes the new schema; or name the columns that it reads, with the "
                        "option columns"
                    )
