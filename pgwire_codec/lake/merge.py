"""Merge of net rows into a table: rows to delete by position, and rows to add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Mask, Numbers, differs, mask_of
from pgwire_codec.lake.fold import NetCounts, NetRows, count_events, fold_events
from pgwire_codec.lake.key_codes import match_codes
from pgwire_codec.lake.lookup import FoundRows, find_copies, find_rows, key_text, read_rows
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.vectors import bitmap

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True, slots=True)
class TableMerge:
    """Changes of a table by a merge."""

    added: pa.Table  # new rows, and the new versions of others
    #: Positions of the rows to delete, by the file's path.
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)
    inserted: int = 0  # number of rows, as ``updated`` and ``removed``
    updated: int = 0
    removed: int = 0


def merge_events(
    target: TableFiles,
    events: pa.RecordBatch,
    columns: ChangeColumns,
    kept: pa.Schema | None = None,
) -> TableMerge:
    """Return the merge of the events of a bucket; see :func:`merge_rows`, :func:`merge_counts`."""
    if not columns.keys:
        return merge_counts(target, count_events(events, columns))
    return merge_rows(target, fold_events(events, columns), columns.deleted, kept)


def merge_rows(
    target: TableFiles, net: NetRows, deleted: str | None = None, kept: pa.Schema | None = None
) -> TableMerge:
    """Return what brings a table to the state of net rows.

    A row that is to be deleted and is missing is deleted already. A row with all values that is
    missing is inserted. So is one with true in the column ``deleted``, which has its key only. The
    columns ``kept``, which only the table has, keep their values.

    Raises ``TableError`` if the table lacks a row that values are needed of, or has two rows with a
    key.
    """
    keys = net.rows.select(net.roots.column_names)
    row_of_root = _row_of_root(keys, net.roots)
    found = find_rows(target, keys)
    has_root = (row_of_root >= 0) & found.exists[row_of_root]
    missing = net.missing
    if deleted is not None:
        is_bare = mask_of(net.rows.column(deleted).combine_chunks().fill_null(False)) & ~has_root
        missing = {name: rows[~is_bare[rows]] for name, rows in missing.items()}
        missing = {name: rows for name, rows in missing.items() if len(rows)}
    _check_missing(target, net, missing, row_of_root, has_root)
    rows = _filled(target, net.rows, missing, found, row_of_root)
    if kept is not None and len(kept):
        rows = _with_columns(target, rows, kept, found, np.where(has_root, row_of_root, -1), net)
    existed = found.exists | has_root
    return TableMerge(
        added=rows.filter(pa.array(~net.gone)) if net.gone.any() else rows,
        deleted=_positions(found),
        inserted=int(np.count_nonzero(~net.gone & ~existed)),
        updated=int(np.count_nonzero(~net.gone & existed)),
        removed=int(np.count_nonzero(net.gone & found.exists)),
    )


def merge_counts(target: TableFiles, net: NetCounts) -> TableMerge:
    """Return what adds and removes rows of a table without a key.

    Raises ``TableError`` if the table lacks a row that is to be removed.
    """
    found = find_copies(target, net.removed, net.counts)
    return TableMerge(
        added=net.added,
        deleted={path: bitmap(positions) for path, positions in found.items()},
        inserted=len(net.added),
        removed=int(net.counts.sum()),
    )


def _row_of_root(keys: pa.Table, roots: pa.Table) -> Numbers:
    """Return the number of the row that has each row's root as its key; -1 for a new row."""
    arrays = [column.combine_chunks() for column in keys.columns]
    root_arrays = [column.combine_chunks() for column in roots.columns]
    born = np.ones(len(keys), np.bool_)
    for column in root_arrays:
        born &= mask_of(column.is_null())
    moved = np.zeros(len(keys), np.bool_)
    for key, root in zip(arrays, root_arrays, strict=True):
        moved |= differs(key, root)
    moved &= ~born
    row_of_root = np.where(born, -1, np.arange(len(keys)))
    if moved.any():
        rows = np.flatnonzero(moved)
        chosen = [column.take(pa.array(rows)) for column in root_arrays]
        root_codes, key_codes = match_codes(chosen, arrays)
        number_of_code = np.full(int(key_codes.max()) + 2, -1)
        number_of_code[key_codes] = np.arange(len(keys))
        # A root is the key of a row that is gone, or of another one by now.
        row_of_root[rows] = number_of_code[root_codes]
        assert (row_of_root[rows] >= 0).all(), "a row has an unknown origin"
    return row_of_root


def _check_missing(
    target: TableFiles,
    net: NetRows,
    missing: Mapping[str, Numbers],
    row_of_root: Numbers,
    has_root: Mask,
) -> None:
    """Raise ``TableError`` for a row whose unsent values the table does not have."""
    for rows in missing.values():
        lacking = rows[~has_root[rows]]
        if len(lacking):
            row = int(lacking[0])
            keys = net.roots if row_of_root[row] >= 0 else net.rows.select(net.roots.column_names)
            raise TableError(
                f"{target.name} has no row {key_text(keys, row)}, which an update changed without "
                "sending all values (unchanged TOAST): earlier changes are missing there",
                hint="Apply them first, in the order of their commits. Or set REPLICA IDENTITY "
                "FULL, with which the server sends whole rows.",
            )


def _filled(
    target: TableFiles,
    rows: pa.Table,
    missing: Mapping[str, Numbers],
    found: FoundRows,
    row_of_root: Numbers,
) -> pa.Table:
    """Return the rows with the values that the changes did not send."""
    if not missing:
        return rows
    lacking = np.unique(np.concatenate(list(missing.values())))
    schema = pa.schema([rows.schema.field(name) for name in missing])
    values = read_rows(target, found, row_of_root[lacking], schema)
    for name, of_column in missing.items():
        column, old = rows.column(name), values.column(name)
        take = np.arange(len(rows))
        take[of_column] = len(rows) + np.searchsorted(lacking, of_column)
        both = pa.chunked_array([*column.chunks, *old.chunks], column.type)
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.schema.field(name), both.take(pa.array(take)))
    return rows


def _with_columns(
    target: TableFiles,
    rows: pa.Table,
    schema: pa.Schema,
    found: FoundRows,
    row_of_root: Numbers,
    net: NetRows,
) -> pa.Table:
    """Return the rows with further columns of the rows that they were, or whose key they have."""
    source = np.where(row_of_root >= 0, row_of_root, np.arange(len(rows)))
    existing = np.flatnonzero(found.exists[source] & ~net.gone)
    values = read_rows(target, found, source[existing], schema)
    take = np.full(len(rows), -1)
    take[existing] = np.arange(len(existing))
    indices = pa.array(take, mask=take < 0)
    for column in schema:
        rows = rows.append_column(column, values.column(column.name).take(indices))
    return rows


def _positions(found: FoundRows) -> dict[str, BitMap64]:
    """Return the positions of all rows that were found, by the file's path."""
    positions: dict[str, BitMap64] = {}
    for number in np.unique(found.file[found.exists]).tolist():
        here = found.position[found.file == number]
        positions[found.files[number].path] = bitmap(here)
    return positions
