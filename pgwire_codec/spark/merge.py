"""merge_into: a batch of changes is applied to a Delta table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import MissingExtraError
from pgwire_codec.lsn import format_lsn
from pgwire_codec.spark.net import ChangeColumns, net_changes

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
    if table is not None:
        _check_columns(table, columns, target)
    commit_lsn = columns.column("_commit_lsn")
    fresh = changes if applied is None else changes.where(commit_lsn > applied)
    fresh = fresh.persist()
    try:
        ((newest, truncates),) = fresh.agg(
            functions.max(commit_lsn), functions.count_if(columns.column("_op") == "T")
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
    """Net changes in Arrow, with the columns of :func:`~pgwire_codec.spark.net.net_changes`."""

    columns: ChangeColumns
    rows: pa.Table

    @classmethod
    def of(cls, changes: DataFrame, columns: ChangeColumns) -> _Net:
        return cls(columns, net_changes(changes, columns).drop("told").toArrow())

    def table_schema(self) -> pa.Schema:
        return pa.schema(
            [
                (name, self.rows.schema.field(f"c{number}").type)
                for number, name in enumerate(self.columns.table)
            ]
        )

    @property
    def unknown(self) -> list[int]:
        """Numbers of the columns that are unknown in some row."""
        return [
            number
            for number in self.columns.value_numbers
            if pc.any(self.rows.column(f"u{number}")).as_py()
        ]

    def keys(self, prefix: str, rows: pa.Table) -> list[tuple[Any, ...]]:
        """Give the keys (``"c"``) or the roots' keys (``"r"``) of rows."""
        names = [
            f"c{self.columns.table.index(name)}" if prefix == "c" else f"r{number}"
            for number, name in enumerate(self.columns.keys)
        ]
        return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))

    def filled(self, table: DeltaTable | None, target: str) -> _Net:
        """Fetch what is unknown in rows that changed their key, from where the target has them.

        In rows that did not, it stays unknown; that they are there is made sure.
        """
        unknown = self.unknown
        if not unknown:
            return self
        somewhere = self.rows.column(f"u{unknown[0]}")
        for number in unknown[1:]:
            somewhere = pc.or_(somewhere, self.rows.column(f"u{number}"))
        places = pc.indices_nonzero(somewhere)
        lacking = self.rows.take(places)
        keys, roots = self.keys("c", lacking), self.keys("r", lacking)
        moved = {root for key, root in zip(keys, roots, strict=True) if key != root}
        there, values = self._fetch(table, set(roots), moved, unknown)
        for root in roots:
            if root not in there:
                raise self._missing(root, target)
        rows = self.rows
        if moved:
            row_of = {
                place: there[root]
                for place, key, root in zip(places.to_pylist(), keys, roots, strict=True)
                if key != root
            }
            rows = _with_values(rows, unknown, row_of, values)
        return _Net(self.columns, rows)

    def _fetch(
        self,
        table: DeltaTable | None,
        roots: set[tuple[Any, ...]],
        moved: set[tuple[Any, ...]],
        unknown: list[int],
    ) -> tuple[dict[tuple[Any, ...], int], pa.Table]:
        """Give which of the roots the target has, and of those that moved their values.

        The former by number of their row in the latter, if they moved.
        """
        names = [self.columns.table[number] for number in unknown] if moved else []
        schema = self.table_schema()
        wanted = pa.schema([schema.field(name) for name in (*self.columns.keys, *names)])
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
            f"{name} = {value!r}" for name, value in zip(self.columns.keys, root, strict=True)
        )
        return ValueError(
            f"{target} has no row {where}, of which an update left values as they were (they are "
            "unchanged TOAST, which is not sent): the changes before these are missing there. "
            "Apply them first, in the order of their commits; or have the table sent whole, with "
            "REPLICA IDENTITY FULL"
        )


def _with_values(
    rows: pa.Table, unknown: list[int], row_of: Mapping[int, int], values: pa.Table
) -> pa.Table:
    """Give the rows with the unknown values of some, by number, from rows of the other table."""
    keys = values.num_columns - len(unknown)
    for place, number in enumerate(unknown, start=keys):
        mask = rows.column(f"u{number}").to_pylist()
        take = list(range(len(rows)))
        for row, source in row_of.items():
            if mask[row]:
                take[row], mask[row] = len(rows) + source, False
        column = rows.column(f"c{number}")
        both = pa.chunked_array([*column.chunks, *values.column(place).chunks], column.type)
        for name, changed in (
            (f"c{number}", both.take(pa.array(take, pa.int64()))),
            (f"u{number}", pa.array(mask, pa.bool_())),
        ):
            rows = rows.set_column(rows.column_names.index(name), name, changed)
    return rows


def _merge(
    delta: Any, table: DeltaTable, net: _Net, newest: int, app_id: str, *, truncate: bool
) -> Merged:
    names = net.columns.table
    unknown = set(net.unknown)
    same_key = " AND ".join(
        f"t.{_quote(name)} = s.c{names.index(name)}" for name in net.columns.keys
    )
    values = {
        _quote(name): (
            f"CASE WHEN s.u{number} THEN t.{_quote(name)} ELSE s.c{number} END"
            if number in unknown
            else f"s.c{number}"
        )
        for number, name in enumerate(names)
    }
    whole = {_quote(name): f"s.c{number}" for number, name in enumerate(names)}
    used = ["gone", *(f"c{number}" for number in range(len(names)))]
    used += [f"u{number}" for number in sorted(unknown)]
    merger = table.merge(
        source=net.rows.select(used),
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
