"""One page for several machines, with their figures and a chart of the speed-up over the reference.

Called as ``python -m benchmarks.machines_page FOLDER NAME=RESULTS.json…``.
"""

from __future__ import annotations

import html
import sys
from pathlib import Path

import matplotlib as mpl

from benchmarks.results import Run
from benchmarks.results_page import STEPS, speed, targets

mpl.use("svg")

from matplotlib.figure import Figure  # once the back end is chosen

SHOWN = ("scan", "tuples", "decode", "to_arrow", "decode_message")

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>pgwire_codec: benchmarks</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; }}
pre {{ font-size: 12px; overflow-x: auto; }}
img {{ max-width: 100%; background: white; }}
</style>
<h1>pgwire_codec: benchmarks</h1>
<p>Speed relative to the reference decoder in plain Python, on TPC-H's lineitem.</p>
<img src="speedup.svg" alt="Speed-up over the reference decoder by step and machine">
{machines}
</html>
"""


def main(folder: str, *named: str) -> None:
    runs = {name: Run.read(Path(path)) for name, _, path in (each.partition("=") for each in named)}
    Path(folder).mkdir(parents=True, exist_ok=True)
    draw(runs, Path(folder, "speedup.svg"))
    sections = [
        f"<h2>{html.escape(name)}</h2>\n"
        f"<p>{html.escape(run.machine['cpu'].get('brand_raw', 'an unknown processor'))}, "
        f"Python {run.machine['python_version']}, {run.date}</p>\n"
        f"<pre>{html.escape(targets(run).markdown())}\n\n{html.escape(speed(run).markdown())}</pre>"
        for name, run in runs.items()
    ]
    Path(folder, "index.html").write_text(PAGE.format(machines="\n".join(sections)), "utf-8")


def speedups(run: Run) -> dict[str, float]:
    """Return the speed-up over the reference of each step of lineitem's inserts, in text form."""
    found = {}
    for step in SHOWN:
        for result in run.select(step=step, table="lineitem", form="text", operation="insert"):
            times = run.to_reference(result)
            if times is not None:
                found.setdefault(step, times)
    return found


def draw(runs: dict[str, Run], path: Path) -> None:
    """Write the chart as SVG: a group of bars a step, a bar a machine."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"}):
        _draw(runs).savefig(path, format="svg", metadata={"Date": None})


def _draw(runs: dict[str, Run]) -> Figure:
    figure = Figure(figsize=(7.6, 4.2), layout="constrained")
    axes = figure.subplots()
    steps = [step for step in SHOWN if any(step in speedups(run) for run in runs.values())]
    height = 0.8 / max(len(runs), 1)
    for place, (name, run) in enumerate(runs.items()):
        times = speedups(run)
        for row, step in enumerate(steps):
            if step in times:
                y = row + (place - (len(runs) - 1) / 2) * height
                color = f"C{place}"
                axes.barh(y, times[step], height, color=color, label=name if row == 0 else None)
                axes.text(times[step] * 1.05, y, f"{times[step]:.0f}", va="center", fontsize=8)
    axes.set_yticks(range(len(steps)), [STEPS[step] for step in steps])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_xlabel("speed relative to the reference decoder (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
