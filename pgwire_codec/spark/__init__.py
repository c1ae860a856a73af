"""Decode on Spark: logs, DataFrames and RDDs of messages become changes, and changes tables."""

from typing import TYPE_CHECKING, Any

from pgwire_codec.errors import MissingExtraError

try:
    import pyarrow  # noqa: F401  (asked for here, so that the message is a clear one)
    import pyspark  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        f"pgwire_codec.spark needs {error.name}: pip install 'pgwire-codec[spark]'"
    ) from error

from pgwire_codec.spark.auto_cdc import auto_cdc_rows
from pgwire_codec.spark.changes import PlannedChanges, decode_changes, plan_changes
from pgwire_codec.spark.merge import Merged, merge_into
from pgwire_codec.spark.partition import decode_partition, plan_partitions
from pgwire_codec.spark.tables import latest

if TYPE_CHECKING:
    from pgwire_codec.spark.source import PgoutputDataSource

__all__ = [
    "Merged",
    "PgoutputDataSource",
    "PlannedChanges",
    "auto_cdc_rows",
    "decode_changes",
    "decode_partition",
    "latest",
    "merge_into",
    "plan_changes",
    "plan_partitions",
]


def __getattr__(name: str) -> Any:
    # Spark has data sources in Python since 4.0; the rest is for 3.5, too.
    if name == "PgoutputDataSource":
        from pgwire_codec.spark.source import PgoutputDataSource

        return PgoutputDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
