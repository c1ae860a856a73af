"""Rows that Spark keeps while they are used more than once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Yield rows that Spark keeps meanwhile, on the executors."""
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()
