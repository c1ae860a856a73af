"""Sums of a report: changes by table, lags, problems, and bins of time, whose number is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.changes.changes import Changes
from pgwire_codec.errors import DecodeError, with_hint
from pgwire_codec.log import TableCount
from pgwire_codec.report.findings import (
    BYTES,
    LAG_BOUNDS,
    LAG_SUM,
    Lags,
    Problem,
    Problems,
    TimeLine,
)

#: Number of figures of a table: inserts, updates, deletes, truncates, bytes.
COUNTS: Final = BYTES + 1
_COLUMN: Final = np.zeros(256, np.int64)
_COLUMN[np.frombuffer(b"IUDT", np.uint8)] = range(BYTES)
_MAX_KEPT: Final = 50

_MAX_BINS: Final = 200
_SUMS: Final = LAG_SUM + 1  # of a bin
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

#: Usual widths in microseconds; each is a multiple of the one before.
_WIDTHS: Final[tuple[int, ...]] = (
    *(1_000, 2_000, 10_000, 20_000, 100_000, 200_000),
    *(_SECOND, 2 * _SECOND, 10 * _SECOND, 30 * _SECOND),
    *(_MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY),
    *(364 * _DAY * 10**power for power in range(1, 5)),
)


def count_rows(
    ops: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
    length: int,
) -> npt.NDArray[np.int64]:
    """Count changes by place (0 to ``length - 1``) and operation, and sum their bytes.

    The bytes of truncates do not count, because one message can name many tables.
    """
    rows = np.zeros((length, COUNTS), np.int64)
    cells = np.bincount(place * BYTES + _COLUMN[ops], minlength=length * BYTES)
    rows[:, :BYTES] = cells.reshape(length, BYTES)
    is_row = ops != ord("T")
    np.add.at(rows[:, BYTES], place[is_row], sizes[is_row])
    return rows


class TableCounts:
    """Number of changes by table and operation, and their bytes."""

    def __init__(self) -> None:
        self._rows: dict[str, npt.NDArray[np.int64]] = {}

    @property
    def names(self) -> Iterator[str]:
        """Names of the tables."""
        return iter(self._rows)

    def add(self, name: str, ops: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> None:
        """Count changes of a table."""
        self._of(name)[:] += count_rows(ops, sizes, np.zeros(len(ops), np.int64), 1)[0]

    def merge(self, other: TableCounts) -> None:
        """Add the counts of another."""
        for name, row in other._rows.items():
            self._of(name)[:] += row

    def sum(self) -> npt.NDArray[np.int64]:
        """Add up the tables."""
        total: npt.NDArray[np.int64] = sum(self._rows.values(), np.zeros(COUNTS, np.int64))
        return total

    def counts(self) -> tuple[TableCount, ...]:
        """Return the counts by name."""
        return tuple(TableCount(name, *self._rows[name].tolist()) for name in sorted(self._rows))

    def _of(self, name: str) -> npt.NDArray[np.int64]:
        return self._rows.setdefault(name, np.zeros(COUNTS, np.int64))


class LagCounts:
    """Number of transactions by lag."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(LAG_BOUNDS) + 1, np.int64)
        self._worst = -1
        self._unknown = 0

    def add(self, lags: npt.NDArray[np.int64]) -> None:
        """Count lags, in microseconds; -1 is unknown."""
        known = lags[lags >= 0]
        self._unknown += len(lags) - len(known)
        bounds = np.searchsorted(np.array(LAG_BOUNDS), known)
        self._counts += np.bincount(bounds, minlength=len(self._counts))
        self._worst = max(self._worst, int(known.max(initial=-1)))

    def lags(self) -> Lags:
        """Return the counts."""
        worst = None if self._worst < 0 else self._worst
        return Lags(tuple(self._counts.tolist()), worst, self._unknown)


