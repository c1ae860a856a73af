"""Keys of the rows that a range of the log changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import metadata_names
from pgwire_codec.log import Log
from pgwire_codec.spark.comparing.compared_columns import KEY, ComparedColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of a table that a range of the log changes.

    Attributes
    ----------
    last_lsn : int or None
        Commit LSN of the last transaction that changes some; None without one.
    keys : DataFrame or None
        Hashes of their keys, before and after; None if all rows may change.
    """

    last_lsn: int | None
    keys: DataFrame | None


def changed_rows(
    spark: SparkSession,
    log: Log,
    oid: int,
    after: int,
    until: int,
    columns: ComparedColumns,
    options: Mapping[str, str],
) -> ChangedRows | None:
    """Return the rows of a relation that change in a range of commit LSNs, or None if none does."""
    from pyspark.sql import functions

    until = min(until, log.end.lsn)
    if until <= after or oid not in log.relations_at(until).relations:
        return None
    reader = spark.read.format("pgoutput").options(**options, path=log.uri)
    changes = reader.options(
        relationOid=str(oid), startingLsn=str(after), endingLsn=str(until)
    ).load()
    names = metadata_names(changes.columns)
    last, truncates = changes.agg(
        functions.max(names["_commit_lsn"]),
        functions.max(functions.col(names["_op"]) == "T"),
    ).collect()[0]
    if last is None:
        return None
    return ChangedRows(last, None if truncates else _keys(changes, names, columns))


def _keys(
    changes: DataFrame, names: Mapping[str, str], columns: ComparedColumns
) -> DataFrame | None:
    """Return the hashes of the old and new keys; None if the changes lack a column of them."""
    from pyspark.sql import functions

    own = [name for name in changes.columns if name not in set(names.values())]
    places = {name: functions.col(f"p{place}") for place, name in enumerate(changes.columns)}
    placed = changes.toDF(*(f"p{place}" for place in range(len(changes.columns))))
    if not columns.keys or (columns.has_keys and not set(columns.keys) <= set(own)):
        return None
    if "_before" not in names:
        new = placed.select(*(places[name].alias(name) for name in own))
        return _hashes(new, columns).distinct()
    old = places[names["_before"]]
    kind: Any = changes.schema[names["_before"]].dataType
    held = kind.names
    if columns.has_keys and not set(columns.keys) <= set(held):
        return None
    unchanged = places[names["_unchanged"]]
    new = placed.select(
        *(
            # A value that was not sent is in the old row, if that is the key.
            functions.when(functions.array_contains(unchanged, name), old.getField(name))
            .otherwise(places[name])
            .alias(name)
            if name in held
            else places[name].alias(name)
            for name in own
        )
    )
    before = placed.where(old.isNotNull()).select(
        *(old.getField(name).alias(name) for name in held)
    )
    return _hashes(new, columns).unionAll(_hashes(before, columns)).distinct()


def _hashes(rows: DataFrame, columns: ComparedColumns) -> DataFrame:
    return columns.rows(rows).select(columns.key_hash().alias(KEY))
