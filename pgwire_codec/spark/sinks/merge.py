"""merge_into: application of a batch of changes to a Delta table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.spark.reduction.change_columns import ChangeColumns
from pgwire_codec.spark.sinks.delta_rs import DeltaRs
from pgwire_codec.spark.sinks.delta_spark import DeltaSpark
from pgwire_codec.spark.sinks.target import Batch, Merged, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def merge_into(
    changes: DataFrame,
    target: str,
    keys: Sequence[str] | None,
    *,
    engine: str = "delta-rs",
    app_id: str = "pgwire_codec",
    storage_options: Mapping[str, str] | None = None,
) -> Merged:
    """Apply changes of a table to a Delta table, as one commit.

    Each row is left in its last state, as by :func:`latest`: deletes, truncates and changes of a
    key are applied. A value that was not sent (unchanged TOAST) keeps its value in the target, or
    moves with its row to the new key. The target is created if it does not exist.

    The commit records the last commit LSN under ``app_id`` in the Delta log (a ``txn`` action).
    Changes up to the recorded LSN are skipped. So a batch that is repeated, older or overlapping
    changes nothing twice, after any failure. Batches must therefore consist of whole transactions
    in the order of their commits, as those of ``format("pgoutput")`` do.

    A table is a relation, independent of its name. If the changes have the column
    ``_relation_oid``, the commit also records the relation that changed last, and changes of others
    are left out. If another relation than the recorded one changed last, the batch replaces the
    rows of the target. It must then have all changes of this relation, as the micro-batches of
    ``format("pgoutput")`` with ``onRelationChange=replace`` do.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, as :func:`decode_changes` and ``format("pgoutput")`` return them; in
        ``foreachBatch`` the batch.
    target : str
        Path or URI of the Delta table.
    keys : sequence of str or None
        Columns that identify a row: the replica identity, or a sufficient part of it. None is for
        tables without a key, as for :func:`latest`: of equal rows in the target, as many are
        deleted as the changes remove.
    engine : {"delta-rs", "delta-spark"}
        Program that merges. delta-rs, of the extra ``delta``, does it in this process and needs no
        jar: the net changes, a row for each key, must fit into the memory of the driver.
        delta-spark does it on the executors, by ``MERGE INTO``: the session needs Delta's jars, and
        must not be one of Spark Connect. A target belongs to one engine.
    app_id : str
        Name of the stream of changes. A target with changes from several slots needs one for each.
        Another relation replaces all rows of the target, so changes with ``_relation_oid`` need a
        target of their own.
    storage_options : mapping, optional
        Options of an object store, as for ``deltalake.DeltaTable``. delta-spark takes those of the
        session.

    Returns
    -------
    Merged

    Raises
    ------
    MissingExtraError
        For delta-rs, without the extra ``delta``.
    OptionError
        For another engine, and for delta-spark in a session that cannot merge.
    TableError
        When a metadata column is missing, a key column is not in the replica identity, the target
        lacks a column or belongs to the other engine, or column names differ in case only. Also
        when the target lacks the row of an update that did not send all values or, without keys,
        has fewer rows than the changes remove: then earlier changes are missing there. Nothing is
        applied.

    Examples
    --------
    ::

        def apply(batch, batch_id):
            merge_into(batch, "/lake/orders", keys=["id"])

        changes.writeStream.foreachBatch(apply).option("checkpointLocation", ...).start()
    """
    from pyspark.sql import functions

    columns = ChangeColumns.of(changes, keys)
    opened = _open(changes.sparkSession, engine, target, app_id, storage_options)
    _check_names(columns)
    _check_columns(opened, columns, target)
    applied = opened.applied
    numbered = columns.numbered(changes)
    fresh = numbered
    if applied.commit_lsn is not None:
        fresh = numbered.where(functions.col("_commit_lsn") > applied.commit_lsn)
    fresh = fresh.persist()
    try:
        newest, relation = _newest(fresh)
        if newest is None:
            return Merged(applied.commit_lsn)
        is_other = None not in (relation, applied.relation) and relation != applied.relation
        # For a relation that the target does not have, older changes are applied, too.
        current = numbered if is_other else fresh
        if relation is not None:
            current = current.where(functions.col(RELATION_OID) == relation)
        empties = is_other or not current.where("_op = 'T'").isEmpty()
        return opened.merge(Batch(current, columns, keys is not None, newest, relation, empties))
    finally:
        fresh.unpersist()


def _open(
    spark: SparkSession,
    engine: str,
    target: str,
    app_id: str,
    storage_options: Mapping[str, str] | None,
) -> Target:
    if engine == "delta-rs":
        return DeltaRs(target, app_id, dict(storage_options or {}))
    if engine != "delta-spark":
        raise OptionError(f"engine must be 'delta-rs' or 'delta-spark', not {engine!r}")
    if storage_options:
        raise OptionError(
            "storage_options are for delta-rs",
            hint="For delta-spark, configure Hadoop's file systems in the session.",
        )
    return DeltaSpark(spark, target, app_id)


def _newest(changes: DataFrame) -> tuple[int | None, int | None]:
    """Return the last commit LSN, and the OID of the relation that changed last, if known."""
    from pyspark.sql import functions

    relation = RELATION_OID if RELATION_OID in changes.columns else functions.lit(None)
    place = functions.struct("_commit_lsn", "_seq", relation)
    ((newest,),) = changes.agg(functions.max(place)).collect()
    return (None, None) if newest is None else (newest[0], newest[2])


def _check_names(columns: ChangeColumns) -> None:
    """Raise ``TableError`` for columns that have the same name in a Delta table."""
    of_name: dict[str, list[str]] = {}
    for name in columns.table:
        of_name.setdefault(name.lower(), []).append(name)
    for names in of_name.values():
        if len(names) > 1:
            raise TableError(
                f"columns {', '.join(names)} differ in case only, which Delta does not support",
                hint="Set spark.sql.caseSensitive to true, and rename all but one of them "
                "(DataFrame.withColumnRenamed), or leave them out.",
            )


def _check_columns(opened: Target, columns: ChangeColumns, target: str) -> None:
    if opened.columns is None:
        return
    missing = [name for name in columns.table if name not in opened.columns]
    if missing:
        raise TableError(
            f"{target} has no column {', '.join(missing)}",
            hint="Add it to the target (ALTER TABLE … ADD COLUMN, or DeltaTable.alter.add_columns),"
            f" or leave it out of the changes. The target's columns are "
            f"{', '.join(opened.columns)}.",
        )
