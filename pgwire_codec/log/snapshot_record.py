"""Record of a snapshot that is being written to a log, from which a later capture continues it.

The plan is written once. Before rows are appended, the file of the rows records which ones these
are, and which ones the log already has. After a crash, the end of the log determines how many of
the former it has, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgwire_codec.log.checked_json import Count, dump, load

if TYPE_CHECKING:
    from pgwire_codec.log.store import Store

PLAN: Final = "snapshot-plan.json"
ROWS: Final = "snapshot-rows.json"


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Range of a table's pages that is copied independently.

    Attributes
    ----------
    relation_oid : int
        Table under whose OID the rows are published.
    source : str
        Item of the FROM clause that has the rows.
    first_page : int
    end_page : int or None
        Page after the last one. None: the range extends to the end of the file, which may have
        grown since the pages were counted.
    bytes : int
        Size on the server's disk, with its part of the TOAST table.
    rows : float
        Estimated number.
    has_order : bool
        Whether the rows are read in the same order each time.
    """

    relation_oid: Count
    source: str
    first_page: Count
    end_page: Count | None
    bytes: Count
    rows: float
    has_order: bool


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Ranges that a snapshot copies, and the session of the server that keeps it.

    Attributes
    ----------
    lsn : int
        LSN at which the slot starts.
    commit_time : int
        Commit time of the snapshot's transaction, in microseconds since 1970.
    name : str
        Name under which the server exports the snapshot.
    keeper_pid, keeper_start : int
        Process ID of the session that keeps it, and its start in microseconds since 1970.
    tables : str
        Checksum of the tables' descriptions and queries.
    ranges : list of PlannedRange
    """

    lsn: Count
    commit_time: int
    name: str
    keeper_pid: Count
    keeper_start: int
    tables: str
    ranges: list[PlannedRange]


@dataclass(frozen=True, slots=True)
class NextRows:
    """Rows that are appended to the log next: range, number, and whether they are its last."""

    range: Count
    rows: Count
    is_last: bool


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """Rows of each range that the log contains.

    Attributes
    ----------
    lsn : int
        That of the plan.
    ordinal : int
        End of the log when this was written. The rest is as of there.
    complete_before : int
        All ranges with a lower number are complete.
    complete : list of int
        Numbers of other ranges that are complete.
    complete_rows : int
        Number of rows of all complete ranges.
    rows : dict of int to int
        Number of rows of each range that is begun and not complete.
    next : list of NextRows
        Rows that are then appended, in order.
    """

    lsn: Count
    ordinal: Count
    complete_before: Count
    complete: list[int]
    complete_rows: Count
    rows: dict[int, int]
    next: list[NextRows]


class SnapshotRecord:
    """Files of the record of a log, which exist as long as its snapshot is not complete."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def plan(self) -> SnapshotPlan | None:
        """Return the plan of the interrupted snapshot, or None without one.

        Raises ``LogError`` when the file is damaged.
        """
        data = self._store.read(PLAN)
        return None if data is None else load(data, SnapshotPlan, f"{self._store.name}/{PLAN}")

    def rows(self) -> RecordedRows | None:
        """Return the rows that were recorded last; errors as for :meth:`plan`."""
        data = self._store.read(ROWS)
        return None if data is None else load(data, RecordedRows, f"{self._store.name}/{ROWS}")

    def write_plan(self, plan: SnapshotPlan) -> None:
        """Make a plan durable."""
        self._store.write(PLAN, dump(plan))

    def write_rows(self, rows: RecordedRows) -> None:
        """Make the record of the rows durable."""
        self._store.write(ROWS, dump(rows))

    def remove(self) -> None:
        """Remove the record."""
        self._store.remove(PLAN)
        self._store.remove(ROWS)
