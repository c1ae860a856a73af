"""Rows of a table without a key that changes add and remove, in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.row_counts import ROW_HASH, count_rows, split_updates
from pgwire_codec.spark.reduction.map_in_arrow import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def row_changes(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the rows that changes add and remove on balance.

    The changes are without truncates, as :func:`lasting_changes` returns them.

    Its columns: ``c0``, ``c1``, … the row; the metadata of the change that added it; ``removed``
    boolean, for rows that existed before these changes; ``count`` long, the number of such rows
    that were removed, or 1 for a row that was added.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType, LongType, StructField, StructType

    kinds = {field.name: field.dataType for field in changes.schema}
    names = [*columns.numbers, *columns.row_metadata]
    fields = [StructField(name, kinds[name]) for name in names]
    fields.append(StructField("removed", BooleanType()))
    counted = [*fields, StructField("count", LongType())]
    needed = changes.select(*columns.numbers, *columns.metadata)
    events = map_in_arrow(needed, _split(columns), StructType(fields))
    exact = {
        name: functions.col(name).cast(_comparable(kinds[name])).alias(f"exact_{name}")
        for name in columns.numbers
        if kinds[name] != _comparable(kinds[name])
    }
    compared = [f"exact_{name}" if name in exact else name for name in columns.numbers]
    hashed = events.select("*", *exact.values())
    hashed = hashed.withColumn(ROW_HASH, functions.xxhash64(*compared))
    ordered = hashed.repartition(ROW_HASH).sortWithinPartitions(
        ROW_HASH,
        *compared,
        functions.col("_commit_lsn").desc(),
        functions.col("_seq").desc(),
        "removed",
    )
    return map_in_arrow(ordered, _count(compared, names), StructType(counted))


def _split(columns: ChangeColumns) -> Callable[[Batches], Batches]:
    return lambda batches: (split_updates(batch, columns) for batch in batches)


def _comparable(kind: Any) -> Any:
    """Return the type in which values are compared: floats as text, where -0.0 and 0.0 differ."""
    from pyspark.sql.types import ArrayType, DecimalType, FractionalType, StringType

    if isinstance(kind, ArrayType):
        return ArrayType(_comparable(kind.elementType), kind.containsNull)
    is_float = isinstance(kind, FractionalType) and not isinstance(kind, DecimalType)
    return StringType() if is_float else kind


def _count(compared: list[str], names: list[str]) -> Callable[[Batches], Batches]:
    return lambda batches: count_rows(batches, compared, names)
