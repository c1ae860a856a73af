"""Chart of a run: rows of lineitem per second by step, for light and dark pages."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

from benchmarks.results import Run

mpl.use("svg")

from matplotlib.figure import Figure  # once the back end is chosen

# Name, decoder and step of each bar, from the top down.
BARS = [
    ("the limit: skip over the columns", "cython", "limit"),
    ("scan", "cython", "scan"),
    ("tuples", "cython", "tuples"),
    ("typed decode, 2 of 16 columns", "cython", "decode 2 of 16"),
    ("typed decode, 16 columns", "cython", "decode"),
    ("messages to record batches", "cython", "to_arrow"),
    ("decode_message, one by one", "cython", "decode_message"),
    ("adbc, fetching from a server", "adbc", "fetch"),
    ("pypgoutput, no types", "pypgoutput", "decode_message"),
    ("reference, to record batches", "reference", "to_arrow"),
]
FORMS = {"text": "#3b82c4", "binary": "#d08a2c"}  # of medium lightness, for both backgrounds
INK = "#7b7c7d"  # readable on both, if a page declares none
INKS = {"light": "#1f2328", "dark": "#e6edf3"}
BATCH = 10_000


def draw(run: Run, path: Path) -> None:
    """Write the chart as SVG, the same bytes for the same results."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.size": 9,
                "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
                "xtick.color": INK, "ytick.color": INK}  # fmt: skip
    with mpl.rc_context(settings):
        figure = Figure(figsize=(7.6, 5.2), layout="constrained")
        axes = figure.subplots()
        _draw_bars(run, axes)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
    path.write_text(_with_two_inks(path.read_text("utf-8")), "utf-8")


def _draw_bars(run: Run, axes: mpl.axes.Axes) -> None:
    height = 0.38
    for place, (form, color) in enumerate(FORMS.items()):
        for row, (_, who, step) in enumerate(BARS):
            result = run.lineitem(who, step, form, BATCH)
            if result is None:
                continue
            rate = result.rows_per_second / 1e6
            y = row + (place - 0.5) * height
            axes.barh(y, rate, height, color=color, label=form if row == 0 else None)
            axes.text(rate * 1.06, y, f"{rate:.3g}", va="center", fontsize=7.5)
    axes.set_yticks(range(len(BARS)), [name for name, _, _ in BARS])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(
        "million rows a second of one core's time (TPC-H lineitem, 16 columns; logarithmic)"
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="values in", frameon=False, loc="lower right")


def _with_two_inks(svg: str) -> str:
    """Return the SVG with an ink for each colour scheme, and the medium one as a fallback."""
    style = (
        f"<style>:root{{--ink:{INKS['light']}}}"
        f"@media (prefers-color-scheme:dark){{:root{{--ink:{INKS['dark']}}}}}</style>"
    )
    svg = re.sub(rf"(fill|stroke): {INK}", rf"\1: {INK}; \1: var(--ink)", svg)
    return re.sub(r"(<svg[^>]*>)", rf"\1\n {style}", svg, count=1)
