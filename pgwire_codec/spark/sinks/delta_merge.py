"""merge_into: application of a batch of changes to a Delta table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.errors import TableError, missing_extra
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.quoting import quote_identifier
from pgwire_codec.spark.reduction.change_columns import ChangeColumns
from pgwire_codec.spark.sinks.merge_rows import (
    CountedRows,
    KeyedRows,
    MergeSource,
    NetRows,
    table_schema,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


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
    """Apply changes of a table to a Delta table, as one commit.

    Each row is left in its last state, as by :func:`latest`: deletes, truncates and changes of a
    key are applied. A value that was not sent (unchanged TOAST) keeps its value in the target, or
    moves with its row to the new key. The target is created if it does not exist.

    The commit records the last commit LSN under ``app_id`` in the Delta log (a ``txn`` action).
    Changes up to the recorded LSN are skipped. So a batch that is repeated, older or overlapping
    changes nothing twice, after any failure. Batches must therefore consist of whole transactions
    in the order of their commits, as those of ``format("pgoutput")`` do.

    A table is a relation, independent of its name. If the changes have the column
    ``_relation_oid``, the commit also records the relation that changed last (under
    ``{app_id}/relation``), and changes of others are left out. If another relation than the
    recorded one changed last, the batch replaces the rows of the target. It must then have all
    changes of this relation, as the micro-batches of ``format("pgoutput")`` with
    ``onRelationChange=replace`` do.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, as :func:`decode_changes` and ``format("pgoutput")`` return them; in
        ``foreachBatch`` the batch. Their net changes, a row for each key, must fit into the memory
        of the driver, because delta-rs merges in this process.
    target : str
        Path or URI of the Delta table.
    keys : sequence of str or None
        Columns that identify a row: the replica identity, or a sufficient part of it. None is for
        tables without a key, as for :func:`latest`: of equal rows in the target, as many are
        deleted as the changes remove.
    app_id : str
        Name of the stream of changes. A target with changes from several slots needs one for each.
        Another relation replaces all rows of the target, so changes with ``_relation_oid`` need a
        target of their own.
    storage_options : mapping, optional
        Options of an object store, as for ``deltalake.DeltaTable``.

    Returns
    -------
    Merged

    Raises
    ------
    MissingExtraError
        Without the extra ``delta``.
    TableError
        When a metadata column is missing, a key column is not in the replica identity, the target
        lacks a column, or column names differ in case only. Also when the target lacks the row of
        an update that did not send all values or, without keys, has fewer rows than the changes
        remove: then earlier changes are missing there. Nothing is applied.

    Examples
    --------
    ::

        def apply(batch, batch_id):
            merge_into(batch, "/lake/orders", keys=["id"])

        changes.writeStream.foreachBatch(apply).option("checkpointLocation", ...).start()
    """
    from pyspark.sql import functions

    delta = _deltalake()
    columns = ChangeColumns.of(changes, keys)
    options = dict(storage_options or {})
    exists = delta.DeltaTable.is_deltatable(target, options)
    table = delta.DeltaTable(target, storage_options=options) if exists else None
    applied = None if table is None else table.transaction_version(app_id)
    _check_names(columns)
    if table is not None:
        _check_columns(table, columns, target)
    numbered = columns.numbered(changes)
    fresh = numbered if applied is None else numbered.where(functions.col("_commit_lsn") > applied)
    fresh = fresh.persist()
    try:
        newest, relation = _newest(fresh)
        if newest is None:
            return Merged(applied)
        is_other = _is_other(table, f"{app_id}/relation", relation)
        # For a relation that the target does not have, older changes are applied, too.
        current = numbered if is_other else fresh
        if relation is not None:
            current = current.where(functions.col(RELATION_OID) == relation)
        empties = is_other or not current.where("_op = 'T'").isEmpty()
        rows = CountedRows if keys is None else KeyedRows
        net: NetRows = rows.of(current, columns)
    finally:
        fresh.unpersist()
    # After a truncate, the table has no rows that later changes need.
    source = net.source(None if empties else table, target)
    if table is None:
        table = delta.DeltaTable.create(
            target, schema=table_schema(net), storage_options=options or None
        )
    applied_now = [delta.Transaction(app_id, newest)]
    if relation is not None:
        applied_now.append(delta.Transaction(f"{app_id}/relation", relation))
    commit = delta.CommitProperties(
        custom_metadata={"pgwire_codec.commit_lsn": format_lsn(newest)},
        app_transactions=applied_now,
    )
    metrics = _merge(table, source, columns, commit, empties=empties)
    return Merged(
        newest,
        inserted=metrics["num_target_rows_inserted"] - source.again,
        updated=metrics["num_target_rows_updated"],
        deleted=metrics["num_target_rows_deleted"] - source.again,
    )


def _newest(changes: DataFrame) -> tuple[int | None, int | None]:
    """Return the last commit LSN, and the OID of the relation that changed last, if known."""
    from pyspark.sql import functions

    relation = RELATION_OID if RELATION_OID in changes.columns else functions.lit(None)
    place = functions.struct("_commit_lsn", "_seq", relation)
    ((newest,),) = changes.agg(functions.max(place)).collect()
    return (None, None) if newest is None else (newest[0], newest[2])


def _is_other(table: DeltaTable | None, app_id: str, relation: int | None) -> bool:
    """Return whether the target has the rows of another relation."""
    recorded = None if table is None else table.transaction_version(app_id)
    return relation is not None and recorded is not None and recorded != relation


def _merge(
    table: DeltaTable, source: MergeSource, columns: ChangeColumns, commit: Any, *, empties: bool
) -> dict[str, Any]:
    """Merge, and return the metrics. ``empties``: every row of the target is replaced."""
    merger = table.merge(
        source=source.rows,
        predicate=source.matches,
        source_alias="s",
        target_alias="t",
        commit_properties=commit,
    ).when_matched_delete(predicate="s.gone")
    if source.updates:
        updates = dict(source.updates)
        if empties:  # the row is a new one, in the columns that only the target has, too
            others = {field.name for field in table.schema().fields} - set(columns.table)
            updates |= {quote_identifier(name): "NULL" for name in others}
        merger = merger.when_matched_update(updates=updates, predicate="NOT s.gone")
    row = {quote_identifier(name): f"s.c{number}" for number, name in enumerate(columns.table)}
    merger = merger.when_not_matched_insert(updates=row, predicate="NOT s.gone")
    if empties:
        merger = merger.when_not_matched_by_source_delete()
    return merger.execute()


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


def _check_columns(table: DeltaTable, columns: ChangeColumns, target: str) -> None:
    existing = [field.name for field in table.schema().fields]
    missing = [name for name in columns.table if name not in existing]
    if missing:
        raise TableError(
            f"{target} has no column {', '.join(missing)}",
            hint="Add it to the target (DeltaTable.alter.add_columns), or leave it out of the "
            f"changes. The target's columns are {', '.join(existing)}.",
        )


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise missing_extra("merge_into needs deltalake", "delta") from None
    return deltalake
