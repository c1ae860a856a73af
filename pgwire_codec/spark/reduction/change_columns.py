"""Columns of a DataFrame of changes, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import metadata_names
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.fold import key_events
from pgwire_codec.spark.tasks import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def columns_of(changes: DataFrame, keys: Sequence[str] | None) -> ChangeColumns:
    """Return the columns of changes. Raises ``TableError`` for another DataFrame."""
    from pyspark.sql import DataFrame

    if not isinstance(changes, DataFrame):
        raise TypeError(f"changes must be a Spark DataFrame, not {type(changes).__name__}")
    names = changes.columns
    before: tuple[str, ...] = ()
    if (name := metadata_names(names).get("_before")) is not None:
        kind: Any = changes.schema.fields[names.index(name)].dataType
        before = tuple(kind.fieldNames())
    return ChangeColumns.from_names(names, before, keys)


def numbered(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the changes, numbered; see :class:`ChangeColumns`."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    numbers = dict(zip(columns.table, columns.numbers, strict=True))
    numbers |= {actual: name for name, actual in columns.metadata.items()}
    renamed = changes.toDF(*(numbers[name] for name in changes.columns))
    if not columns.before:
        return renamed
    kind: Any = renamed.schema["_before"].dataType
    members = StructType()
    for place, field in enumerate(kind.fields):
        members.add(numbers.get(field.name, f"dropped{place}"), field.dataType)
    return renamed.withColumn("_before", functions.col("_before").cast(members))


def events_by_key(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return numbered changes by key; see :func:`~pgwire_codec.lake.fold.key_events`."""
    from pyspark.sql.types import StructType

    # Of the old tuple, only the values are needed after this.
    before = ["_before"] if any(map(columns.in_before, columns.values)) else []
    schema = StructType()
    for name in (*columns.numbers, "_op", "_unchanged", *before, *columns.row_metadata):
        schema.add(name, changes.schema[name].dataType)
    schema.add("moved", "boolean").add("leaving", "boolean")
    names = schema.names

    def run(batches: Batches) -> Batches:
        return (key_events(batch, columns).select(names) for batch in batches)

    return map_in_arrow(changes, run, schema)
