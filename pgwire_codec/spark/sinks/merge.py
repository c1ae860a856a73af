"""merge_into: application of a batch of changes to a table of a lakehouse, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.change_columns import ChangeColumns, check_names
from pgwire_codec.lake.lakehouse import DELTA, ICEBERG, parse_target
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.rewriting import commit_of, discard
from pgwire_codec.lake.row_types import row_schema
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.iceberg import IcebergTarget
from pgwire_codec.lake.tables.target import CommitConflict, Target
from pgwire_codec.lake.tasks import MergeOutcome
from pgwire_codec.spark.arrow_types import arrow_schema
from pgwire_codec.spark.reduction.change_columns import columns_of, numbered
from pgwire_codec.spark.runner import spark_runner
from pgwire_codec.spark.sinks import merge_tasks
from pgwire_codec.spark.sinks.merge_tasks import ChangeForm, MergeFacts, MergeWork, merge_facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Merges that lose their race against other writers before an error is raised.
_ATTEMPTS: Final = 5

_ONE_NAME: Final = (
    "Set spark.sql.caseSensitive to true, and rename all but one of them "
    "(DataFrame.withColumnRenamed), or leave them out."
)


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of :func:`merge_into`.

    Attributes
    ----------
    commit_lsn : int or None
        Commit LSN of the last transaction that the target has; None if it has none.
    inserted, updated, deleted : int
        Numbers of rows of the target.
    """

    commit_lsn: int | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def merge_into(
    changes: DataFrame,
    target: str,
    keys: Sequence[str] | None,
    *,
    app_id: str = "pgwire_codec",
    storage_options: Mapping[str, str] | None = None,
) -> Merged:
    """Apply changes of a table to a Delta or Iceberg table, as one commit.

    Each row is left in its last state, as by :func:`latest`: deletes, truncates and changes of a
    key are applied. A value that was not sent (unchanged TOAST) keeps its value in the target, or
    moves with its row to the new key. The target is created if it does not exist. Columns that only
    the target has keep their values in rows that are updated, and are null in new ones.

    The rows are looked up and written by the executors, in tasks of up to 131,072 changes. Rows to
    delete are marked in deletion vectors, which both formats have: no file is written again. Files
    of a table that has none are replaced, if they have such rows: a Delta table without
    ``delta.enableDeletionVectors``, an Iceberg table of format version 2 or with
    ``write.merge.mode`` ``copy-on-write``. The session must not be one of Spark Connect then.

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
        Path or URI of a Delta table, with or without ``delta:`` before it. Or
        ``iceberg:CATALOG.NAMESPACE.TABLE``, with the name of a table in a catalog of the session,
        as in SQL; the session must not be one of Spark Connect then.
    keys : sequence of str or None
        Columns that identify a row: the replica identity, or a sufficient part of it. None is for
        tables without a key, as for :func:`latest`: of equal rows in the target, as many are
        deleted as the changes remove.
    app_id : str
        Name of the stream of changes. A target with changes from several slots needs one for each.
        Another relation replaces all rows of the target, so changes with ``_relation_oid`` need a
        target of their own.
    storage_options : mapping, optional
        Options of an object store, as for ``deltalake.DeltaTable``. The executors use them, too.
        For Iceberg, the catalog has them.

    Returns
    -------
    Merged

    Raises
    ------
    MissingExtraError
        Without the extra ``lake``.
    OptionError
        For another target, and in a session that does not have its catalog.
    TableError
        When a metadata column is missing, a key column is not in the replica identity, the target
        lacks a column or has features that are not supported, or column names differ in case only.
        Also when the target lacks the row of an update that did not send all values or, without
        keys, has fewer rows than the changes remove: then earlier changes are missing there.
        Nothing is applied.

    Examples
    --------
    ::

        def apply(batch, batch_id):
            merge_into(batch, "/lake/orders", keys=["id"])

        changes.writeStream.foreachBatch(apply).option("checkpointLocation", ...).start()
    """
    columns = columns_of(changes, keys)
    opened = _open(changes.sparkSession, target, app_id, storage_options)
    check_names(columns.table, lambda _: _ONE_NAME)
    rows = numbered(changes, columns).persist()
    try:
        for _ in range(_ATTEMPTS):
            _check_columns(opened, columns)
            try:
                return _apply(opened, rows, columns)
            except CommitConflict as error:
                conflict = error
    finally:
        rows.unpersist()
    raise TableError(
        f"{opened.name} was changed by other writers during each of {_ATTEMPTS} merges: "
        f"{conflict.primary}",
        is_transient=True,
    ) from conflict


