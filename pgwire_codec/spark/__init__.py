"""Decoding on Spark: from logs, DataFrames and RDDs of messages to changes and tables."""

import importlib
from typing import TYPE_CHECKING, Any

from pgwire_codec.errors import missing_extra

if TYPE_CHECKING:
    from pgwire_codec.comparing.result import Comparison, RowDifference, TableComparison
    from pgwire_codec.spark.comparison import compare
    from pgwire_codec.spark.dead_letters import read_dead_letters
    from pgwire_codec.spark.decode.dataframe import PlannedChanges, decode_changes, plan_changes
    from pgwire_codec.spark.decode.rdd import decode_partition, plan_partitions
    from pgwire_codec.spark.mirror import mirror, replay_table, resume_table
    from pgwire_codec.spark.reduction.latest import latest
    from pgwire_codec.spark.sinks.auto_cdc import auto_cdc_rows
    from pgwire_codec.spark.sinks.merge import Merged, merge_into
    from pgwire_codec.spark.source import PgoutputDataSource

__all__ = [
    "Comparison",
    "Merged",
    "PgoutputDataSource",
    "PlannedChanges",
    "RowDifference",
    "TableComparison",
    "auto_cdc_rows",
    "compare",
    "decode_changes",
    "decode_partition",
    "latest",
    "merge_into",
    "mirror",
    "plan_changes",
    "plan_partitions",
    "read_dead_letters",
    "replay_table",
    "resume_table",
]

# Imported at first use: Spark 3.5 has no data sources in Python, and the table of
# Spark's Arrow types needs no Spark.
_NAMES = {
    ".comparing.result": ("Comparison", "RowDifference", "TableComparison"),
    "comparison": ("compare",),
    "dead_letters": ("read_dead_letters",),
    "decode.dataframe": ("PlannedChanges", "decode_changes", "plan_changes"),
    "decode.rdd": ("decode_partition", "plan_partitions"),
    "mirror": ("mirror", "replay_table", "resume_table"),
    "reduction.latest": ("latest",),
    "sinks.auto_cdc": ("auto_cdc_rows",),
    "sinks.merge": ("Merged", "merge_into"),
    "source": ("PgoutputDataSource",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pyarrow  # noqa: F401  (here, for a clear error message)
        import pyspark  # noqa: F401
    except ImportError as error:
        raise missing_extra(f"pgwire_codec.spark needs {error.name}", "spark") from error
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value
