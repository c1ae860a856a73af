"""merge_into: a batch of changes is applied to a Delta table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.errors import MissingExtraError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.reduction.change_columns import ChangeColumns
from pgwire_codec.spark.sinks.merge_rows import (
    CountedRows,
    KeyedRows,
    MergeSource,
    NetRows,
    quote,
    table_schema,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Merged:
    """What :func:`merge_into` did.

    Attributes
    ----------
    commit_lsn : int or None
        The target has the changes of all transactions up to this commit LSN; None: of none.
    inserted, updated, deleted : int
        Rows of the target.
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
    key are applied, and a value that was not sent (unchanged TOAST) stays what it is in the target,
    or moves with its row to the new key. The target is made if it is not there.

    The commit records the last commit LSN under ``app_id`` in the Delta log (a ``txn`` action),
    and changes up to the LSN that is recorded there are passed over. So the same batch applied
    again, an older one, or one that overlaps, changes nothing twice, whatever failed in between.
    Therefore batches have to be whole transactions, and come in the order of their commits, as
    those of ``format("pgoutput")`` do.

    A table is a relation, whatever its name. If the changes have the column ``_relation_oid``, the
    commit records the relation that changed last, too (under ``{app_id}/relation``), and changes of
    others are left out. A batch in which another relation than the recorded one changed last
    replaces the rows of the target: it must have everything that this relation did, as the
    micro-batches of ``format("pgoutput")`` with ``onRelationChange=replace`` do.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, as :func:`decode_changes` and ``format("pgoutput")`` give them; in
        ``foreachBatch`` the batch. What they leave, a row for each key, has to fit into the memory
        of the driver: the merge is delta-rs's, in this process.
    target : str
        Path or URI of the Delta table.
    keys : sequence of str or None
        Columns that identify a row: the replica identity, or some of it that suffices. None is for
        tables without a key, as for :func:`latest`: of equal rows in the target, as many are
        deleted as the changes remove.
    app_id : str
        Name of the stream of changes. A target that gets changes from several slots needs one for
        each. Another relation replaces all rows of the target, so changes with ``_relation_oid``
        need a target of their own.
    storage_options : mapping, optional
        For an object store, as ``deltalake.DeltaTable`` takes them.

    Returns
    -------
    Merged

    Raises
    ------
    MissingExtraError
        Without the extra ``delta``.
    ValueError
        When a metadata column is missing; a key column is not in the replica identity; the target
        lacks a column; column names differ in case only; or an update leaves a value as it was, and
        the target does not have the row, or, without keys, has not as many rows as the changes
        remove: then changes before these are missing there, and nothing was applied.

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
    there = delta.DeltaTable.is_deltatable(target, options)
    table = delta.DeltaTable(target, storage_options=options) if there else None
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
        # Of a relation that the target does not have, older changes count, too.
        current = numbered if is_other else fresh
        if relation is not None:
            current = current.where(functions.col(RELATION_OID) == relation)
        empties = is_other or not current.where("_op = 'T'").isEmpty()
        rows = CountedRows if keys is None else KeyedRows
        net: NetRows = rows.of(current, columns)
    finally:
        fresh.unpersist()
    # A truncate left no row to the changes after it.
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
    """Return the last commit LSN, and the OID of the relation that changed last, if it is there."""
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
    """Merge, and return the metrics. ``empties``: no row of the target is left as it is."""
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
            updates |= {quote(name): "NULL" for name in others}
        merger = merger.when_matched_update(updates=updates, predicate="NOT s.gone")
    row = {quote(name): f"s.c{number}" for number, name in enumerate(columns.table)}
    merger = merger.when_not_matched_insert(updates=row, predicate="NOT s.gone")
    if empties:
        merger = merger.when_not_matched_by_source_delete()
    return merger.execute()


def _check_names(columns: ChangeColumns) -> None:
    """Raise ``ValueError`` for columns that a Delta table cannot tell apart."""
    of_name: dict[str, list[str]] = {}
    for name in columns.table:
        of_name.setdefault(name.lower(), []).append(name)
    for names in of_name.values():
        if len(names) > 1:
            raise ValueError(
                f"columns {', '.join(names)} differ in case only, which a Delta table cannot have: "
                "set spark.sql.caseSensitive to true, and rename all but one of them "
                "(DataFrame.withColumnRenamed), or leave them out"
            )


def _check_columns(table: DeltaTable, columns: ChangeColumns, target: str) -> None:
    there = [field.name for field in table.schema().fields]
    missing = [name for name in columns.table if name not in there]
    if missing:
        raise ValueError(
            f"{target} has no column {', '.join(missing)}; it has: {', '.join(there)}. Add it to "
            "the target (DeltaTable.alter.add_columns), or leave it out of the changes"
        )


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise MissingExtraError(
            "merge_into needs deltalake: pip install 'pgwire-codec[delta]'"
        ) from None
    return deltalake
