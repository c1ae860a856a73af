"""merge_into: a batch of changes is applied to a Delta table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import MissingExtraError
from pgwire_codec.lsn import format_lsn
from pgwire_codec.spark.change_columns import ChangeColumns
from pgwire_codec.spark.net_changes import net_changes
from pgwire_codec.spark.unchanged import Rows, missing_values

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
    keys: Sequence[str],
    *,
    app_id: str = "pgwire_codec",
    storage_options: Mapping[str, str] | None = None,
) -> Merged:
    """Apply changes of a table to a Delta table, as one commit.

    Each row is left in its last state, as by :func:`latest`: deletes, truncates and changes of a
    key are obeyed, and a value that was not sent (unchanged TOAST) stays what it is in the target,
    or moves with its row to the new key. The target is made if it is not there.

    The commit records the last commit LSN under ``app_id`` in the Delta log (a ``txn`` action),
    and changes up to the LSN that is recorded there are passed over. So the same batch applied
    again, an older one, or one that overlaps, changes nothing twice, whatever failed in between.
    Therefore batches have to be whole transactions, and come in the order of their commits, as
    those of ``format("pgoutput")`` do.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, as :func:`decode_changes` and ``format("pgoutput")`` give them; in
        ``foreachBatch`` the batch. What they leave, a row a key, has to fit into the driver's
        memory: the merge is delta-rs's, in this process.
    target : str
        Path or URI of the Delta table.
    keys : sequence of str
        Columns that identify a row: the replica identity, or some of it that suffices.
    app_id : str
        Name of the stream of changes. A target that gets changes from several slots needs one for
        each.
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
        lacks a column; or an update leaves a value as it was, and the target does not have the row:
        then changes before these are missing there, and nothing was applied.

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
        ((newest, truncates),) = fresh.agg(
            functions.max("_commit_lsn"), functions.count_if(functions.col("_op") == "T")
        ).collect()
        if newest is None:
            return Merged(applied)
        net = _Net.of(fresh, columns)
    finally:
        fresh.unpersist()
    net = net.filled(table, target)
    if table is None:
        table = delta.DeltaTable.create(
            target, schema=net.table_schema(), storage_options=options or None
        )
    return _merge(delta, table, net, newest, app_id, truncate=truncates > 0)


