"""Fold of a table's changes: the last state of each row that they touch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Mask, differs, mask_of
from pgwire_codec.lake.key_chains import CHAIN, resolve_chains
from pgwire_codec.lake.key_codes import group_codes
from pgwire_codec.lake.key_states import fold as fold_states
from pgwire_codec.lake.row_counts import ROW_HASH, count_rows, split_updates
from pgwire_codec.lake.unsent_values import Rows, missing_values


@dataclass(frozen=True, slots=True)
class NetRows:
    """One row for each key that changes touch.

    Attributes
    ----------
    rows : pyarrow.Table
        The table's columns. A row that is gone has only its key.
    gone : ndarray of bool
        Whether the key has no row at the end.
    roots : pyarrow.Table
        The key that each row had before the changes; null for an inserted row.
    missing : dict of str to ndarray
        By column, the rows whose value the changes do not contain: the row had it before.
    """

    rows: pa.Table
    gone: Mask
    roots: pa.Table
    missing: dict[str, Rows]

    def __len__(self) -> int:
        return len(self.gone)


def fold(changes: pa.Table, columns: ChangeColumns) -> NetRows:
    """Return the last state of each row that changes touch.

    Parameters
    ----------
    changes : pyarrow.Table
        Changes of a table with a key, without truncates: the columns of ``columns``.
    columns : ChangeColumns

    Raises
    ------
    TableError
        For an update without ``_before``: whether it changed the key is unknown then.
    """
    return fold_events(key_events(number(changes, columns), columns), columns)


def fold_events(events: pa.RecordBatch, columns: ChangeColumns) -> NetRows:
    """Return the last state of each row from the events of :func:`key_events`, in any order."""
    is_plain = not events.column("moved").true_count
    if is_plain and events.column("_unchanged").null_count == len(events):
        return _last_events(events, columns)
    events = _by_key(events, columns)
    states = pa.Table.from_batches(fold_states([events], columns)) if events.num_rows else None
    names = columns.numbers
    roots = [f"r{place}" for place in range(len(columns.keys))]
    keys = [columns.table[number] for number in columns.keys]
    if states is None:
        schema = pa.schema([events.schema.field(name) for name in names])
        empty = schema.empty_table().rename_columns(columns.table)
        return NetRows(empty, np.zeros(0, np.bool_), empty.select(keys), {})
    is_last, far = _mask(states, "is_last"), _mask(states, "far")
    has_left = pc.is_valid(states.column("left"))
    near = states.filter(pa.array(is_last & ~far)).drop_columns([*CHAIN])
    if far.any():
        chains = states.filter(pc.or_(has_left, states.column("far")))
        near = pa.concat_tables([near, resolve_chains(chains, columns).select(near.column_names)])
    gone = _mask(near, "gone")
    missing = {}
    for column, rows in missing_values(
        near.column("unchanged").combine_chunks(), columns.table
    ).items():
        lacking = rows[~gone[rows]]
        if len(lacking):
            missing[columns.table[column]] = lacking
    return NetRows(
        near.select(names).rename_columns(columns.table),
        gone,
        near.select(roots).rename_columns(keys),
        missing,
    )


def _last_events(events: pa.RecordBatch, columns: ChangeColumns) -> NetRows:
    """Return the last state of each row, if all values were sent and no key changed.

    The roots are not needed then.
    """
    codes = group_codes([events.column(f"c{number}") for number in columns.keys])
    lsn, seq = _places(events)
    rows = np.arange(len(events))
    if _falls(lsn, seq):
        rows = np.lexsort((seq, lsn))
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes[rows]] = rows  # of several, the last one counts
    states = events if len(last) == len(events) else events.take(pa.array(np.sort(last)))
    table = pa.Table.from_batches([states.select(columns.numbers)]).rename_columns(columns.table)
    keys = [columns.table[number] for number in columns.keys]
    nothing = [pa.nulls(len(states), table.schema.field(name).type) for name in keys]
    gone = mask_of(pc.equal(states.column("_op"), "D"))
    return NetRows(table, gone, pa.table(nothing, names=keys), {})


@dataclass(frozen=True, slots=True)
class NetCounts:
    """Rows of a table without a key that changes add and remove on balance.

    Attributes
    ----------
    added : pyarrow.Table
        Rows that the changes add.
    removed : pyarrow.Table
        Rows from before the changes that they remove, each different one once.
    counts : ndarray of int64
        How many of each removed row.
    """

    added: pa.Table
    removed: pa.Table
    counts: Rows


def count(changes: pa.Table, columns: ChangeColumns) -> NetCounts:
    """Return the rows that changes of a table without a key add and remove.

    Parameters
    ----------
    changes : pyarrow.Table
        Changes without truncates: the columns of ``columns``.
    columns : ChangeColumns
        Without keys.

    Raises
    ------
    TableError
        For a change without its whole old row.
    """
    return count_events(row_events(number(changes, columns), columns), columns)


def row_events(batch: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return the rows that numbered changes add and remove: ``removed`` bool, and the place."""
    return split_updates(batch, columns.without_row_metadata())


