"""What a report shows, in plain numbers. Times are microseconds since 1970, UTC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgwire_codec.log import LogStatistics, TableCount

#: The columns of :attr:`TimeLine.sums`.
INSERTS, UPDATES, DELETES, TRUNCATES, BYTES, TRANSACTIONS, LAGS, LAG_SUM = range(8)

#: Lags are counted up to each of these, in microseconds; and beyond the last.
LAG_BOUNDS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class TimeLine:
    """Sums over bins of commit time.

    Attributes
    ----------
    start, width : int
        Where the first bin begins, and how long each is.
    sums : numpy.ndarray of int64, bins x 8
        Inserts, updates, deletes, truncates, message bytes, transactions, transactions whose lag
        is known, and the sum of these lags.
    worst_lag : numpy.ndarray of int64, bins
        -1 where none is known.
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
        """Where the last bin ends."""
        return self.start + self.width * len(self)


@dataclass(frozen=True, slots=True)
class LargeTransaction:
    """One of the transactions with most bytes; ``lag`` is None where it is not known."""

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
    """How long after its commit the server sent a transaction's last message.

    Attributes
    ----------
    counts : tuple of int
        How many took up to each of :data:`LAG_BOUNDS`, and longer.
    worst : int or None
        The longest, in microseconds.
    unknown : int
        Transactions without: the log has no time, the commit is by another server's clock, or the
        server's clock was set back.
    """

    counts: tuple[int, ...]
    worst: int | None
    unknown: int

    @property
    def known(self) -> int:
        """How many transactions have one."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The first row that a table's new shape was seen with, and what is new about it.

    ``details`` are pairs of a sign (``+``, ``-``, ``~``) and what was added, removed or changed.
    """

    time: int
    commit_lsn: int
    table: str
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """The first changes of tables' shapes, how many there are in all, and when tables were new."""

    first: tuple[SchemaChange, ...]
    count: int
    first_seen: dict[str, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """A message that does not decode, or (``is_odd``) that was decoded and is odd all the same.

    ``ordinal`` is None where only the transaction's end tells of a message long before it.
    """

    ordinal: int | None
    code: str
    text: str
    is_odd: bool


@dataclass(frozen=True, slots=True)
class Problems:
    """The first problems, and how many there are of each code."""

    first: tuple[Problem, ...]
    bad: dict[str, int]
    odd: dict[str, int]


@dataclass(frozen=True, slots=True)
class Findings:
    """What :func:`pgwire_codec.report.gather` found in a log.

    Attributes
    ----------
    name : str
        Of the log, without the place: that may tell of users and passwords.
    statistics : LogStatistics
        What the sidecars say.
    transactions, logical_messages : int
        How many were committed, each counted once; without the snapshot.
    tables : tuple of TableCount
        Their committed changes.
    snapshot : tuple of TableCount
        The rows of the snapshot.
    time_line : TimeLine
        Of the transactions.
    largest : tuple of LargeTransaction
        By bytes, the largest first.
    lags : Lags
    schema : SchemaChanges
    problems : Problems
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
