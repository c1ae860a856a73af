"""Partitions of rows that are reduced together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def repartitioned(rows: DataFrame, partitions: int | None, *columns: str) -> DataFrame:
    """Return rows of which equal ones in some columns are in the same partition."""
    if partitions is None:
        return rows.repartition(*columns)
    if partitions == 1:  # without a shuffle if they are in one partition already
        return rows.coalesce(1)
    return rows.repartition(partitions, *columns)
