"""Fold of a table's changes: the last state of each row that they touch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Mask, Numbers, differs, mask_of
from pgwire_codec.lake.key_chains import CHAIN, resolve_chains
from pgwire_codec.lake.key_codes import group_codes
from pgwire_codec.lake.key_states import fold as fold_states
from pgwire_codec.lake.row_counts import ROW_HASH, count_rows
from pgwire_codec.lake.unsent_values import missing_values, replaced


@dataclass(frozen=True, slots=True)
class NetRows:
    """One row for each key that changes touch."""

    rows: pa.Table  # the table's columns; a row that is gone has only its key
    gone: Mask  # whether the key has no row at the end
    roots: pa.Table  # the key that each row had before the changes; null for an inserted row
    #: By column, the rows whose value the changes do not contain: the row had it before.
    missing: dict[str, Numbers]

    def __len__(self) -> int:
        return len(self.gone)


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
    is_last, far = mask_of(states.column("is_last")), mask_of(states.column("far"))
    has_left = pc.is_valid(states.column("left"))
    near = states.filter(pa.array(is_last & ~far)).drop_columns([*CHAIN])
    if far.any():
        chains = states.filter(pc.or_(has_left, states.column("far")))
        near = pa.concat_tables([near, resolve_chains(chains, columns).select(near.column_names)])
    gone = mask_of(near.column("gone"))
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
    codes = group_codes([events.column(name) for name in columns.key_numbers])
    lsn, seq = places_of(events)
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
    """Rows of a table without a key that changes add and remove on balance."""

    added: pa.Table
    removed: pa.Table  # rows from before the changes, each different one once
    counts: Numbers  # how many of each removed row


def count_events(events: pa.RecordBatch, columns: ChangeColumns) -> NetCounts:
    """Return the rows that events of :func:`split_updates`, in any order, add and remove."""
    names = columns.numbers
    codes = group_codes([events.column(name) for name in names])
    lsn, seq = places_of(events)
    order = np.lexsort((mask_of(events.column("removed")), -seq, -lsn, codes))
    events = events.append_column(ROW_HASH, pa.array(codes)).take(pa.array(order))
    counted = list(count_rows([events], [], names))
    if not counted:
        empty = events.select(names).rename_columns(columns.table).slice(0, 0)
        nothing = pa.Table.from_batches([empty])
        return NetCounts(nothing, nothing, np.zeros(0, np.int64))
    rows = pa.Table.from_batches(counted)
    is_removed = mask_of(rows.column("removed"))
    data = rows.select(names).rename_columns(columns.table)
    return NetCounts(
        data.filter(pa.array(~is_removed)),
        data.filter(pa.array(is_removed)),
        rows.column("count").to_numpy()[is_removed],
    )


def places_of(batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
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
                data[name] = replaced(data[name], old, unsent[number])
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
    if len(leaving):
        sent = data
        data = {name: column.take(pa.array(rows)) for name, column in sent.items()}
        for number, old in old_keys.items():
            name = f"c{number}"
            data[name] = pa.concat_arrays([sent[name], old.take(pa.array(leaving))])
    data["moved"] = pa.array(moved[rows])
    data["leaving"] = pa.array(np.arange(len(rows)) >= len(batch))
    return pa.RecordBatch.from_pydict(data)


def _by_key(events: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return events with those of a key one after another, in order."""
    codes = group_codes([events.column(name) for name in columns.key_numbers])
    lsn, seq = places_of(events)
    if _falls(lsn, seq):
        order = np.lexsort((seq, lsn, codes))
    else:
        order = np.argsort(codes, kind="stable")
        if (order[1:] > order[:-1]).all():
            return events
    return events.take(pa.array(order))


def _falls(lsn: Numbers, seq: Numbers) -> bool:
    """Return whether a change comes before an earlier one."""
    falls = (lsn[1:] < lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (seq[1:] < seq[:-1]))
    return bool(falls.any())
