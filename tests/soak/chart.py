"""Charts of a soak's samples and faults over time, as one SVG file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

from pgwire_codec.report.charts import linear
from tests.soak.recorder import Sample

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 960, 150, 80, 30, 60
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.t{font-weight:bold}.g{stroke:#ddd}"
    ".f{stroke:#bbb;stroke-dasharray:2 3}polyline{fill:none;stroke-width:1.3}"
)


def draw(path: Path, samples: Sequence[Sample], faults: Sequence[tuple[float, str]]) -> None:
    """Draw memory and descriptors of each process; a dashed line is a fault."""
    processes = sorted({each.process for each in samples})
    last = max((each.seconds for each in samples), default=1.0)
    drawn: list[str] = []
    top = _TOP
    charts: tuple[tuple[str, Callable[[Sample], float], Callable[[float], str]], ...] = (
        ("resident memory (MiB)", lambda each: each.rss / (1 << 20), lambda value: f"{value:g}"),
        ("file descriptors", lambda each: each.descriptors, lambda value: f"{value:g}"),
    )
    for title, measure, format_value in charts:
        for number, process in enumerate(processes):
            of_process = [each for each in samples if each.process == process]
            points = [(each.seconds, each.pid, measure(each)) for each in of_process]
            lines = _chart(f"{process}: {title}", points, faults, last, top, format_value)
            drawn += (line.replace("COLOUR", _COLOURS[number % len(_COLOURS)]) for line in lines)
            top += _HEIGHT + _GAP
    size = f'width="{_LEFT + _WIDTH + 20}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>'
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    path.write_text("\n".join([head, background, *drawn, "</svg>\n"]))


def _chart(
    title: str,
    points: Sequence[tuple[float, int, float]],
    faults: Sequence[tuple[float, str]],
    last: float,
    top: int,
    format_value: Callable[[float], str],
) -> Iterator[str]:
    scale = linear(max(value for _, _, value in points), format_value)

    def across(seconds: float) -> str:
        return f"{_LEFT + _WIDTH * seconds / last:.1f}"

    def down(value: float) -> str:
        return f"{top + _HEIGHT * (1 - scale.height(value) / 100):.1f}"

    yield f'<text class="t" x="{_LEFT}" y="{top - 8}">{escape(title)}</text>'
    for height, text in scale.marks:
        y = top + _HEIGHT * (1 - height / 100)
        yield f'<line class="g" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{text}</text>'
    step = next((each for each in (10, 60, 300, 600, 3600) if last / each <= 12), 6 * 3600)
    for mark in range(0, int(last) + 1, step):
        label = f"{mark} s" if step < 60 else f"{mark // 60} min"
        yield f'<text x="{across(mark)}" y="{top + _HEIGHT + 16}">{label}</text>'
    for seconds, kind in faults:
        x = across(seconds)
        line = f'<line class="f" x1="{x}" x2="{x}" y1="{top}" y2="{top + _HEIGHT}">'
        yield f"{line}<title>{escape(kind)}</title></line>"
    for pid in dict.fromkeys(pid for _, pid, _ in points):
        places = " ".join(
            f"{across(seconds)},{down(value)}" for seconds, each, value in points if each == pid
        )
        yield f'<polyline stroke="COLOUR" points="{places}"/>'
