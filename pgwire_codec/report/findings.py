"""Figures of a report, as plain dataclasses. Times are microseconds since 1970, UTC."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pgwire_codec.lake.status import OK
from pgwire_codec.log import LogStatistics, TableCount

#: The columns of :attr:`TimeLine.sums`.
INSERTS, UPDATES, DELETES, TRUNCATES, BYTES, TRANSACTIONS, LAGS, LAG_SUM = range(8)

#: Upper bounds of the lags that are counted together, in microseconds.
LAG_BOUNDS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class TimeLine:
    """Sums over bins of commit time.

    Attributes
    ----------
    start, width : int
        Start of the first bin, and the width of each.
    sums : numpy.ndarray of int64, bins x 8
        Inserts, updates, deletes, truncates, message bytes, transactions, transactions with a known
        lag, and the sum of these lags.
    worst_lag : numpy.ndarray of int64, bins
        -1 if no lag is known.
    first, last : int
        The first and the last commit time.
    """

    start: int
    width: int
    first: int
    last: int
    sums: npt.NDArray[np.int64]
    worst_lag: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def stop(self) -> int:
        """End of the last bin."""
        return self.start + self.width * len(self)


@dataclass(frozen=True, slots=True)
class LargeTransaction:
    """One of the transactions with the most bytes; ``lag`` is None if it is unknown."""

    xid: int
    commit_lsn: int
    commit_time: int
    changes: int
    bytes: int
    tables: tuple[str, ...]
    gid: str | None
    origin: str | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class Lags:
    """Times from a transaction's commit until the server sent its last message.

    Attributes
    ----------
    counts : tuple of int
        Number of transactions up to each of :data:`LAG_BOUNDS`, and of those beyond the last.
    worst : int or None
        The longest, in microseconds.
    unknown : int
        Transactions without one: the log has no time, another server's clock set the commit time,
        or the server's clock was set back.
    """

    counts: tuple[int, ...]
    worst: int | None
    unknown: int

    @property
    def known(self) -> int:
        """Number of transactions with a known lag."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table's new definition, at the first row that came with it.

    ``details`` are pairs of a sign (``+``, ``-``, ``~``) and what was added, removed or changed.
    """

    time: int
    commit_lsn: int
    table: str
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """The first schema changes, their total number, and the time each table was first seen."""

    first: tuple[SchemaChange, ...]
    count: int
    first_seen: dict[str, int]

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables in ``first``, in order of their first change."""
        return tuple(dict.fromkeys(each.table for each in self.first))


@dataclass(frozen=True, slots=True)
class Problem:
    """A message that was rejected, or (``is_warning``) decoded with a warning.

    ``ordinal`` is None if the problem was found at the transaction's end, in a later call than its
    message.
    """

    ordinal: int | None
    code: str
    text: str
    is_warning: bool


@dataclass(frozen=True, slots=True)
class Problems:
    """The first problems, and the number of errors and of warnings by code."""

    first: tuple[Problem, ...]
    errors: dict[str, int]
    warnings: dict[str, int]


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of a mirror, and what it lacks of the log.

    Attributes
    ----------
    table : str
        ``schema.table``.
    state : str
        As in the mirror's status table.
    commit_lsn, commit_time : int or None
        Those of the last transaction that it has.
    missing : int or None
        Number of the log's changes that it lacks; None if no relation has its name now.
    missing_since : int or None
        Commit time of the first of these.
    files, bytes : int
        Number of its data files, and their bytes.
    rows : int or None
        Number of its rows, without deleted ones; None if the files do not record it.
    deleted : int
        Number of rows that are deleted by vectors, and still in the files.
    incomplete : tuple of str
        Columns that are null in rows from before they were there, as ``COLUMN since LSN``.
    error, hint : str or None
        Reason for which it is set aside, and what to do about that or about its columns.
    """

    table: str
    state: str
    commit_lsn: int | None
    commit_time: int | None
    missing: int | None
    missing_since: int | None
    files: int
    bytes: int
    rows: int | None
    deleted: int
    incomplete: tuple[str, ...]
    error: str | None
    hint: str | None

    @property
    def is_complete(self) -> bool:
        """True if the mirror keeps it up to date, and it has all rows and values of the log."""
        return self.state == OK and not self.missing


@dataclass(frozen=True, slots=True)
class LetterCount:
    """Number of changes of a table that do not decode, by code; ``table`` is None if unknown."""

    table: str | None
    code: str
    count: int


@dataclass(frozen=True, slots=True)
class LakeFindings:
    """Tables of a mirror, by name, and their dead letters, most first.

    ``name`` is that of the lake without its location.
    """

    name: str
    format: str
    tables: tuple[LakeTable, ...]
    letters: tuple[LetterCount, ...]


@dataclass(frozen=True)
class Findings:
    """Result of :func:`pgwire_codec.report.gather`.

    Attributes
    ----------
    name : str
        Name of the log without its location, which can contain users and passwords.
    statistics : LogStatistics
        Contents of the sidecars.
    transactions, logical_messages : int
        Number of those committed, each counted once; without the snapshot.
    tables : tuple of TableCount
        Their committed changes.
    snapshot : tuple of TableCount
        The rows of the snapshot.
    time_line : TimeLine
        The transactions over time.
    largest : tuple of LargeTransaction
        By bytes, the largest first.
    lags : Lags
    schema : SchemaChanges
    problems : Problems
    lake : LakeFindings or None
        The mirror's tables, if they were read.
    """

    name: str
    statistics: LogStatistics
    transactions: int
    logical_messages: int
    tables: tuple[TableCount, ...]
    snapshot: tuple[TableCount, ...]
    time_line: TimeLine
    largest: tuple[LargeTransaction, ...]
    lags: Lags
    schema: SchemaChanges
    problems: Problems
    lake: LakeFindings | None = None

    @cached_property
    def changes(self) -> int:
        """Number of committed changes, without the snapshot."""
        return sum(map(changes_of, self.tables))

    @cached_property
    def bytes(self) -> int:
        """Bytes of the messages of committed changes, without the snapshot."""
        return sum(each.bytes for each in self.tables)

    @cached_property
    def uncommitted(self) -> int:
        """Number of changes in the log that are in neither ``tables`` nor ``snapshot``."""
        sent = sum(map(changes_of, self.statistics.sent))
        return sent - self.changes - sum(map(changes_of, self.snapshot))


def changes_of(count: TableCount) -> int:
    """Return the number of changes of a table."""
    return count.inserts + count.updates + count.deletes + count.truncates
