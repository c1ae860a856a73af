"""Rows that two DataFrames do not have in common, by order-independent checksums.

Rows are put into buckets by the hash of their key. The number of rows and the sum of their hashes
is compared in each bucket: that is an aggregate, which moves no rows. Only rows of buckets that
differ are then grouped by their hashes. Equal checksums show equal rows but for a chance of about
1 in 2 to the power of 64; they do not protect from rows that were made to collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgwire_codec.spark.comparing.compared_columns import KEY, ROW, ComparedColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BUCKETS: Final = 1024
_LOW: Final = 0xFFFFFFFF

#: Columns of the rows that differ: how many of them more the server has, and their values.
NET: Final = "net"
VALUES: Final = "values"


@dataclass(frozen=True, slots=True)
class Counted:
    """Numbers of rows, and the rows that differ.

    Attributes
    ----------
    server_rows, target_rows : int
    differing : DataFrame or None
        A row of key hash, row hash, ``net`` and ``values`` for each distinct row that one side has
        more often; None without any.
    """

    server_rows: int
    target_rows: int
    differing: DataFrame | None


def count_rows(server: DataFrame, target: DataFrame, columns: ComparedColumns) -> Counted:
    """Compare two DataFrames of compared rows."""
    from pyspark.sql import functions

    col, lit, when = functions.col, functions.lit, functions.when
    both = server.withColumn("side", lit(1)).unionAll(target.withColumn("side", lit(-1)))
    both = both.withColumn(KEY, columns.key_hash()).withColumn(ROW, columns.row_hash())
    both = both.withColumn("bucket", functions.pmod(col(KEY), lit(_BUCKETS)).cast("int"))
    halves = (col(ROW).bitwiseAND(lit(_LOW)), functions.shiftrightunsigned(col(ROW), 32))
    buckets = (
        both.groupBy("bucket")
        .agg(
            functions.count(when(col("side") == 1, 1)).alias("server"),
            functions.count(when(col("side") == -1, 1)).alias("target"),
            *(functions.sum(col("side") * half) for half in halves),
        )
        .collect()
    )
    different = [bucket for bucket, one, other, *sums in buckets if one != other or any(sums)]
    return Counted(
        sum(each["server"] for each in buckets),
        sum(each["target"] for each in buckets),
        _differing(both, columns, different) if different else None,
    )


def _differing(both: DataFrame, columns: ComparedColumns, buckets: Sequence[int]) -> DataFrame:
    from pyspark.sql import functions

    if len(buckets) < _BUCKETS // 2:
        both = both.where(functions.col("bucket").isin(list(buckets)))
    values = functions.struct(*columns.numbers.values())
    rows = both.groupBy(KEY, ROW).agg(
        functions.sum("side").alias(NET), functions.first(values).alias(VALUES)
    )
    return rows.where(functions.col(NET) != 0)
