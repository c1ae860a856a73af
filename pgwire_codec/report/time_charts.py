"""Charts with time from left to right: transactions, changes, bytes and lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.format import (
    format_count,
    format_duration,
    format_number,
    format_size,
    format_timestamp,
)
from pgwire_codec.report.charts import Chart, Series, Window, bar_chart, linear, logarithmic
from pgwire_codec.report.findings import (
    BYTES,
    DELETES,
    INSERTS,
    LAG_SUM,
    LAGS,
    TRANSACTIONS,
    TRUNCATES,
    UPDATES,
    Findings,
)

#: The operations: column of the sums, class that colours it, name.
OPERATIONS: Final = (
    (INSERTS, "insert", "inserts"),
    (UPDATES, "update", "updates"),
    (DELETES, "delete", "deletes"),
    (TRUNCATES, "truncate", "truncates"),
)
_MIN_BINS: Final = 24  # fewer would make very wide bars
_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
#: Lags that an axis can show; each is about ten times the one before.
_LAG_MARKS: Final = (
    *(1, 10, 100, 1_000, 10_000, 100_000, _SECOND, 10 * _SECOND, 60 * _SECOND, 600 * _SECOND),
    *(_HOUR, 6 * _HOUR, *(24 * _HOUR * 10**power for power in range(7))),
)


@dataclass(frozen=True, slots=True)
class TimeCharts:
    """Charts of one time range; ``lag`` is None if no lag is known."""

    window: Window
    transactions: Chart
    changes: Chart
    bytes: Chart
    lag: Chart | None


def time_charts(findings: Findings) -> TimeCharts | None:
    """Draw the charts; None for a log without transactions."""
    if not len(findings.time_line):
        return None
    window, sums, worst = _padded(findings)
    lag = _lag_chart(findings, window, sums, worst) if findings.lags.known else None
    return TimeCharts(window, *_sum_charts(findings, window, sums), lag)


def _sum_charts(
    findings: Findings, window: Window, sums: npt.NDArray[np.int64]
) -> tuple[Chart, Chart, Chart]:
    """Draw transactions, changes and bytes."""
    transactions, sizes = sums[:, TRANSACTIONS], sums[:, BYTES]
    titles = [
        f"{format_timestamp(start, 'ms')}\n"
        f"{format_count(row[TRANSACTIONS], 'transaction')}, {format_size(row[BYTES])}\n"
        f"{_operations(row)}"
        for start, row in zip(window.starts, sums.tolist(), strict=True)
    ]
    most, width = int(transactions.max()), format_duration(findings.time_line.width)
    return (
        bar_chart(
            [Series("plain", transactions.tolist())],
            linear(float(most), _format_mark),
            titles,
            f"Transactions over time: {format_number(findings.transactions)} in all, "
            f"at most {format_number(most)} in {width}",
        ),
        bar_chart(
            [Series(kind, sums[:, column].tolist()) for column, kind, _ in OPERATIONS],
            linear(float(sums[:, : TRUNCATES + 1].sum(axis=1).max()), _format_mark),
            titles,
            f"Changes over time: {_operations(sums.sum(axis=0).tolist())}",
        ),
        bar_chart(
            [Series("plain", sizes.tolist())],
            linear(float(sizes.max()), lambda value: format_size(value).replace(".0 ", " ")),
            titles,
            f"Bytes of changes over time: {format_size(float(sizes.sum()))} in all",
        ),
    )


def _lag_chart(
    findings: Findings,
    window: Window,
    sums: npt.NDArray[np.int64],
    worst: npt.NDArray[np.int64],
) -> Chart:
    """Draw the longest lag of each bin, and the mean in front of it."""
    known = sums[:, LAGS] > 0
    mean = np.where(known, sums[:, LAG_SUM] / np.maximum(sums[:, LAGS], 1), 0)
    columns = (window.starts, known.tolist(), worst.tolist(), mean.tolist())
    titles = [
        f"{format_timestamp(start, 'ms')}\n"
        + (
            f"longest {format_duration(longest)}, mean {format_duration(middle)}"
            if is_known
            else "none known"
        )
        for start, is_known, longest, middle in zip(*columns, strict=True)
    ]
    longest = findings.lags.worst or 0
    return bar_chart(
        [Series("worst", worst.tolist()), Series("mean", mean.tolist())],
        logarithmic(_LAG_MARKS, float(mean[known].min()) / 2, float(longest), format_duration),
        titles,
        f"Lag over time: at most {format_duration(longest)}",
        stacked=False,
    )


def _padded(findings: Findings) -> tuple[Window, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return window, sums and longest lags, with empty bins around a short time line."""
    line = findings.time_line
    missing = max(_MIN_BINS - len(line), 0)
    before, after = missing // 2, missing - missing // 2
    start, stop = line.start - before * line.width, line.stop + after * line.width
    sums = np.pad(line.sums, ((before, after), (0, 0)))
    worst = np.pad(line.worst_lag, (before, after), constant_values=-1)
    return Window(start, stop, len(sums)), sums, worst


def _operations(sums: Sequence[int]) -> str:
    return ", ".join(f"{format_number(sums[column])} {name}" for column, _, name in OPERATIONS)


def _format_mark(value: float) -> str:
    if value != int(value):
        return ""  # changes are whole numbers
    if value >= 999_950:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1000:g} k" if value >= 10_000 else f"{value:,g}"
