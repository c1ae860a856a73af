"""Bars over time and bars in tables: SVG that stretches, with its words in HTML beside it.

The drawing is as wide as the page has room for; words keep their size.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pgwire_codec.report.markup import Markup, element, join
from pgwire_codec.report.words import moment

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_STEPS: Final = (
    *(n * _SECOND // 1000 for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(n * 3600 * _SECOND for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 182, 364)),
    *(364 * _DAY * n * 10**power for power in range(6) for n in (2, 5, 10)),
)
_MOST_TICKS: Final = 8
_MOST_HEIGHTS: Final = 5
_TOPS: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_MARGIN: Final = 5  # percent of the width: a tick nearer to an end has no room for its words


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of time that charts have in common, in microseconds, and their number of bins."""

    start: int
    stop: int
    bins: int

    def place(self, time: int) -> float:
        """Give where a time is, in percent of the width."""
        return 100 * (time - self.start) / (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of one kind, one a bin; ``kind`` names the colour."""

    kind: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Scale:
    """What heights mean: the words at heights, in percent, from the bottom up."""

    height: Callable[[float], float]
    words: Sequence[tuple[float, str]]


def linear(largest: float, words: Callable[[float], str]) -> Scale:
    """Give a scale from 0 to a round number that is not less than the largest."""
    power = 10.0 ** math.floor(math.log10(largest)) if largest > 0 else 1.0
    top = next(step * power for step in _TOPS if step * power >= largest)
    return Scale(
        lambda value: 100 * value / top, [(0, words(0)), (50, words(top / 2)), (100, words(top))]
    )


def logarithmic(
    marks: Sequence[int], smallest: float, largest: float, words: Callable[[float], str]
) -> Scale:
    """Give a logarithmic scale between two marks; what is less than the first has no height.

    ``marks`` are ascending values that the axis can name, from 1 on.
    """
    first = max(bisect_right(marks, smallest) - 1, 0)
    last = min(max(bisect_left(marks, largest), first + 1), len(marks) - 1)
    low, high = math.log10(marks[first]), math.log10(marks[last])

    def height(value: float) -> float:
        return max(0.0, 100 * (math.log10(max(value, 1)) - low) / (high - low))

    shown = marks[first : last + 1 : math.ceil((last - first) / _MOST_HEIGHTS)]
    return Scale(height, [(height(mark), words(mark)) for mark in shown])


def bars(
    window: Window,
    series: Sequence[Series],
    scale: Scale,
    titles: Sequence[str],
    *,
    label: str,
    stacked: bool = True,
    ticks: bool = True,
) -> Markup:
    """Draw bars, one a bin, of one or more series.

    Parameters
    ----------
    window : Window
    series : sequence of Series
        Stacked from the bottom up, or (not ``stacked``) one before the other.
    scale : Scale
    titles : sequence of str
        What is said of each bin under the pointer.
    label : str
        What the drawing shows, for those who do not see it.
    ticks : bool
        Whether times are written below.
    """
    grid = [
        element(
            "line", x1=0, x2=window.bins, y1=_round(100 - at), y2=_round(100 - at), class_="grid"
        )
        for at, _ in scale.words
    ]
    rects, hovers = [], []
    for index in range(window.bins):
        bottom = 0.0
        for each in series:
            height = scale.height(each.values[index])
            if height > 0:
                rects.append(_bar(index, bottom, height, each.kind))
            if stacked:
                bottom += height
        hovers.append(
            element(
                "rect",
                element("title", titles[index]),
                x=index,
                y=0,
                width=1,
                height=100,
                class_="hover",
            )
        )
    drawing = element(
        "svg",
        *grid,
        *rects,
        *hovers,
        viewBox=f"0 0 {window.bins} 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    heights = [
        element("span", text, style=f"bottom:{_round(at)}%", class_="y") for at, text in scale.words
    ]
    return element(
        "div",
        element("div", *heights, class_="heights", aria_hidden="true"),
        element("div", drawing, class_="drawing"),
        element("div", time_ticks(window), class_="times") if ticks else None,
        class_="plot",
    )


def time_ticks(window: Window) -> Markup:
    """Write round times where they are in a window."""
    span = window.stop - window.start
    step = next((each for each in _STEPS if span / each <= _MOST_TICKS), span)
    unit: Literal["m", "s", "ms"]
    unit = "ms" if step < _SECOND else "s" if step < 60 * _SECOND else "m"
    is_long = span > _DAY
    first = -(-window.start // step) * step
    found = []
    for time in range(first, window.stop, step):
        if _MARGIN <= window.place(time) <= 100 - _MARGIN:
            date, _, clock = moment(time, unit).rpartition(" ")
            if step >= _DAY:
                words = date
            else:
                words = f"{date[-5:]} {clock}" if is_long else clock
            at = f"left:{_round(window.place(time))}%"
            kind = "x long" if is_long else "x"
            found.append(element("span", words, style=at, class_=kind))
    return join(*found)


def table_bar(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Draw a bar of parts (kind, percent of the width) for a table's cell."""
    rects, left = [], 0.0
    for kind, width in parts:
        if width > 0:
            rects.append(
                element(
                    "rect",
                    x=_round(left),
                    y=0,
                    width=_round(max(width, 0.4)),
                    height=10,
                    class_=kind,
                )
            )
            left += width
    return element(
        "svg",
        element("title", label),
        *rects,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="bar",
    )


def _bar(index: int, bottom: float, height: float, kind: str) -> Markup:
    # A bar that is not empty can be seen.
    height = max(height, 0.8)
    return element(
        "rect",
        x=_round(index + 0.08),
        y=_round(100 - bottom - height),
        width=0.84,
        height=_round(height),
        class_=kind,
    )


def _round(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
