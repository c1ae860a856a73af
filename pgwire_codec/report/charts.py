"""Bars over time and bars in tables, as SVG with the width of the page.

Text beside a drawing is HTML, made by the template, so that it keeps its size.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from markupsafe import Markup

from pgwire_codec.format import format_timestamp

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_STEPS: Final = (
    *(n * _SECOND // 1000 for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(n * 3600 * _SECOND for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 182, 364)),
    *(364 * _DAY * n * 10**power for power in range(6) for n in (2, 5, 10)),
)
_MAX_TICKS: Final = 8
_MAX_HEIGHTS: Final = 5
_TOPS: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_MARGIN: Final = 5  # percent of the width: the text of a tick nearer to an end would be cut

_SVG: Final = Markup(
    '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}"{}>{}</svg>'
)
_LINE: Final = Markup('<line x1="0" x2="{}" y1="{y}" y2="{y}" class="grid"/>')
_RECT: Final = Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"/>')
_HOVER: Final = Markup(
    '<rect x="{}" y="0" width="1" height="100" class="hover"><title>{}</title></rect>'
)


@dataclass(frozen=True, slots=True)
class Window:
    """Time range that charts have in common, in microseconds, and its number of bins."""

    start: int
    stop: int
    bins: int

    @property
    def starts(self) -> range:
        """Start of each bin."""
        return range(self.start, self.stop, (self.stop - self.start) // self.bins)

    def place(self, time: int) -> float:
        """Return the position of a time in percent of the width; a time outside is at an end."""
        return min(max(self._place(time), 0.0), 100.0)

    def ticks(self) -> Iterator[Tick]:
        """Yield round times with their positions."""
        span = self.stop - self.start
        step = next((each for each in _STEPS if span / each <= _MAX_TICKS), span)
        unit: Literal["m", "s", "ms"]
        unit = "ms" if step < _SECOND else "s" if step < 60 * _SECOND else "m"
        is_long = span > _DAY
        for time in range(-(-self.start // step) * step, self.stop, step):
            at = self._place(time)
            if _MARGIN <= at <= 100 - _MARGIN:
                date, _, clock = format_timestamp(time, unit).rpartition(" ")
                short = f"{date[-5:]} {clock}" if is_long else clock
                yield Tick(_round(at), date if step >= _DAY else short, is_long)

    def _place(self, time: int) -> float:
        return 100 * (time - self.start) / (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Tick:
    """Text below a chart, ``at`` percent of its width; ``is_long`` if it has a date."""

    at: str
    text: str
    is_long: bool


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of one kind, one for each bin; ``kind`` is the class that colours them."""

    kind: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Scale:
    """Height of a value in percent, and the marks of the axis (height, text), bottom up."""

    height: Callable[[float], float]
    marks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, and the marks of its axis: height in percent, and text."""

    drawing: Markup
    marks: Sequence[tuple[str, str]]


def linear(largest: float, format_value: Callable[[float], str]) -> Scale:
    """Return a scale from 0 to a round number that is not less than the largest."""
    power = 10.0 ** math.floor(math.log10(largest)) if largest > 0 else 1.0
    top = next(step * power for step in _TOPS if step * power >= largest)
    marks = [(100 * part, format_value(part * top)) for part in (0, 0.5, 1)]
    return Scale(lambda value: 100 * value / top, marks)


def logarithmic(
    marks: Sequence[int], smallest: float, largest: float, format_value: Callable[[float], str]
) -> Scale:
    """Return a logarithmic scale between two marks; a value below the first has height 0.

    ``marks`` are ascending values that the axis can show, from 1 on.
    """
    first = max(bisect_right(marks, smallest) - 1, 0)
    last = min(max(bisect_left(marks, largest), first + 1), len(marks) - 1)
    low, high = math.log10(marks[first]), math.log10(marks[last])

    def height(value: float) -> float:
        return max(0.0, 100 * (math.log10(max(value, 1)) - low) / (high - low))

    shown = marks[first : last + 1 : math.ceil((last - first) / _MAX_HEIGHTS)]
    return Scale(height, [(height(mark), format_value(mark)) for mark in shown])


def bar_chart(
    series: Sequence[Series],
    scale: Scale,
    titles: Sequence[str],
    label: str,
    *,
    stacked: bool = True,
) -> Chart:
    """Draw bars, one for each bin, of one or more series.

    Parameters
    ----------
    series : sequence of Series
        Stacked from the bottom up, or (not ``stacked``) each in front of the one before.
    scale : Scale
    titles : sequence of str
        Tooltip of each bin.
    label : str
        Description of the drawing for screen readers.
    stacked : bool
    """
    lines = [_LINE.format(len(titles), y=_round(100 - at)) for at, _ in scale.marks]
    rects, hovers = [], []
    for index, title in enumerate(titles):
        bottom = 0.0
        for each in series:
            height = scale.height(each.values[index])
            if height > 0:
                rects.append(_bar(index, bottom, height, each.kind))
            if stacked:
                bottom += height
        hovers.append(_HOVER.format(index, title))
    drawing = _SVG.format(len(titles), 100, label, "", Markup().join([*lines, *rects, *hovers]))
    return Chart(drawing, [(_round(at), text) for at, text in scale.marks])


def table_bar(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Draw a bar of parts (kind, percent of the width) for a table's cell."""
    drawn, left = [Markup("<title>{}</title>").format(label)], 0.0
    for kind, width in parts:
        if width > 0:
            drawn.append(_RECT.format(_round(left), 0, _round(max(width, 0.4)), 10, kind))
            left += width
    return _SVG.format(100, 10, label, Markup(' class="bar"'), Markup().join(drawn))


def _bar(index: int, bottom: float, height: float, kind: str) -> Markup:
    height = max(height, 0.8)  # a bar that is not empty is visible
    y = _round(100 - bottom - height)
    return _RECT.format(_round(index + 0.08), y, 0.84, _round(height), kind)


def _round(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
