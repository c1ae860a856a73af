"""Source rows of a merge by delta-rs: by key, or counted for a table without a key."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.unsent_values import Rows, missing_values
from pgwire_codec.protocol.quoting import quote_identifier
from pgwire_codec.spark.reduction.net_changes import net_changes, whole_rows
from pgwire_codec.spark.reduction.row_counts import row_changes
from pgwire_codec.spark.sinks.target import (
    MISSING_ROW_HINT,
    MISSING_ROWS_HINT,
    Batch,
    missing_row,
    missing_rows,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class MergeSource:
    """Source of a merge, whose alias is ``s``; that of the target is ``t``.

    Attributes
    ----------
    rows : pyarrow.Table
        ``c0``, ``c1``, … the table's columns; ``gone`` bool, for rows to delete; and others.
    matches : str
        SQL condition for a row of the target.
    updates : dict of str to str
        Values of a matching row, by column, both in SQL; empty if such rows are only deleted.
    again : int
        Number of rows that are deleted and inserted again.
    """

    rows: pa.Table
    matches: str
    updates: dict[str, str] = field(default_factory=dict)
    again: int = 0


def net_rows(batch: Batch) -> DataFrame:
    """Return the rows that a merge of a batch needs, with the table's columns by number."""
    columns, partitions = batch.columns, batch.partitions
    if not batch.has_keys:
        rows = row_changes(batch.changes, columns, partitions)
    elif batch.sends_all:
        return whole_rows(batch.changes, columns, partitions)
    else:
        rows = net_changes(batch.changes, columns, partitions=partitions)
    return rows.drop(*columns.row_metadata)


def source_of(
    rows: pa.Table, columns: ChangeColumns, table: DeltaTable | None, target: str
) -> MergeSource:
    """Return the source of the merge of net rows.

    Raises ``TableError`` if the table, None for one without rows, lacks a row that they need.
    """
    if not columns.keys:
        return _CountedRows(columns, rows).source(table, target)
    missing = {}
    if "unchanged" in rows.column_names:
        missing = missing_values(rows.column("unchanged").combine_chunks(), columns.table)
    return _KeyedRows(columns, rows, missing).source(table, target)


@dataclass(frozen=True, slots=True)
class _KeyedRows:
    """Rows with a key, with the columns of ``net_changes``, or of ``whole_rows``.

    ``missing`` has the rows whose value of a column is unknown, by the column's number.
    """

    columns: ChangeColumns
    rows: pa.Table
    missing: dict[int, Rows]

    def source(self, table: DeltaTable | None, target: str) -> MergeSource:
        net = self._filled(table, target)
        names = net.columns.table
        rows = net.rows.select(["gone", *net.columns.numbers])
        for number, lacking in net.missing.items():
            mask = np.zeros(len(rows), np.bool_)
            mask[lacking] = True
            rows = rows.append_column(f"u{number}", pa.array(mask))
        updates = {
            quote_identifier(name): (
                f"CASE WHEN s.u{number} THEN t.{quote_identifier(name)} ELSE s.c{number} END"
                if number in net.missing
                else f"s.c{number}"
            )
            for number, name in enumerate(names)
        }
        same_key = (
            f"t.{quote_identifier(names[number])} = s.c{number}" for number in net.columns.keys
        )
        return MergeSource(rows, " AND ".join(same_key), updates)

    def _keys(self, prefix: str, rows: pa.Table) -> list[tuple[Any, ...]]:
        """Return the keys (``"c"``) or the roots' keys (``"r"``) of rows."""
        places = self.columns.keys if prefix == "c" else range(len(self.columns.keys))
        names = [f"{prefix}{place}" for place in places]
        return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))

    def _deleted(self, rows: pa.Table) -> list[bool]:
        number = self.columns.deleted
        return [False] * len(rows) if number is None else rows.column(f"c{number}").to_pylist()

    def _filled(self, table: DeltaTable | None, target: str) -> _KeyedRows:
        """Return the rows with missing values of the target for those that changed their key.

        Rows that did not change it keep theirs. Raise ``TableError`` for a missing row.
        """
        if not self.missing:
            return self
        places = np.unique(np.concatenate(list(self.missing.values())))
        lacking = self.rows.take(pa.array(places))
        keys, roots = self._keys("c", lacking), self._keys("r", lacking)
        moved = {root for key, root in zip(keys, roots, strict=True) if key != root}
        existing, values = self._fetch(table, set(roots), moved)
        for root, is_deleted in zip(roots, self._deleted(lacking), strict=True):
            if root not in existing and not is_deleted:
                raise self._missing_row(root, target)
        source = np.full(len(self.rows), -1)
        for place, key, root in zip(places.tolist(), keys, roots, strict=True):
            if key != root:
                source[place] = existing.get(root, -1)
        return self._with_values(source, values) if moved else self

    def _with_values(self, source: Rows, values: pa.Table) -> _KeyedRows:
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
        return _KeyedRows(self.columns, rows, missing)

    def _fetch(
        self,
        table: DeltaTable | None,
        roots: set[tuple[Any, ...]],
        moved: set[tuple[Any, ...]],
    ) -> tuple[dict[tuple[Any, ...], int], pa.Table]:
        """Return the roots that the target has, and a table with values of those that moved.

        The roots are mapped to the number of their row in that table.
        """
        schema = _table_schema(self.rows, self.columns)
        numbers = (*self.columns.keys, *(self.missing if moved else ()))
        wanted = pa.schema([schema.field(number) for number in numbers])
        if table is None:
            return {}, wanted.empty_table()
        first = pa.array([root[0] for root in roots], wanted.field(0).type)
        existing: dict[tuple[Any, ...], int] = {}
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
                existing[key] = count
                if key in moved:
                    taken.append(place)
                    count += 1
            found.append(rows.take(pa.array(taken, pa.int64())))
        return existing, pa.concat_tables(found) if found else wanted.empty_table()

    def _missing_row(self, root: tuple[Any, ...], target: str) -> TableError:
        where = ", ".join(
            f"{self.columns.table[number]} = {value!r}"
            for number, value in zip(self.columns.keys, root, strict=True)
        )
        return TableError(missing_row(target, where), hint=MISSING_ROW_HINT)


