"""Parquet files that Spark's tasks add to a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgwire_codec.spark.sinks.sessions import global_view, session_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Settings of a session that writes. By default, old releases write timestamps as INT96, in which
#: other programs read those after 2262 as other ones, and refuse dates before 1582.
PARQUET_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}

#: Options of a write.
_OPTIONS: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def append_parquet(
    spark: SparkSession, rows: DataFrame, path: str, name: str, *partitions: str
) -> None:
    """Add files with rows to a folder, which need not exist.

    Their names begin with ``name``. If this fails, some of them may be there. ``partitions`` are
    the columns of Hive-style partitions.
    """
    with session_with(spark, PARQUET_SETTINGS) as session, global_view(spark, rows) as view:
        writer = session.table(view).write.mode("append").partitionBy(*partitions)
        writer.options(**_OPTIONS | {"mapreduce.output.basename": name}).parquet(path)
