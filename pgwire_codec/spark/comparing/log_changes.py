"""Keys of the rows that a range of the log changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import metadata_names
from pgwire_codec.lake.identity import column_names, key_columns
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.protocol.messages import Relation
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
    history: RelationHistory,
    oid: int,
    after: int,
    until: int,
    columns: ComparedColumns | None,
    options: Mapping[str, str],
) -> ChangedRows | None:
    """Return the rows of a relation that change in a range of commit LSNs, or None if none does.

    Without ``columns``, all rows may change if one does.
    """
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
    if truncates or columns is None:
        return ChangedRows(last, None)
    versions = [each.relation for each in history.between(oid, after, until)]
    if not _have_old_keys(versions, columns):
        return ChangedRows(last, None)
    return ChangedRows(last, _keys(changes, names, columns))


def _have_old_keys(versions: Sequence[Relation], columns: ComparedColumns) -> bool:
    """Return whether each change that changes a row's key has the key that the target has.

    A change has old values of the replica identity only. If whole rows are the keys, those of the
    target have the columns of the first version, and old rows of later changes have other ones.
    """
    if not columns.has_keys and len({version.columns for version in versions}) > 1:
        return False
    if len({_has_inserts_only(version) for version in versions}) > 1:
        return False
    keys = set(columns.keys)
    return all(keys <= set(key_columns(each) or column_names(each)) for each in versions)


def _has_inserts_only(version: Relation) -> bool:
    """Return whether rows have no identity, so that the server refuses to change them."""
    return version.replica_identity != "f" and key_columns(version) is None


def _keys(changes: DataFrame, names: Mapping[str, str], columns: ComparedColumns) -> DataFrame:
    """Return the hashes of the old and new keys."""
    from pyspark.sql import functions

    own = [name for name in changes.columns if name not in set(names.values())]
    places = {name: functions.col(f"p{place}") for place, name in enumerate(changes.columns)}
    placed = changes.toDF(*(f"p{place}" for place in range(len(changes.columns))))
    if "_before" not in names:
        new = placed.select(*(places[name].alias(name) for name in own))
        return _hashes(new, columns).distinct()
    old = places[names["_before"]]
    kind: Any = changes.schema[names["_before"]].dataType
    held = kind.names
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
