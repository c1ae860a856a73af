"""Alignment of changes with the columns of the target that they are merged into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import metadata_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


def table_columns(changes: DataFrame) -> dict[str, DataType]:
    """Return the types of the table's columns, without those of the metadata, by name."""
    metadata = set(metadata_names(changes.columns).values())
    return {each.name: each.dataType for each in changes.schema if each.name not in metadata}


def align(changes: DataFrame, held: Mapping[str, DataType], *, fills: bool) -> DataFrame:
    """Return changes with the columns of a target, in its types.

    A column that the target lacks is left out. One that the table lacks is null, if it ``fills``
    those: a row that is written again has no value of a column that was dropped.
    """
    from pyspark.sql import functions

    own = table_columns(changes)
    names = metadata_names(changes.columns)
    selected = []
    for place, name in enumerate(changes.columns):
        column = functions.col(f"c{place}")
        if name in own:
            if name not in held:
                continue
            if held[name] != own[name]:
                column = column.cast(held[name])
        elif name == names.get("_before"):
            column = column.cast(_aligned_struct(changes.schema[place].dataType, held))
        selected.append(column.alias(name))
    if fills:
        missing = (name for name in held if name not in changes.columns)
        selected += [functions.lit(None).cast(held[name]).alias(name) for name in missing]
    return changes.toDF(*(f"c{place}" for place in range(len(changes.columns)))).select(*selected)


def _aligned_struct(kind: Any, held: Mapping[str, DataType]) -> DataType:
    """Return the type of ``_before`` with the types of a target."""
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(each.name, held.get(each.name, each.dataType)) for each in kind.fields]
    return StructType(fields)