class ProblemCounts:
    """Rejected messages and warnings, by code."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self._errors: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()

    def add(self, changes: Changes, first_ordinal: int, data: pa.Array) -> None:
        """Count those of one call; ``first_ordinal`` is that of its first message."""
        for each in changes.rejected:
            self._errors[each.error.code] += 1
            if len(self._first) < _MAX_KEPT:
                # A streamed change is decoded with its commit, which can come in a later call.
                # The index then counts from the start of that earlier call.
                index = each.message_index
                is_here = index < len(data) and data[index].as_py() == each.data
                ordinal = first_ordinal + index if is_here else None
                self._keep(ordinal, each.error, is_warning=False)
        for warning in changes.warnings:
            self._warnings[warning.code] += 1
            if len(self._first) < _MAX_KEPT:
                ordinal = first_ordinal + (warning.message_index or 0)
                self._keep(ordinal, warning, is_warning=True)

    def problems(self) -> Problems:
        """Return the counts."""
        return Problems(tuple(self._first), dict(self._errors), dict(self._warnings))

    def _keep(self, ordinal: int | None, error: DecodeError, *, is_warning: bool) -> None:
        where = f" ({error.context})" if error.context else ""
        text = with_hint(f"byte {error.offset}{where}: {error.expected}", error.hint)
        self._first.append(Problem(ordinal, error.code, text, is_warning))


class TimeBins:
    """Sums by bins of time, which widen so that their number stays bounded."""

    def __init__(self) -> None:
        self._step = 0
        self._sums: dict[int, npt.NDArray[np.int64]] = {}  # by number of the bin
        self._worst: dict[int, int] = {}
        self._first = self._last = 0

    @property
    def width(self) -> int:
        """Width of a bin in microseconds."""
        return _WIDTHS[self._step]

    def add(
        self,
        times: npt.NDArray[np.int64],
        values: npt.NDArray[np.int64],
        lags: npt.NDArray[np.int64],
    ) -> None:
        """Add ``values`` (a row for each time) to the bins of ``times``; a lag of -1 is unknown."""
        if not len(times):
            return
        first, last = int(times.min()), int(times.max())
        self._first = min(first, self._first) if self._sums else first
        self._last = max(last, self._last) if self._sums else last
        self._widen()
        numbers, place = np.unique(times // self.width, return_inverse=True)
        sums = np.zeros((len(numbers), _SUMS), np.int64)
        np.add.at(sums, place, values)
        worst = np.full(len(numbers), -1, np.int64)
        np.maximum.at(worst, place, lags)
        for number, row, lag in zip(numbers.tolist(), sums, worst.tolist(), strict=True):
            self._add(number, row, lag)

    def time_line(self) -> TimeLine:
        """Return the bins from the first to the last, including empty ones."""
        first, last = min(self._sums, default=0), max(self._sums, default=-1)
        sums = np.zeros((last - first + 1, _SUMS), np.int64)
        worst = np.full(len(sums), -1, np.int64)
        for number, row in self._sums.items():
            sums[number - first] = row
            worst[number - first] = self._worst[number]
        return TimeLine(first * self.width, self.width, self._first, self._last, sums, worst)

    def _widen(self) -> None:
        """Widen the bins until there are few enough."""
        step = next(
            step
            for step in range(self._step, len(_WIDTHS))
            if self._last // _WIDTHS[step] - self._first // _WIDTHS[step] < _MAX_BINS
        )
        factor = _WIDTHS[step] // self.width
        if factor > 1:
            narrow, worst = self._sums, self._worst
            self._step, self._sums, self._worst = step, {}, {}
            for number, row in narrow.items():
                self._add(number // factor, row, worst[number])

    def _add(self, number: int, row: npt.NDArray[np.int64], lag: int) -> None:
        if number in self._sums:
            self._sums[number] += row
            self._worst[number] = max(self._worst[number], lag)
        else:
            self._sums[number] = row.copy()
            self._worst[number] = lag
