"""Delta tables by delta-rs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import missing_extra
from pgwire_codec.spark.sinks.delta_bounds import bounds_property, floating_columns

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties
    from pyspark.sql.types import StructType

#: Properties of new tables. By default, delta-rs writes a checkpoint after 100 commits: to open a
#: table, it then reads the files of up to 99, each in a thread.
NEW_TABLE: Final = {"delta.checkpointInterval": "10"}


def deltalake() -> Any:
    """Return the module of delta-rs. Raises ``MissingExtraError`` if it is not installed."""
    try:
        import deltalake
    except ImportError:
        raise missing_extra("Delta tables without delta-spark need deltalake", "delta") from None
    return deltalake


def absolute(path: str) -> str:
    """Return the path or URI of a table as tasks find it: they have another working directory."""
    return path.rstrip("/") if "://" in path else str(Path(path).absolute())


def open_table(path: str, options: dict[str, str]) -> DeltaTable | None:
    """Return a table; None if it does not exist. ``options`` are its ``storage_options``."""
    delta = deltalake()
    if not delta.DeltaTable.is_deltatable(path, options):
        return None
    table: DeltaTable = delta.DeltaTable(path, storage_options=options)
    return table


def create_table(path: str, schema: StructType, options: dict[str, str]) -> DeltaTable:
    """Create a table without rows."""
    delta = deltalake()
    table: DeltaTable = delta.DeltaTable.create(
        path,
        schema=delta.Schema.from_json(schema.json()),
        configuration=NEW_TABLE | bounds_property(schema.json()),
        storage_options=options or None,
    )
    return table


def writer_properties(schema: str) -> WriterProperties | None:
    """Return how files of a table with a schema, in JSON, are written; None for the default.

    Without bounds of floating-point columns: see :mod:`.delta_bounds`.
    """
    floating = floating_columns(schema)
    if not floating:
        return None
    delta = deltalake()
    without = delta.ColumnProperties(statistics_enabled="NONE")
    properties: WriterProperties = delta.WriterProperties(
        compression="SNAPPY",  # the default of delta-rs, which these properties override
        column_properties=dict.fromkeys(floating, without),
    )
    return properties