def _apply(target: Target, rows: DataFrame, columns: ChangeColumns) -> Merged:
    """Apply numbered changes in one commit. Raises ``CommitConflict`` to be called again."""
    position, held = target.position, target.schema
    if held is None:
        kinds = arrow_schema(rows.schema)
        sent = zip(columns.table, columns.numbers, strict=True)
        schema = row_schema(
            pa.schema([kinds.field(number).with_name(name) for name, number in sent])
        )
    else:
        schema = pa.schema([held.field(name) for name in columns.table])
    form = ChangeForm(columns.without_row_metadata(), schema)
    facts = merge_facts(rows, form, position)
    after = -1 if position.commit_lsn is None else position.commit_lsn
    if facts is None or facts.newest.commit_lsn <= after:
        return Merged(position.commit_lsn)
    is_truncated = facts.truncated is not None and facts.truncated.commit_lsn > after
    replaces = is_truncated or facts.after < after  # or they are of another relation
    work = _work(target, form, facts, replaces=replaces)
    can_append = not replaces and (not columns.keys or work.target.is_empty)
    outcomes = work.append(rows) if facts.has_inserts_only and can_append else work.merge(rows)
    try:
        merged = _merged(target, work, outcomes)
        commit = commit_of(
            target,
            spark_runner(rows.sparkSession),
            Position(merged.commit_lsn, facts.relation),
            outcomes,
            replaces=replaces,
            schema=form.schema if held is None else held,
        )
    except Exception:
        discard(work.target, outcomes, ())
        raise
    try:
        target.commit(commit)
    except CommitConflict:
        discard(work.target, outcomes, ())
        raise
    return merged


def _work(target: Target, form: ChangeForm, facts: MergeFacts, *, replaces: bool) -> MergeWork:
    names, held = form.columns.table, target.schema
    others = [] if held is None or replaces else [each for each in held if each.name not in names]
    return MergeWork(
        form,
        facts,
        replaces,
        replace(target.files, files=()) if replaces else target.files,
        target.file_schema(form.schema if held is None else held),
        target.layout,
        pa.schema(others),
        max(1, -(-facts.rows // merge_tasks.BUCKET_ROWS)),
    )


def _merged(target: Target, work: MergeWork, outcomes: Sequence[MergeOutcome]) -> Merged:
    """Return the result of tasks; raise the error of one."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return Merged(
        work.facts.newest.commit_lsn,
        sum(each.inserted for each in outcomes),
        sum(each.updated for each in outcomes),
        _count_rows(target.files) if work.replaces else sum(each.removed for each in outcomes),
    )


def _count_rows(target: TableFiles) -> int:
    """Return the number of a table's rows."""
    count = 0
    for file in target.files:
        rows = file.rows
        if rows is None:
            with target.open(file) as opened:
                rows = opened.parquet.metadata.num_rows
        count += rows - file.deleted
    return count


def _open(
    spark: SparkSession, target: str, app_id: str, storage_options: Mapping[str, str] | None
) -> Target:
    """Return a table, which need not exist; see :func:`merge_into`."""
    kind, _, name = target.partition(":")
    if kind == ICEBERG:
        if storage_options:
            raise OptionError(
                "storage_options are for Delta tables",
                hint="For Iceberg, configure the catalog in the session.",
            )
        return IcebergTarget(spark, name, app_id)
    kind, location = parse_target(target)
    if kind != DELTA:
        raise OptionError(
            f"unsupported target {target!r}",
            hint="Use delta:LOCATION, where LOCATION is a path or a URI. Or use "
            "iceberg:CATALOG.NAMESPACE.TABLE, where CATALOG is one of Spark's.",
        )
    return DeltaTarget(location, app_id, storage_options)


def _check_columns(target: Target, columns: ChangeColumns) -> None:
    """Raise ``TableError`` if a table lacks columns of changes."""
    if target.schema is None:
        return
    names = target.schema.names
    if missing := [name for name in columns.table if name not in names]:
        raise TableError(
            f"{target.name} has no column {', '.join(missing)}",
            hint="Add it to the target (ALTER TABLE … ADD COLUMN, or DeltaTable.alter.add_columns),"
            f" or leave it out of the changes. The target's columns are {', '.join(names)}.",
        )
