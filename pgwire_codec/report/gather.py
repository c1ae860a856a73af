"""One pass over a log, in bounded memory, for the figures of a report."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec._impl import Decoder, decode_message
from pgwire_codec.changes.changes import Changes
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.codec.tables import tagged
from pgwire_codec.errors import DecodeError
from pgwire_codec.log import Log, Segment
from pgwire_codec.log.message_columns import lsns
from pgwire_codec.log.statistics import statistics_of
from pgwire_codec.protocol.tags import COMMITS
from pgwire_codec.report.counts import (
    COUNTS,
    LagCounts,
    ProblemCounts,
    TableCounts,
    TimeBins,
    count_rows,
)
from pgwire_codec.report.findings import (
    BYTES,
    LAG_SUM,
    LAGS,
    TRANSACTIONS,
    Findings,
    LargeTransaction,
)
from pgwire_codec.report.schema_changes import SchemaTracker
from pgwire_codec.transactions.committed import Transactions

if TYPE_CHECKING:
    from pgwire_codec.report.lake import LakeReader

_LARGEST: Final = 20


def gather(
    log: Log, progress: Callable[[int], None] | None = None, *, lake: str | None = None
) -> Findings:
    """Read all of a log and count the committed changes.

    Memory grows with the log's tables and with the transactions that are streamed or prepared at
    one time, not with the size of the log.

    Parameters
    ----------
    log : Log
        As it was when it was opened or refreshed.
    progress : callable, optional
        Called with the number of messages read since the last call.
    lake : str, optional
        Target of a mirror of the log, whose tables are read, too: ``delta:LOCATION`` or
        ``parquet:LOCATION``.

    Raises
    ------
    OptionError
        When the lake is not such a target.
    TableError
        When the lake has no tables of a mirror.
    LogError
        When the log is damaged. Messages that do not decode are not damage: they are counted in
        :attr:`Findings.problems`, as :func:`pgwire_codec.log.dead_letters` has them.
    """
    tables = None if lake is None else _lake_reader(lake, log)
    gatherer = _Gatherer()
    # A change with a value that its Arrow type cannot represent counts as one, and as an error.
    decoder = log.decoder(atomic=False, on_error="skip", unrepresentable="null")
    strict = log.decoder(atomic=False, on_error="skip")
    for segment, batches in _segments(log):
        starts = segment.session_starts
        for records in batches:
            if _first_ordinal(records) in starts:
                decoder.new_session()
                strict.new_session()
            messages = records.column("data"), lsns(records)
            changes = decoder.decode(*messages)
            gatherer.add(
                records, changes, strict.decode(*messages), is_snapshot=segment.header.snapshot
            )
            if tables is not None:
                tables.add(changes.batches)
            if progress is not None:
                progress(len(records))
    findings = gatherer.findings(log)
    return findings if tables is None else replace(findings, lake=tables.findings())


def name_of(uri: str) -> str:
    """Return a log's name: the last part of its path."""
    path = uri.partition("?")[0] if "://" in uri else uri
    return path.rstrip("/").rpartition("/")[2]


def _lake_reader(target: str, log: Log) -> LakeReader:
    from pgwire_codec.report.lake import LakeReader

    return LakeReader(target, log.end.lsn)


def _segments(log: Log) -> Iterator[tuple[Segment, Iterator[pa.RecordBatch]]]:
    """Yield the segments that have messages, each with its record batches."""
    numbered = groupby(log.messages(), lambda records: log.number_of(_first_ordinal(records)))
    for number, batches in numbered:
        yield log.segment(number), batches


