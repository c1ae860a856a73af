"""Counts of equal rows of a table without a key.

A change adds a row or removes one; an update does both. Changes are sorted by row, the newest
first. A removed row is the newest of its equals that was added before. So it is enough to count the
removals whose rows come later in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Mask, Numbers, differs, mask_of
from pgwire_codec.lake.unsent_values import missing_values, with_old_values

ROW_HASH: Final = "row_hash"  # column of the hashes of rows


def split_updates(batch: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return the rows that numbered changes add, then those that they remove.

    Raises ``TableError`` for a change without its whole old row.
    """
    data = dict(zip(batch.schema.names, batch.columns, strict=True))
    op = data["_op"].to_numpy(zero_copy_only=False)
    before = data.get("_before")
    if not set(columns.before) >= set(columns.table):
        before = None
    if before is None and np.isin(op, ("U", "D")).any():
        raise _no_old_row("update or delete")
    if before is not None and (mask_of(before.is_null()) & (op == "U")).any():
        raise _no_old_row("update")
    data, missing = with_old_values(
        data, columns, missing_values(data["_unchanged"], columns.table)
    )
    if missing:
        lacking = ", ".join(columns.table[number] for number in missing)
        raise _no_old_row(f"change with an unsent value of column {lacking}")
    added, removed = np.flatnonzero(op != "D"), np.flatnonzero(op != "I")
    old = removed + np.where(op[removed] == "U", len(batch), 0)
    rows = pa.array(np.append(added, removed))
    sources = pa.array(np.append(added, old))
    result = {}
    for name in columns.numbers:
        values = [data[name]] if before is None else [data[name], pc.struct_field(before, name)]
        result[name] = pa.concat_arrays(values).take(sources)
    result |= {name: data[name].take(rows) for name in columns.row_metadata}
    result["removed"] = pa.array(np.arange(len(rows)) >= len(added))
    return pa.RecordBatch.from_pydict(result)


def _no_old_row(change: str) -> TableError:
    return TableError(
        f"{change} without the whole old row of a table without a key",
        hint='Set REPLICA IDENTITY FULL before the first change, decode with `before="key"`, and '
        "keep all columns. Or name keys.",
    )


def count_rows(
    batches: Iterable[pa.RecordBatch], compared: list[str], names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Count the rows of sorted changes: yield added rows that were not removed, and the converse.

    The changes have equal rows next to one another, the newest first, and the row that an update
    added before the one that it removed. They have the columns ``compared``, ``names``,
    ``row_hash``, and ``removed`` bool. The rows have ``names``, ``removed`` and ``count``.
    """
    last: pa.RecordBatch | None = None  # of the batch before
    removals = 0  # of rows that equal it and were added before
    for batch in batches:
        if not batch.num_rows:
            continue
        if last is not None:
            batch = pa.RecordBatch.from_arrays(
                [pa.concat_arrays(pair) for pair in zip(last, batch, strict=True)],
                schema=batch.schema,
            )
        equal = _equals_previous(batch, compared)
        weight = np.where(mask_of(batch.column("removed")), 1, -1)
        # A change that was stored twice counts once.
        weight[1:][equal & _is_same_change(batch)] = 0
        if last is not None:
            weight[0] = removals
        starts = np.flatnonzero(np.append(True, ~equal))
        is_left, open_removals = _balance(weight, starts)
        removals = int(open_removals[-1])
        ends = np.append(starts[1:], batch.num_rows) - 1
        count = np.zeros(batch.num_rows, np.int64)
        count[ends[:-1]] = open_removals[:-1]
        yield from _rows(batch, names, is_left, count)
        last = batch.take(pa.array([batch.num_rows - 1]))
    if last is not None:
        yield from _rows(last, names, np.array([False]), np.array([removals]))


def _balance(weight: Numbers, starts: Numbers) -> tuple[Mask, Numbers]:
    """Return which additions no removal cancels, and for each run the remaining removals.

    ``weight`` is the number of removals, or -1 for an addition. Removals add up, and an addition
    cancels one if there is one. It is not cancelled if the sum reaches a new minimum below 0. Each
    run is lowered below all before it, so that one cumulated minimum serves all.
    """
    run = np.zeros(len(weight), np.int64)
    run[starts[1:]] = 1
    run = np.cumsum(run)
    total = np.cumsum(weight)
    total -= (total[starts] - weight[starts])[run]
    floor = -run * 2 * (int(np.abs(weight).sum()) + 1)
    total += floor
    lowest = np.minimum.accumulate(np.minimum(total, floor))
    before = np.minimum(np.append(0, lowest[:-1]), floor)
    ends = np.append(starts[1:], len(weight)) - 1
    return (weight < 0) & (total < before), total[ends] - lowest[ends]


def _equals_previous(batch: pa.RecordBatch, compared: list[str]) -> Mask:
    """Return which rows from the second on equal the one before."""
    hashes = batch.column(ROW_HASH).to_numpy()
    rows = np.flatnonzero(hashes[1:] == hashes[:-1])
    for name in compared:
        if not len(rows):
            break
        column = batch.column(name)
        rows = rows[~differs(column.take(pa.array(rows)), column.take(pa.array(rows + 1)))]
    equal = np.zeros(len(hashes) - 1, np.bool_)
    equal[rows] = True
    return equal


def _is_same_change(batch: pa.RecordBatch) -> Mask:
    same = np.ones(batch.num_rows - 1, np.bool_)
    for name in ("_commit_lsn", "_seq", "removed"):
        column = batch.column(name)
        same &= ~differs(column[:-1], column[1:])
    return same


def _rows(
    batch: pa.RecordBatch, names: list[str], is_left: Mask, removals: Numbers
) -> Iterator[pa.RecordBatch]:
    """Yield the remaining rows, and the removed ones with their counts."""
    rows = np.concatenate([np.flatnonzero(is_left), np.flatnonzero(removals)])
    if len(rows):
        removed = np.arange(len(rows)) >= np.count_nonzero(is_left)
        data = {name: batch.column(name).take(pa.array(rows)) for name in names}
        count = np.where(removed, removals[rows], 1)
        yield pa.RecordBatch.from_pydict(data | {"removed": removed, "count": count})
