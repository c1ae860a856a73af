"""merge_into: application of a batch of changes to a table of a lakehouse, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.spark.kept_rows import kept
from pgwire_codec.spark.reduction.change_columns import columns_of, numbered
from pgwire_codec.spark.sinks.delta_rs import DeltaRs
from pgwire_codec.spark.sinks.delta_spark import DeltaSpark
from pgwire_codec.spark.sinks.iceberg import Iceberg
from pgwire_codec.spark.sinks.survey import Survey, is_after, is_of
from pgwire_codec.spark.sinks.target import Applied, Batch, Merged, Target

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
    """Apply changes of a table to a Delta or Iceberg table, as one commit.

    Each row is left in its last state, as by :func:`latest`: deletes, truncates and changes of a
    key are applied. A value that was not sent (unchanged TOAST) keeps its value in the target, or
    moves with its row to the new key. The target is created if it does not exist. A Delta table
    from elsewhere, whose bounds may not contain its values, is first written again in one commit.

    The commit records the last commit LSN under ``app_id``: in the Delta log (a ``txn`` action), or
    in the properties of the Iceberg snapshot and of the table (``{app_id}.commit_lsn``). Changes up
    to the recorded LSN are skipped. So a batch that is repeated, older or overlapping changes
    nothing twice, after any failure. Batches must therefore consist of whole transactions in the
    order of their commits, as those of ``format("pgoutput")`` do.

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
        Path or URI of the Delta table. For the engine iceberg, the name of the table in a catalog
        of the session, ``CATALOG.NAMESPACE.TABLE``, as in SQL.
    keys : sequence of str or None
        Columns that identify a row: the replica identity, or a sufficient part of it. None is for
        tables without a key, as for :func:`latest`: of equal rows in the target, as many are
        deleted as the changes remove.
    engine : {"delta-rs", "delta-spark", "iceberg"}
        Program that merges, on the executors. delta-rs, of the extra ``delta``, does it in one task
        and needs no jar: the net changes, a row for each key, must fit into its memory. delta-spark
        and iceberg do it in many tasks, by ``MERGE INTO``: the session needs Delta's jars, or
        Iceberg's Spark runtime, and must not be one of Spark Connect. A target belongs to one
        engine.
    app_id : str
        Name of the stream of changes. A target with changes from several slots needs one for each.
        Another relation replaces all rows of the target, so changes with ``_relation_oid`` need a
        target of their own.
    storage_options : mapping, optional
        Options of an object store, as for ``deltalake.DeltaTable``. The other engines take those of
        the session.

    Returns
    -------
    Merged

    Raises
    ------
    MissingExtraError
        For delta-rs, without the extra ``delta``.
    OptionError
        For another engine, and in a session that cannot merge with the engine.
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
    columns = columns_of(changes, keys)
    opened = open_target(changes.sparkSession, engine, target, app_id, storage_options)
    check_names(columns)
    _check_columns(opened, columns, target)
    merged, _ = apply_changes(opened, changes, columns)
    return merged


def apply_changes(
    target: Target,
    changes: DataFrame,
    columns: ChangeColumns,
    *,
    replaces: bool = False,
    appends: bool = False,
    survey: Survey | None = None,
    after: int | None = None,
) -> tuple[Merged, Survey | None]:
    """Apply changes to a target that has their columns; see :func:`merge_into`.

    With ``replaces``, the rows and the columns of the target are replaced. With ``appends``, the
    changes are inserts without a key, of whatever relation. The ``survey`` of the changes is made
    if it is not known. It is returned, too; None without changes. With ``after``, the changes after
    that LSN are applied, also those that the target has.
    """
    applied = replace(target.applied, relation=None) if appends else target.applied
    held = -1 if applied.commit_lsn is None else applied.commit_lsn
    if after is None:
        after = held
    else:
        applied = replace(applied, commit_lsn=after)
    rows = numbered(changes, columns)
    if survey is not None and survey.sends_all:  # the changes are used once
        return _apply(target, _batch(rows, columns, survey, applied), survey, replaces), survey
    with kept(rows):
        survey = survey or Survey.of(rows, after)
        if survey is None or survey.commit_lsn <= after:
            return Merged(applied.commit_lsn), survey
        batch = _batch(rows, columns, survey, applied)
        batch = replace(batch, commit_lsn=max(batch.commit_lsn, held))
        return _apply(target, batch, survey, replaces), survey


