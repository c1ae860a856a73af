"""Sections with time from left to right: transactions, and their lag."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.report.charts import (
    Scale,
    Series,
    Window,
    bars,
    linear,
    logarithmic,
    table_bar,
)
from pgwire_codec.report.findings import (
    BYTES,
    LAG_BOUNDS,
    LAG_SUM,
    LAGS,
    TRANSACTIONS,
    TRUNCATES,
    Findings,
)
from pgwire_codec.report.markup import Markup, element
from pgwire_codec.report.parts import OPERATIONS, legend, table
from pgwire_codec.report.words import duration, many, moment, number, share, size

_FEWEST_BINS: Final = 24  # fewer would make bars that are walls
_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
#: Lags that an axis can name; each is some ten times the one before.
_LAG_MARKS: Final = (
    *(1, 10, 100, 1_000, 10_000, 100_000, _SECOND, 10 * _SECOND, 60 * _SECOND, 600 * _SECOND),
    *(_HOUR, 6 * _HOUR, *(24 * _HOUR * 10**power for power in range(7))),
)


def time_section(findings: Findings) -> Markup:
    """Show transactions, changes and bytes over time."""
    line = findings.time_line
    if not len(line):
        return element(
            "section",
            element("h2", "Over time"),
            element("p", "No transactions to show.", class_="note"),
        )
    window, sums, _ = padded(findings)
    titles = [
        f"{moment(start, 'ms')}\n{many(row[TRANSACTIONS], 'transaction')}, {size(row[BYTES])}\n"
        + ", ".join(f"{number(row[column])} {word}" for column, _, word in OPERATIONS)
        for start, row in zip(_starts(window, line.width), sums.tolist(), strict=True)
    ]
    changes = sums[:, : TRUNCATES + 1].sum(axis=1)
    return element(
        "section",
        element("h2", "Over time"),
        element(
            "p",
            f"By commit time, UTC; a bar is {duration(line.width)}. "
            f"From {moment(line.first)} to {moment(line.last)}.",
            class_="note",
        ),
        _figure(
            "Transactions",
            bars(
                window,
                [Series("plain", sums[:, TRANSACTIONS].tolist())],
                linear(float(sums[:, TRANSACTIONS].max()), _count),
                titles,
                label=f"Transactions over time: {number(findings.transactions)} in all, "
                f"at most {number(int(sums[:, TRANSACTIONS].max()))} in {duration(line.width)}",
                ticks=False,
            ),
        ),
        _figure(
            "Changes",
            bars(
                window,
                [Series(kind, sums[:, column].tolist()) for column, kind, _ in OPERATIONS],
                linear(float(changes.max()), _count),
                titles,
                label="Changes over time: "
                + ", ".join(
                    f"{number(int(sums[:, column].sum()))} {word}" for column, _, word in OPERATIONS
                ),
                ticks=False,
            ),
            legend(),
        ),
        _figure(
            "Bytes",
            bars(
                window,
                [Series("plain", sums[:, BYTES].tolist())],
                linear(float(sums[:, BYTES].max()), lambda value: size(value).replace(".0 ", " ")),
                titles,
                label=f"Bytes of changes over time: {size(float(sums[:, BYTES].sum()))} in all",
            ),
        ),
    )


def lag_section(findings: Findings) -> Markup:
    """Show how late transactions were sent."""
    lags = findings.lags
    title = element("h2", "Lag")
    if not lags.known:
        words = "The log does not tell it: no commit came with the server's time."
        return element("section", title, element("p", words, class_="note"))
    window, sums, worst = padded(findings)
    mean = sums[:, LAG_SUM] / np.maximum(sums[:, LAGS], 1)
    known = sums[:, LAGS] > 0
    titles = [
        f"{moment(start, 'ms')}\n"
        + (f"longest {duration(most)}, mean {duration(middle)}" if is_known else "none known")
        for start, is_known, most, middle in zip(
            _starts(window, findings.time_line.width),
            known.tolist(),
            worst.tolist(),
            mean.tolist(),
            strict=True,
        )
    ]
    unknown = (
        f" {many(lags.unknown, 'transaction has', 'transactions have')} none: no time, or another "
        "server's clock."
        if lags.unknown
        else ""
    )
    return element(
        "section",
        title,
        element(
            "p",
            "From a transaction's commit to when the server sent its last message, both by the "
            "server's clock; waiting for a capture that was not connected counts. By commit time, "
            f"on a logarithmic scale.{unknown}",
            class_="note",
        ),
        _figure(
            "Longest and mean",
            bars(
                window,
                [
                    Series("worst", worst.tolist()),
                    Series("mean", np.where(known, mean, 0).tolist()),
                ],
                _lag_scale(mean[known], lags.worst or 0),
                titles,
                label=f"Lag over time: at most {duration(lags.worst or 0)}",
                stacked=False,
            ),
            element(
                "ul",
                element("li", element("span", class_="worst"), "longest"),
                element("li", element("span", class_="mean"), "mean"),
                class_="legend",
            ),
        ),
        _lag_table(findings),
    )


def _figure(title: str, drawing: Markup, below: Markup | None = None) -> Markup:
    return element("figure", element("figcaption", element("h3", title), below), drawing)


def padded(
    findings: Findings,
) -> tuple[Window, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give the window of the charts, sums and longest lags, with some empty bins where few are."""
    line = findings.time_line
    missing = max(_FEWEST_BINS - len(line), 0)
    before, behind = missing // 2, missing - missing // 2
    start, stop = line.start - before * line.width, line.stop + behind * line.width
    sums = np.pad(line.sums, ((before, behind), (0, 0)))
    worst = np.pad(line.worst_lag, (before, behind), constant_values=-1)
    return Window(start, stop, len(sums)), sums, worst


def _starts(window: Window, width: int) -> range:
    return range(window.start, window.stop, width)


def _count(value: float) -> str:
    if value != int(value):
        return ""  # there is no half a change
    if value >= 999_950:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1000:g} k" if value >= 10_000 else f"{value:,g}"


def _lag_scale(means: npt.NDArray[np.float64], worst: int) -> Scale:
    return logarithmic(_LAG_MARKS, float(means.min()) / 2, float(worst), duration)


def _lag_table(findings: Findings) -> Markup:
    lags = findings.lags
    names = [f"up to {duration(bound)}" for bound in LAG_BOUNDS]
    rows, sum_ = [], 0
    for name, count in zip([*names, "longer"], lags.counts, strict=True):
        sum_ += count
        if count:
            bar = table_bar([("mean", 100 * count / max(lags.counts))], number(count))
            rows.append(
                element(
                    "tr",
                    element("th", name, scope="row"),
                    element("td", bar, class_="wide"),
                    element("td", number(count), class_="number"),
                    element("td", share(sum_, lags.known), class_="number"),
                )
            )
    return table(
        f"Transactions by lag; the longest took {duration(lags.worst or 0)}",
        ["Lag", "", "Transactions", "So far"],
        rows,
        numbers=(2, 3),
    )
