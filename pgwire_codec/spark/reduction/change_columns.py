"""Columns of a DataFrame of changes, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import metadata_names
from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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


def new_key(columns: ChangeColumns, number: int) -> Column:
    """Return a key column after a change. A long key may be sent in the old tuple only."""
    from pyspark.sql import functions

    sent = functions.col(f"c{number}")
    if not columns.in_before(number):
        return sent
    is_unchanged = functions.array_contains("_unchanged", columns.table[number])
    return functions.when(is_unchanged, functions.col("_before")[f"c{number}"]).otherwise(sent)


def old_key(columns: ChangeColumns, number: int) -> Column:
    """Return a key column before a change."""
    from pyspark.sql import functions

    updated = functions.col("_op") == "U"
    if not columns.before:
        # The server refuses updates without a replica identity, so _before was left out.
        no_before = stop(
            "update without _before: changes of the key cannot be detected",
            hint='Decode with `before="key"`.',
        )
        return functions.when(updated, no_before).otherwise(new_key(columns, number))
    before = functions.col("_before")
    has_before = updated & before.isNotNull()
    return functions.when(has_before, before[f"c{number}"]).otherwise(new_key(columns, number))


def stop(message: str, hint: str) -> Column:
    """Return an expression that raises an error."""
    from pyspark.sql import functions

    return functions.raise_error(functions.lit(str(TableError(message, hint=hint))))