class _Gatherer:
    """Sums over the calls of a decoder."""

    def __init__(self) -> None:
        self._tables = TableCounts()
        self._snapshot = TableCounts()
        # Plain transactions whose Commit has not arrived, by commit LSN: at most one a session.
        self._open: dict[int, TableCounts] = {}
        self._transactions = 0
        self._logical_messages = 0
        self._bins = TimeBins()
        self._largest: list[tuple[int, int, LargeTransaction]] = []  # a heap
        self._lags = LagCounts()
        self._schema = SchemaTracker()
        self._problems = ProblemCounts()

    def add(
        self, records: pa.RecordBatch, changes: Changes, strict: Changes, *, is_snapshot: bool
    ) -> None:
        """Take the next messages of the log, and the changes that decoders returned for them.

        Problems are those of the ``strict`` one.
        """
        self._problems.add(strict, _first_ordinal(records), records.column("data"))
        self._schema.add(changes.batches)
        self._logical_messages += len(changes.logical_messages)
        done = changes.transactions
        found = _Committed(done)
        for batch in changes.batches:
            name = batch.version.qualified_name
            for lsn, rows, sizes in found.add(
                name, batch.op, batch.message_bytes, batch.commit_lsn
            ):
                self._open.setdefault(lsn, TableCounts()).add(name, rows, sizes)
        for place, lsn in enumerate(done.commit_lsn.tolist()) if self._open else ():
            if lsn in self._open:
                found.add_open(place, self._open.pop(lsn))
        if is_snapshot:
            self._snapshot.merge(found.tables)
        else:
            self._tables.merge(found.tables)
            self._add_transactions(records, done, found)

    def _add_transactions(
        self, records: pa.RecordBatch, done: Transactions, found: _Committed
    ) -> None:
        self._transactions += len(done)
        times = done.commit_time.astype(np.int64)
        lags = _lags(records, done)
        values = np.zeros((len(done), LAG_SUM + 1), np.int64)
        values[:, :COUNTS] = found.rows
        values[:, TRANSACTIONS] = 1
        values[:, LAGS] = lags >= 0
        values[:, LAG_SUM] = np.maximum(lags, 0)
        self._bins.add(times, values, lags)
        self._lags.add(lags)
        sizes = found.rows[:, BYTES]
        for place in np.argsort(-sizes, kind="stable")[:_LARGEST].tolist():
            size = int(sizes[place])
            # The first of two that are equally large stays.
            if len(self._largest) == _LARGEST and size <= self._largest[0][0]:
                break
            entry = LargeTransaction(
                xid=int(done.xid[place]),
                commit_lsn=int(done.commit_lsn[place]),
                commit_time=int(times[place]),
                changes=int(done.changes[place]),
                bytes=size,
                tables=found.tables_of(place),
                gid=done.gid[place],
                origin=done.origin[place],
                lag=int(lags[place]) if lags[place] >= 0 else None,
            )
            push = heapq.heappush if len(self._largest) < _LARGEST else heapq.heappushpop
            push(self._largest, (size, -entry.commit_lsn, entry))

    def findings(self, log: Log) -> Findings:
        return Findings(
            name=name_of(log.uri),
            statistics=statistics_of(log),
            transactions=self._transactions,
            logical_messages=self._logical_messages,
            tables=self._tables.counts(),
            snapshot=self._snapshot.counts(),
            time_line=self._bins.time_line(),
            largest=tuple(entry for _, _, entry in sorted(self._largest, reverse=True)),
            lags=self._lags.lags(),
            schema=self._schema.changes(),
            problems=self._problems.problems(),
        )


class _Committed:
    """Changes of the transactions that one call returned as committed.

    Attributes
    ----------
    rows : numpy.ndarray of int64, transactions x 5
        Inserts, updates, deletes, truncates and bytes.
    tables : TableCounts
        The same by table.
    """

    def __init__(self, done: Transactions) -> None:
        self._lsns = done.commit_lsn
        self.rows = np.zeros((len(done), COUNTS), np.int64)
        self.tables = TableCounts()
        self._touched: list[tuple[str, npt.NDArray[np.int64]]] = []

    def add(
        self,
        name: str,
        ops: npt.NDArray[np.uint8],
        sizes: npt.NDArray[np.int64],
        lsn: npt.NDArray[np.uint64],
    ) -> Iterator[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """Take a table's changes; yield, by commit LSN, those whose Commit has not arrived."""
        place = np.searchsorted(self._lsns, lsn)
        committed = place < len(self._lsns)
        committed[committed] = self._lsns[place[committed]] == lsn[committed]
        if not committed.all():
            for each in np.unique(lsn[~committed]).tolist():
                rows = lsn == each
                yield each, ops[rows], sizes[rows]
            ops, sizes, place = ops[committed], sizes[committed], place[committed]
        if len(ops):
            self.tables.add(name, ops, sizes)
            self.rows += count_rows(ops, sizes, place, len(self.rows))
            self._touched.append((name, place))

    def add_open(self, place: int, counts: TableCounts) -> None:
        """Take the counts of a transaction from before this call."""
        self.tables.merge(counts)
        self.rows[place] += counts.sum()
        self._touched += [(name, np.array([place])) for name in counts.names]

    def tables_of(self, place: int) -> tuple[str, ...]:
        """Return the tables that a transaction changed."""
        return tuple(sorted({name for name, places in self._touched if (places == place).any()}))


def _lags(records: pa.RecordBatch, done: Transactions) -> npt.NDArray[np.int64]:
    """Return the time from each commit until the server sent it, in microseconds; -1: unknown.

    Both are by the server's clock, unless the transaction came from another server.
    """
    (messages,) = to_message_arrays(records.column("data"), Decoder.codec)
    filled = np.flatnonzero(np.diff(messages.offsets))
    commits = filled[tagged(messages.data[messages.offsets[filled]], COMMITS)]
    if len(commits) > len(done):
        commits = _delivered(messages, commits, done)
    column = records.column("time")
    known = column.is_valid().to_numpy(zero_copy_only=False)[commits]
    known &= np.array([origin is None for origin in done.origin], np.bool_)
    sent = column.cast(pa.int64()).fill_null(0).to_numpy()[commits]
    return np.where(known, np.maximum(sent - done.commit_time.astype(np.int64), -1), -1)


def _delivered(
    messages: Messages, commits: npt.NDArray[np.int64], done: Transactions
) -> npt.NDArray[np.int64]:
    """Return the commits of the transactions, without repeated and malformed ones."""
    expected = done.commit_lsn.tolist()
    found: list[int] = []
    for index in commits.tolist():
        if len(found) == len(expected):
            break
        try:
            message: Any = decode_message(messages[index])
        except DecodeError:  # counted among the problems
            continue
        if message.commit_lsn == expected[len(found)]:
            found.append(index)
    return np.array(found, np.int64)


def _first_ordinal(records: pa.RecordBatch) -> int:
    ordinal: int = records.column("ordinal")[0].as_py()
    return ordinal