def count_events(events: pa.RecordBatch, columns: ChangeColumns) -> NetCounts:
    """Return the rows that events of :func:`row_events`, in any order, add and remove."""
    names = columns.numbers
    codes = group_codes([events.column(name) for name in names])
    lsn, seq = _places(events)
    order = np.lexsort((mask_of(events.column("removed")), -seq, -lsn, codes))
    events = events.append_column(ROW_HASH, pa.array(codes)).take(pa.array(order))
    counted = list(count_rows([events], [], names))
    if not counted:
        empty = events.select(names).rename_columns(columns.table).slice(0, 0)
        nothing = pa.Table.from_batches([empty])
        return NetCounts(nothing, nothing, np.zeros(0, np.int64))
    rows = pa.Table.from_batches(counted)
    is_removed = _mask(rows, "removed")
    data = rows.select(names).rename_columns(columns.table)
    return NetCounts(
        data.filter(pa.array(~is_removed)),
        data.filter(pa.array(is_removed)),
        rows.column("count").to_numpy()[is_removed],
    )


def number(changes: pa.Table, columns: ChangeColumns) -> pa.RecordBatch:
    """Return changes in one batch, numbered; see :class:`ChangeColumns`."""
    numbers = {name: f"c{place}" for place, name in enumerate(columns.table)}
    usual = {actual: name for name, actual in columns.metadata.items()}
    renamed = changes.rename_columns(
        [usual.get(name) or numbers[name] for name in changes.column_names]
    )
    arrays = {name: _one(renamed.column(name)) for name in renamed.column_names}
    if columns.before:
        before = arrays["_before"]
        members = [numbers.get(name, name) for name in columns.before]
        arrays["_before"] = pa.StructArray.from_arrays(
            before.flatten(), names=members, mask=before.is_null()
        )
    return pa.RecordBatch.from_pydict(arrays)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _places(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return commit LSN and number of changes: their places in the total order."""
    return batch.column("_commit_lsn").to_numpy(), batch.column("_seq").to_numpy()


def key_events(batch: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return numbered changes by key: a change of a row's key counts for both keys.

    ``moved`` bool: it changed the key. ``leaving`` bool: it is the event of the old key.

    Raises ``TableError`` for an update without ``_before``.
    """
    data = dict(zip(batch.schema.names, batch.columns, strict=True))
    updated = mask_of(pc.equal(data["_op"], "U"))
    if updated.any() and not columns.before:
        raise TableError(
            "update without _before: changes of the key cannot be detected",
            hint='Decode with `before="key"`.',
        )
    moved = np.zeros(len(batch), np.bool_)
    old_keys: dict[int, pa.Array] = {}
    unsent = missing_values(data["_unchanged"], columns.table)
    if columns.before:
        before = data["_before"]
        has_before = mask_of(before.is_valid()) & updated
        for number in columns.keys:
            name = f"c{number}"
            old = pc.struct_field(before, name)
            if number in unsent:  # a long key is sent in the old tuple only
                rows = np.arange(len(batch))
                rows[unsent[number]] += len(batch)
                data[name] = pa.concat_arrays([data[name], old]).take(pa.array(rows))
            old_keys[number] = old
            rows = np.flatnonzero(has_before)
            if len(rows):
                at = pa.array(rows)
                moved[rows[differs(old.take(at), data[name].take(at))]] = True
    leaving = np.flatnonzero(moved)
    rows = np.append(np.arange(len(batch)), leaving)
    # Of the old tuple, only the values are needed after this.
    if not any(map(columns.in_before, columns.values)):
        data.pop("_before", None)
    taken = (
        {name: column.take(pa.array(rows)) for name, column in data.items()}
        if len(leaving)
        else data
    )
    for number, old in old_keys.items():
        if len(leaving):
            name = f"c{number}"
            taken[name] = pa.concat_arrays([data[name], old.take(pa.array(leaving))])
    is_leaving = np.arange(len(rows)) >= len(batch)
    taken["moved"], taken["leaving"] = pa.array(moved[rows]), pa.array(is_leaving)
    return pa.RecordBatch.from_pydict(taken)


def _by_key(events: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return events with those of a key one after another, in order."""
    codes = group_codes([events.column(f"c{number}") for number in columns.keys])
    lsn, seq = _places(events)
    if _falls(lsn, seq):
        order = np.lexsort((seq, lsn, codes))
    else:
        order = np.argsort(codes, kind="stable")
        if (order[1:] > order[:-1]).all():
            return events
    return events.take(pa.array(order))


def _falls(lsn: npt.NDArray[np.int64], seq: npt.NDArray[np.int64]) -> bool:
    """Return whether a change comes before an earlier one."""
    falls = (lsn[1:] < lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (seq[1:] < seq[:-1]))
    return bool(falls.any())


def _mask(table: pa.Table, name: str) -> Mask:
    mask: Mask = table.column(name).to_numpy()
    return mask