@dataclass(frozen=True, slots=True)
class _CountedRows:
    """Rows without a key, with the columns of ``row_changes``.

    A merge deletes all equal rows: those that remain are inserted again.
    """

    columns: ChangeColumns
    rows: pa.Table

    def source(self, table: DeltaTable | None, target: str) -> MergeSource:
        is_removed = self.rows.column("removed")
        removals = self.rows.filter(is_removed).column("count").to_numpy()
        data = self.rows.select(self.columns.numbers)
        removed, added = data.filter(is_removed), data.filter(pc.invert(is_removed))
        copies = self._copies(removed, table)
        lacking = np.flatnonzero(copies < removals)
        if len(lacking):
            row = int(lacking[0])
            raise self._missing_rows(removed.slice(row, 1), copies[row], removals[row], target)
        kept = removed.take(pa.array(np.repeat(np.arange(len(removed)), copies - removals)))
        rows = pa.concat_tables([removed, added, kept])
        gone = np.arange(len(rows)) < len(removed)
        same = (self._same(number) for number in range(len(self.columns.table)))
        matches = " AND ".join(["s.gone", *same])
        return MergeSource(rows.append_column("gone", pa.array(gone)), matches, again=len(kept))

    def _same(self, number: int) -> str:
        ours, theirs = f"s.c{number}", f"t.{quote_identifier(self.columns.table[number])}"
        if pa.types.is_floating(self.rows.schema.field(f"c{number}").type):
            # As text, where -0.0 and 0.0 differ.
            ours, theirs = (f"CAST({each} AS VARCHAR)" for each in (ours, theirs))
        return f"({theirs} IS NOT DISTINCT FROM {ours})"

    def _copies(self, rows: pa.Table, table: DeltaTable | None) -> Rows:
        """Return the number of each of some rows in the target."""
        found: Counter[str] = Counter()
        if table is not None and len(rows):
            schema = _table_schema(self.rows, self.columns)
            wanted = set(_as_text(rows))
            for raw in pa.RecordBatchReader.from_stream(table.scan(columns=schema.names)):
                existing = pa.Table.from_batches([raw]).select(schema.names).cast(schema)
                for place, kind in enumerate(schema.types):
                    if not pa.types.is_nested(kind):
                        # This leaves few rows to compare.
                        values = rows.column(place)
                        existing = existing.filter(pc.is_in(existing.column(place), values))
                found.update(each for each in _as_text(existing) if each in wanted)
        return np.array([found[each] for each in _as_text(rows)], np.int64)

    def _missing_rows(self, row: pa.Table, copies: int, removals: int, target: str) -> TableError:
        values = (str(column[0].as_py()) for column in row.columns)
        where = ", ".join(
            f"{name} = {value if len(value) < 40 else value[:37] + '...'}"
            for name, value in zip(self.columns.table, values, strict=True)
        )
        return TableError(missing_rows(target, copies, where, removals), hint=MISSING_ROWS_HINT)


def _as_text(rows: pa.Table) -> list[str]:
    """Return rows as texts with all digits: equal texts are equal rows."""
    return [
        repr(values)
        for values in zip(*(column.to_pylist() for column in rows.columns), strict=True)
    ]


def _table_schema(rows: pa.Table, columns: ChangeColumns) -> pa.Schema:
    """Return the schema of the table."""
    kinds = [rows.schema.field(name).type for name in columns.numbers]
    return pa.schema(list(zip(columns.table, kinds, strict=True)))
