"""Alignment of changes with the columns of the target that they are merged into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import free_name, metadata_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


def table_columns(changes: DataFrame) -> dict[str, DataType]:
    """Return the types of the table's columns, without those of the metadata, by name."""
    metadata = set(metadata_names(changes.columns).values())
    return {each.name: each.dataType for each in changes.schema if each.name not in metadata}


def align(changes: DataFrame, held: Mapping[str, DataType], *, fills: bool) -> DataFrame:
    """Return changes with the columns of a target, in its types, then the metadata columns.

    A column that the target lacks is left out. One that the table lacks is null, if it ``fills``
    those: a row that is written again has no value of a column that was dropped. Metadata columns
    get a further underscore if a column has their name.
    """
    from pyspark.sql import functions

    columns = {name: functions.col(f"c{place}") for place, name in enumerate(changes.columns)}
    selected = {}
    for name, kind in table_columns(changes).items():
        if name in held:
            column = columns[name]
            selected[name] = column if held[name] == kind else column.cast(held[name])
    if fills:
        missing = (name for name in held if name not in selected)
        selected |= {name: functions.lit(None).cast(held[name]) for name in missing}
    for usual, name in metadata_names(changes.columns).items():
        column = columns[name]
        if usual == "_before":
            column = column.cast(_aligned_struct(changes.schema[name].dataType, held))
        selected[free_name(usual, selected)] = column
    placed = changes.toDF(*(f"c{place}" for place in range(len(changes.columns))))
    return placed.select(*(column.alias(name) for name, column in selected.items()))


def _aligned_struct(kind: Any, held: Mapping[str, DataType]) -> DataType:
    """Return the type of ``_before`` with the types of a target."""
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(each.name, held.get(each.name, each.dataType)) for each in kind.fields]
    return StructType(fields)