def create_table(
    target: Target, changes: DataFrame, columns: ChangeColumns, commit_lsn: int, relation: int
) -> None:
    """Create a target without rows, which has the columns of changes, none of which is applied.

    Its commit records that it has all changes of the relation up to a commit LSN.
    """
    from pyspark.sql import functions

    none = numbered(changes, columns).where(functions.lit(False))
    survey = Survey(commit_lsn, None, relation, None, has_inserts_only=True, rows=0, partitions=1)
    target.append(_batch(none, columns, survey, Applied()), 0)


def _apply(target: Target, batch: Batch, survey: Survey, replaces: bool) -> Merged:
    if replaces:
        return target.replace(batch)
    is_new = survey.has_inserts_only and not batch.empties
    if is_new and (not batch.has_keys or target.is_empty):
        return target.append(batch, survey.rows)
    return target.merge(batch)


def _batch(rows: DataFrame, columns: ChangeColumns, survey: Survey, applied: Applied) -> Batch:
    """Return the changes that a target does not have yet, after the last truncate."""
    from pyspark.sql import functions

    col, lit = functions.col, functions.lit
    is_other = None not in (survey.relation, applied.relation) and (
        survey.relation != applied.relation
    )
    changes = rows
    empties = is_other
    # For a relation that the target does not have, older changes are applied, too.
    if applied.commit_lsn is not None and not is_other:
        changes = changes.where(is_after(applied.commit_lsn))
    if survey.relation is not None:
        changes = changes.where(is_of(survey.relation))
    if survey.truncated is not None:
        lsn, seq = survey.truncated
        empties = empties or applied.commit_lsn is None or lsn > applied.commit_lsn
        place = functions.struct("_commit_lsn", "_seq")
        last = functions.struct(lit(lsn).alias("_commit_lsn"), lit(seq).cast("long").alias("_seq"))
        changes = changes.where((col("_op") != "T") & (place > last))
    return Batch(
        changes,
        columns.without_row_metadata(),
        survey.commit_lsn,
        survey.commit_time,
        survey.relation,
        empties,
        survey.sends_all,
        survey.partitions,
    )


def open_target(
    spark: SparkSession,
    engine: str,
    target: str,
    app_id: str,
    storage_options: Mapping[str, str] | None,
    source: str | None = None,
) -> Target:
    """Return a table, which need not exist; see :func:`merge_into`.

    ``source`` is the name of the table whose changes it has, if that is known.
    """
    if engine == "delta-rs":
        return DeltaRs(target, app_id, dict(storage_options or {}))
    if engine not in ("delta-spark", "iceberg"):
        raise OptionError(f"engine must be 'delta-rs', 'delta-spark' or 'iceberg', not {engine!r}")
    if storage_options:
        raise OptionError(
            "storage_options are for delta-rs",
            hint=f"For {engine}, configure Hadoop's file systems or the catalog in the session.",
        )
    if engine == "iceberg":
        return Iceberg(spark, target, app_id, source)
    return DeltaSpark(spark, target, app_id)


def check_names(columns: ChangeColumns, table: str | None = None) -> None:
    """Raise ``TableError`` for columns that have the same name in a lakehouse.

    ``table`` is the name of a table that is mirrored, whose columns masks leave out.
    """
    of_name: dict[str, list[str]] = {}
    for name in columns.table:
        of_name.setdefault(name.lower(), []).append(name)
    for names in of_name.values():
        if len(names) > 1:
            raise TableError(
                f"columns {', '.join(names)} differ in case only, which lakehouses do not support",
                hint="Set spark.sql.caseSensitive to true, and rename all but one of them "
                "(DataFrame.withColumnRenamed), or leave them out."
                if table is None
                else f"Leave all but one of them out, as by --mask {table}.{names[-1]}=drop, and "
                "resume the table.",
            )


def _check_columns(opened: Target, columns: ChangeColumns, target: str) -> None:
    if opened.schema is None:
        return
    missing = [name for name in columns.table if name not in opened.schema.names]
    if missing:
        raise TableError(
            f"{target} has no column {', '.join(missing)}",
            hint="Add it to the target (ALTER TABLE … ADD COLUMN, or DeltaTable.alter.add_columns),"
            f" or leave it out of the changes. The target's columns are "
            f"{', '.join(opened.schema.names)}.",
        )
