"""Sums over bins of time, which widen so that their number stays bounded."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.report.findings import LAG_SUM, TimeLine

_MAX_BINS: Final = 200
_COLUMNS: Final = LAG_SUM + 1
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


class TimeBins:
    """Sums by bins of time."""

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
        sums = np.zeros((len(numbers), _COLUMNS), np.int64)
        np.add.at(sums, place, values)
        worst = np.full(len(numbers), -1, np.int64)
        np.maximum.at(worst, place, lags)
        for number, row, lag in zip(numbers.tolist(), sums, worst.tolist(), strict=True):
            self._add(number, row, lag)

    def time_line(self) -> TimeLine:
        """Return the bins from the first to the last, including empty ones."""
        first, last = min(self._sums, default=0), max(self._sums, default=-1)
        sums = np.zeros((last - first + 1, _COLUMNS), np.int64)
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
