"""SnapshotProgress: the rows of a snapshot, copied and to come."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgwire_codec.capture.snapshot.logged_rows import LoggedRows
    from pgwire_codec.capture.snapshot.table_copies import CopiedRows
    from pgwire_codec.capture.snapshot.table_ranges import TableRange


class SnapshotProgress:
    """Counts of a snapshot's rows, tables and bytes.

    Parameters
    ----------
    tables : int
        Number of tables, with those that have no range.
    ranges : sequence of TableRange

    Attributes
    ----------
    rows : int
        Number of rows copied.
    rows_expected : int
        Number of rows copied and, by estimate, to come. It is exact when all ranges are complete.
    tables, tables_expected : int
        Number of tables that are complete, and of all.
    bytes, bytes_expected : int
        Size of the ranges that are complete, and of all, on the server's disk.
    """

    def __init__(self, tables: int, ranges: Sequence[TableRange]) -> None:
        self._unfinished = Counter(range_.table.relation.oid for range_ in ranges)
        self._to_come = {range_.number: range_.planned.rows for range_ in ranges}  # not below 0
        self._rows_to_come = sum(self._to_come.values())
        self.rows = 0
        self.tables = tables - len(self._unfinished)
        self.tables_expected = tables
        self.bytes = 0
        self.bytes_expected = sum(range_.planned.bytes for range_ in ranges)

    @property
    def rows_expected(self) -> int:
        return self.rows + round(self._rows_to_come)

    def restore(self, logged: LoggedRows, ranges: Sequence[TableRange]) -> None:
        """Count the rows that the log already has; call it first."""
        self.rows = logged.total
        for range_ in ranges:
            self._advance(range_, logged.rows[range_.number], range_.number in logged.complete)

    def add(self, copied: CopiedRows) -> None:
        """Count copied rows."""
        self.rows += copied.rows
        self._advance(copied.range, copied.rows, copied.is_last)

    def _advance(self, range_: TableRange, rows: int, is_complete: bool) -> None:
        before = self._to_come[range_.number]
        after = 0.0 if is_complete else max(before - rows, 0.0)
        self._to_come[range_.number] = after
        self._rows_to_come += after - before
        if not is_complete:
            return
        self.bytes += range_.planned.bytes
        oid = range_.table.relation.oid
        self._unfinished[oid] -= 1
        self.tables += self._unfinished[oid] == 0
