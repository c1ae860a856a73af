"""Decode on Spark: logs, DataFrames and RDDs of messages become changes, and changes tables."""

import importlib
from typing import TYPE_CHECKING, Any

from pgwire_codec.errors import MissingExtraError

if TYPE_CHECKING:
    from pgwire_codec.spark.auto_cdc import auto_cdc_rows
    from pgwire_codec.spark.changes import PlannedChanges, decode_changes, plan_changes
    from pgwire_codec.spark.merge import Merged, merge_into
    from pgwire_codec.spark.partition import decode_partition, plan_partitions
    from pgwire_codec.spark.source import PgoutputDataSource
    from pgwire_codec.spark.tables import latest

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

# Loaded when they are first asked for: Spark 3.5 has no data sources in Python, and the table of
# Spark's Arrow types needs no Spark.
_MODULES = {
    "Merged": "merge",
    "PgoutputDataSource": "source",
    "PlannedChanges": "changes",
    "auto_cdc_rows": "auto_cdc",
    "decode_changes": "changes",
    "decode_partition": "partition",
    "latest": "tables",
    "merge_into": "merge",
    "plan_changes": "changes",
    "plan_partitions": "partition",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pyarrow  # noqa: F401  (asked for here, so that the message is a clear one)
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"pgwire_codec.spark needs {error.name}",
            hint="Install it with: pip install 'pgwire-codec[spark]'",
        ) from error
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
