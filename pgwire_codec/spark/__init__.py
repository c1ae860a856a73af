"""Decode on Spark: DataFrames and RDDs of messages become changes, in parallel."""

from pgwire_codec.errors import MissingExtraError

try:
    import pyarrow  # noqa: F401  (asked for here, so that the message is a clear one)
    import pyspark  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        f"pgwire_codec.spark needs {error.name}: pip install 'pgwire-codec[spark]'"
    ) from error

from pgwire_codec.spark.changes import PlannedChanges, decode_changes, plan_changes
from pgwire_codec.spark.partition import decode_partition, plan_partitions

__all__ = [
    "PlannedChanges",
    "decode_changes",
    "decode_partition",
    "plan_changes",
    "plan_partitions",
]