@dataclass(frozen=True, slots=True)
class _Net:
    """Net changes in Arrow, with the columns of ``net_changes``.

    ``missing`` has the rows whose value of a column is unknown, by the column's number.
    """

    columns: ChangeColumns
    rows: pa.Table
    missing: dict[int, Rows]

    @classmethod
    def of(cls, changes: DataFrame, columns: ChangeColumns) -> _Net:
        net = net_changes(changes, columns).drop(*columns.row_metadata).toArrow()
        unchanged = net.column("unchanged").combine_chunks()
        return cls(columns, net, missing_values(unchanged, columns.table))

    def table_schema(self) -> pa.Schema:
        return pa.schema(
            [
                (name, self.rows.schema.field(f"c{number}").type)
                for number, name in enumerate(self.columns.table)
            ]
        )

    def keys(self, prefix: str, rows: pa.Table) -> list[tuple[Any, ...]]:
        """Return the keys (``"c"``) or the roots' keys (``"r"``) of rows."""
        places = self.columns.keys if prefix == "c" else range(len(self.columns.keys))
        names = [f"{prefix}{place}" for place in places]
        return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))

    def filled(self, table: DeltaTable | None, target: str) -> _Net:
        """Return the rows that changed their key with the values that the target has of them.

        Rows that did not change it keep theirs; raise ``ValueError`` for one that is not there.
        """
        if not self.missing:
            return self
        places = np.unique(np.concatenate(list(self.missing.values())))
        lacking = self.rows.take(pa.array(places))
        keys, roots = self.keys("c", lacking), self.keys("r", lacking)
        moved = {root for key, root in zip(keys, roots, strict=True) if key != root}
        there, values = self._fetch(table, set(roots), moved)
        for root in roots:
            if root not in there:
                raise self._missing(root, target)
        source = np.full(len(self.rows), -1)
        for place, key, root in zip(places.tolist(), keys, roots, strict=True):
            if key != root:
                source[place] = there[root]
        return self._with_values(source, values) if moved else self

    def _with_values(self, source: Rows, values: pa.Table) -> _Net:
        """Return the rows with missing values from the rows of another table; -1 for none."""
        rows, missing = self.rows, {}
        for number, lacking in self.missing.items():
            name = f"c{number}"
            column, found = rows.column(name), values.column(self.columns.table[number])
            filled = lacking[source[lacking] >= 0]
            take = np.arange(len(rows))
            take[filled] = len(rows) + source[filled]
            both = pa.chunked_array([*column.chunks, *found.chunks], column.type)
            rows = rows.set_column(rows.column_names.index(name), name, both.take(pa.array(take)))
            if len(filled) < len(lacking):
                missing[number] = lacking[source[lacking] < 0]
        return _Net(self.columns, rows, missing)

    def _fetch(
        self,
        table: DeltaTable | None,
        roots: set[tuple[Any, ...]],
        moved: set[tuple[Any, ...]],
    ) -> tuple[dict[tuple[Any, ...], int], pa.Table]:
        """Give which of the roots the target has, and of those that moved their values.

        The former by number of their row in the latter, if they moved.
        """
        schema = self.table_schema()
        numbers = (*self.columns.keys, *(self.missing if moved else ()))
        wanted = pa.schema([schema.field(number) for number in numbers])
        if table is None:
            return {}, wanted.empty_table()
        first = pa.array([root[0] for root in roots], wanted.field(0).type)
        there: dict[tuple[Any, ...], int] = {}
        found = []
        count = 0
        for raw in pa.RecordBatchReader.from_stream(table.scan(columns=wanted.names)):
            rows = pa.Table.from_batches([raw]).select(wanted.names).cast(wanted)
            rows = rows.filter(pc.is_in(rows.column(0), first))
            key_columns = [column.to_pylist() for column in rows.columns[: len(self.columns.keys)]]
            keys = list(zip(*key_columns, strict=True))
            taken = []
            for place, key in enumerate(keys):
                if key not in roots:
                    continue
                there[key] = count
                if key in moved:
                    taken.append(place)
                    count += 1
            found.append(rows.take(pa.array(taken, pa.int64())))
        return there, pa.concat_tables(found) if found else wanted.empty_table()

    def _missing(self, root: tuple[Any, ...], target: str) -> ValueError:
        where = ", ".join(
            f"{self.columns.table[number]} = {value!r}"
            for number, value in zip(self.columns.keys, root, strict=True)
        )
        return ValueError(
            f"{target} has no row {where}, of which an update left values as they were (they are "
            "unchanged TOAST, which is not sent): the changes before these are missing there. "
            "Apply them first, in the order of their commits; or have the table sent whole, with "
            "REPLICA IDENTITY FULL"
        )


def _merge(
    delta: Any, table: DeltaTable, net: _Net, newest: int, app_id: str, *, truncate: bool
) -> Merged:
    names = net.columns.table
    same_key = " AND ".join(
        f"t.{_quote(names[number])} = s.c{number}" for number in net.columns.keys
    )
    values = {
        _quote(name): (
            f"CASE WHEN s.u{number} THEN t.{_quote(name)} ELSE s.c{number} END"
            if number in net.missing
            else f"s.c{number}"
        )
        for number, name in enumerate(names)
    }
    whole = {_quote(name): f"s.c{number}" for number, name in enumerate(names)}
    source = net.rows.select(["gone", *net.columns.numbers])
    for number, rows in net.missing.items():
        mask = np.zeros(len(source), np.bool_)
        mask[rows] = True
        source = source.append_column(f"u{number}", pa.array(mask))
    merger = table.merge(
        source=source,
        predicate=same_key,
        source_alias="s",
        target_alias="t",
        commit_properties=delta.CommitProperties(
            custom_metadata={"pgwire_codec.commit_lsn": format_lsn(newest)},
            app_transactions=[delta.Transaction(app_id, newest)],
        ),
    )
    merger = (
        merger.when_matched_delete(predicate="s.gone")
        .when_matched_update(updates=values, predicate="NOT s.gone")
        .when_not_matched_insert(updates=whole, predicate="NOT s.gone")
    )
    if truncate:
        merger = merger.when_not_matched_by_source_delete()
    metrics = merger.execute()
    return Merged(
        newest,
        inserted=metrics["num_target_rows_inserted"],
        updated=metrics["num_target_rows_updated"],
        deleted=metrics["num_target_rows_deleted"],
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
