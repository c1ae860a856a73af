"""Writes the figures of a run: docs/benchmarks.md, its chart, and CSV files beside it.

Called as ``python -m benchmarks.results_page RESULTS.json [FOLDER]``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import fill

from benchmarks.chart import draw
from benchmarks.grid import Grid, number
from benchmarks.results import Result, Run

STEPS = {
    "limit": "skip over the columns: the limit",
    "scan": "scan",
    "tuples": "tuples",
    "decode": "typed decode, all columns",
    "decode 2 of 16": "typed decode, 2 of 16 columns",
    "to_arrow": "messages to record batches",
    "decode_message": "decode_message, one by one",
    "scan and resolve": "scan and resolve",
    "fetch": "fetch from a server",
}
DECODERS = {
    "cython": "pgwire_codec",
    "reference": "reference",
    "pypgoutput": "pypgoutput",
    "adbc": "adbc",
}
MAX_LOAD = 1.1  # a higher load average has a part that is not the run's own
ROWS_PER_CALL = 10_000  # of the rows on the page

#: The rows of the page's tables: text, decoder and step.
WHOLE_PATH = (
    ("the limit: a C loop that only skips from column to column", "cython", "limit"),
    ("`Decoder.decode` and `to_arrow()`: messages to record batches", "cython", "to_arrow"),
    ("`decode_message`: one message to one object", "cython", "decode_message"),
    ("the same record batches without the compiled core", "reference", "to_arrow"),
    ("adbc-driver-postgresql: fetch the rows from a server as Arrow", "adbc", "fetch"),
    ("pypgoutput: one message to one object, values as `str`", "pypgoutput", "decode_message"),
)
KERNELS = (
    ("`scan`: check every message to its last byte", "cython", "scan"),
    ("`tuples`: offset, length, state and form of every column", "cython", "tuples"),
    ("typed decode of all 16 columns", "cython", "decode"),
    ("typed decode of 2 of 16 columns", "cython", "decode 2 of 16"),
)

#: Each CSV file, and its description on the page.
FILES = {
    "speed": "every step, by table, operation, form of values and rows in a call. `scan` checks "
    "every message to its last byte. `tuples` returns the offset, length, state and form of every "
    "column. Typed decode fills Arrow's buffers from scanned messages; for updates, those of the "
    "new tuples. *Messages to record batches* is all of it, with a decoder and a transaction for "
    "each call, and includes the old tuples of updates. *Transactions of one* are Begin, Insert "
    "and Commit, and a row is a message. *× reference* is relative to the same step in plain "
    "Python, on fewer rows, and *× adbc* to adbc-driver-postgresql. A call with all rows writes to "
    "memory that is new to the process, which the system clears first; smaller calls reuse memory.",
    "shapes": "messages to record batches for input of many shapes, with small transactions, many "
    "tables, tiny calls, or much that is known. Costs are nanoseconds of CPU time a change, call, "
    "message or subtransaction.",
    "targets": "the speed that was aimed at, and the speed measured.",
    "cost": "typed decode of all columns of lineitem in text form, in nanoseconds a row, by the "
    "number of rows.",
    "memory": "peak resident memory of a process that reads a file of lineitem and makes one "
    "record batch of it with `Decoder.decode` and `to_arrow()`, without that of the imports.",
    "log": "`LogPartition.decode` and `to_arrow()` of all partitions of a log of lineitem in "
    "transactions of 10,000 rows, and the share of checksums in that time. Each round also reads "
    "without them.",
    "threads": "two threads against one that does the same work, by the clock. The two are one "
    "call with `threads=2`, or two Python threads with a decoder and half of the rows each. A load "
    "average well above 2 means that other programs used the second core, and the ratio means "
    "nothing.",
}

DOCUMENT = """\
# Benchmarks

`make bench` writes this page and measures all of its figures in one run ({size} data, {date}), on
one core of {machine}. {load}

![Rows of lineitem per second, by step](benchmarks.svg)

{whole_path}

The rows are inserts of TPC-H's lineitem, which has 16 columns, with values in text form. Rates are
per second of the thread's CPU time, which is the clock's on an idle machine. They are medians of
{rounds} rounds. The limit checks no lengths and reads no values. It is measured right before each
step in every round, on the same messages, and *of the limit* is the median of the rounds' ratios.

The peers do other work. `adbc` fetches the rows in binary form from a server on the same machine.
The server's CPU time does not count, and `numeric` stays text. `pypgoutput` makes an object for
each message with a `str` for each value, and does not convert values.

{peers}## Kernels

The steps of the core by themselves, on messages that were scanned before:

{kernels}

## All figures

The run's other figures are in CSV files.

{files}

## Run the benchmarks

```sh
make bench                # all of the above, in a few minutes
make bench SIZE=quick     # a fifth of the rows, in about a minute
make bench-peers          # Rust and Go decoders; needs cargo and go
make bench-versions BASE=main  # input of many shapes, on another revision and on this one
```

The data are made by tpchgen-cli (TPC-H's lineitem and orders) and by `benchmarks/datasets.py`, and
kept in `build/benchmarks`. The JSON of the run is `build/benchmarks/results.json`.
"""

#: The section that ``make bench-peers`` fills.
PEERS = """\
## Decoders in Rust and Go

CPU time of a change in nanoseconds, as the median and the minimum of a run's rounds:

{table}

`make bench-peers` measures these and writes [peers.csv](benchmarks/peers.csv). In each round every
program reads the same file of inserts of lineitem, in a process of its own. A call of this package
gets a part of the file, which may begin and end inside a transaction. Transactions of 1 are a
Begin, an Insert and a Commit. The peers parse one message after the other and keep nothing.
Without types they return the bytes of each value.

"""


def main(path: str, folder: str = "docs") -> None:
    run = Run.read(Path(path))
    grids = figures(run)
    for grid in grids.values():
        print(grid.markdown(), end="\n\n")
    cpu = run.machine["cpu"]
    document = DOCUMENT.format(
        size=run.size,
        date=run.date,
        machine=f"{cpu.get('brand_raw', 'an unknown processor')}, "
        f"Python {run.machine['python_version']}",
        load=load(run),
        whole_path=headlines(run, WHOLE_PATH).markdown(),
        peers=peers(Path(folder, "benchmarks", "peers.csv")),
        kernels=headlines(run, KERNELS).markdown(),
        rounds="5 or 7",
        files=file_list(grids),
    )
    write(Path(folder), document, grids)
    draw(run, Path(folder, "benchmarks.svg"))


def write(folder: Path, document: str, grids: Mapping[str, Grid]) -> None:
    """Write the page and its CSV files, and remove those of an earlier run."""
    beside = folder / "benchmarks"
    beside.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.md").write_text(document, "utf-8")
    for name in FILES:
        (beside / f"{name}.csv").unlink(missing_ok=True)
    for name, grid in grids.items():
        (beside / f"{name}.csv").write_text(grid.csv(), "utf-8")


def file_list(grids: Mapping[str, Grid]) -> str:
    """Return the list of CSV files with their descriptions."""
    return "\n".join(
        fill(
            f"- [{name}.csv](benchmarks/{name}.csv): {FILES[name]}",
            width=100,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name in grids
    )


def figures(run: Run) -> dict[str, Grid]:
    """Return the contents of the CSV files, without those that were not measured."""
    grids = {
        "speed": speed(run),
        "shapes": shapes(run),
        "targets": targets(run),
        "cost": cost(run),
        "memory": memory(run),
        "log": log(run),
        "threads": threads(run),
    }
    return {name: grid for name, grid in grids.items() if grid.rows}


def headlines(run: Run, wanted: Sequence[tuple[str, str, str]]) -> Grid:
    """Return a table of the page."""
    rows = []
    for text, decoder, step in wanted:
        form = "binary" if decoder == "adbc" else "text"
        result = run.lineitem(decoder, step, form, ROWS_PER_CALL)
        if result is not None:
            ratio = number(result.ratio, ".2f")
            rows.append([text, _call(result, ","), _rate(result), ratio])
    return Grid(["", "rows a call", "million rows/s", "of the limit"], rows)


def peers(path: Path) -> str:
    """Return the section with the figures of ``make bench-peers``, or "" without them."""
    if not path.exists():
        return ""
    return PEERS.format(table=Grid.read(path).markdown())


def speed(run: Run) -> Grid:
    """Return every step."""
    head = (
        "table", "changes", "form", "decoder", "step", "rows a call",
        "million rows/s", "GB/s", "of the limit", "× reference", "× adbc",
    )  # fmt: skip
    rows = [
        [
            result.table,
            result.operation,
            result.form,
            DECODERS[result.who],
            STEPS[result.step],
            _call(result),
            _rate(result),
            f"{result.bytes_per_second / 1e9:.3g}" if result.bytes else "",
            number(result.ratio, ".2f"),
            number(run.to_reference(result), ".0f"),
            number(run.to_adbc(result), ".1f"),
        ]
        for result in sorted(run.select(kind="speed"), key=_place)
    ]
    return Grid(head, rows)


def shapes(run: Run) -> Grid:
    """Return every shape of input."""
    rows = [
        [
            result.step,
            result.how,
            f"{1e9 / result.rows_per_second:.0f}",
            number(result.ratio, ".3f"),
        ]
        for result in run.select(kind="shape")
    ]
    return Grid(["input", "ns a", "cost", "of the limit"], rows)


def targets(run: Run) -> Grid:
    """Return targets, and what was measured on lineitem."""
    aimed = [
        ("tuples, of the limit", "text", "tuples", lambda result: result.ratio, 0.6),
        ("typed decode, of the limit", "text", "decode", lambda result: result.ratio, 0.25),
        ("typed decode, of the limit", "binary", "decode", lambda result: result.ratio, 0.33),
        ("typed decode, × reference", "text", "decode", run.to_reference, 150),
        ("typed decode, × adbc", "text", "decode", run.to_adbc, 6),
        ("messages to record batches, × adbc", "text", "to_arrow", run.to_adbc, 6),
        ("decode_message, million/s", "text", "decode_message", _millions, 1),
    ]
    rows = []
    for figure, form, step, of, target in aimed:
        for result in run.select(table="lineitem", form=form, step=step, who="cython",
                                 kind="speed", operation="insert"):  # fmt: skip
            value = of(result)
            if value is not None:
                digits = ".2f" if target < 10 else ".0f"
                rows.append([figure, form, _call(result), f"{target:g}", format(value, digits)])
    return Grid(["figure", "form", "rows a call", "target", "measured"], rows)


def cost(run: Run) -> Grid:
    """Return nanoseconds a row by the number of rows, and how flat they are."""
    ways = list(dict.fromkeys(result.how for result in run.select(kind="cost")))
    counts = sorted({result.of for result in run.select(kind="cost")})
    costs: dict[str, list[float]] = {}
    for how in ways:
        found = [run.find(kind="cost", how=how, of=count) for count in counts]
        costs[how] = [1e9 / each.rows_per_second for each in found if each is not None]
    rows = [
        [str(count), *(f"{costs[how][place]:.0f}" for how in ways)]
        for place, count in enumerate(counts)
    ]
    if rows:
        flat = [f"+{100 * (max(costs[how]) / min(costs[how]) - 1):.0f} %" for how in ways]
        rows.append(["largest against smallest", *flat])
    heads = {"in batches": "in batches of 10000", "at once": "in one call"}
    return Grid(["rows", *(heads[how] for how in ways)], rows)


def memory(run: Run) -> Grid:
    """Return input, output and peak; without rows if not on Linux."""
    rows = []
    for result in run.select(kind="memory"):
        middle = {name: median(each[name] for each in result.sizes) for name in result.sizes[0]}
        ratio = middle["peak"] / (middle["input"] + middle["output"])
        sizes = [f"{middle[name] / 1e6:.0f}" for name in ("input", "output", "peak")]
        rows.append([result.form, str(result.rows), *sizes, f"{ratio:.2f}"])
    head = ["form", "rows", "input, MB", "output, MB", "peak, MB", "peak / (input + output)"]
    return Grid(head, rows)


def log(run: Run) -> Grid:
    """Return the speed of reading a log, and the share of its checksums."""
    rows = [
        [
            result.form,
            _rate(result),
            f"{result.bytes_per_second / 1e9:.3g}",
            "" if result.ratio is None else f"{100 * (1 - result.ratio):.1f} %",
        ]
        for result in run.select(kind="log")
    ]
    return Grid(["form", "million rows/s", "GB/s", "checksums"], rows)


def threads(run: Run) -> Grid:
    """Return two threads against one."""
    rows = [
        [
            result.step,
            f"{result.clock_rows_per_second / 1e6:.3g}",
            number(result.clock_ratio, ".2f"),
            f"{result.load:.1f}",
        ]
        for result in run.select(kind="threads")
    ]
    return Grid(["step", "million rows/s", "× one thread", "load average"], rows)


def load(run: Run) -> str:
    """Return a sentence on the load of the machine."""
    # A single thread alone brings the average to 1; two threads and a server bring it higher.
    speeds = run.select(kind="speed")
    busy = [result.load for result in speeds if result.load > MAX_LOAD]
    if not busy:
        return "The machine did nothing else."
    return (
        f"The machine was not idle: the load average was above 1, up to {max(busy):.1f}, in "
        f"{len(busy)} of {len(speeds)} measurements of speed."
    )


def _place(result: Result) -> tuple[object, ...]:
    """Return the sort key: lineitem's inserts first, text before binary, step by step."""
    first = result.table != "lineitem" or result.operation not in ("insert", "select")
    changes = (result.table, result.operation) if first else ()
    form = result.form != "text" or result.who == "adbc"
    decoder = list(DECODERS).index(result.who)
    return first, changes, form, decoder, list(STEPS).index(result.step), result.rows_per_call


def _call(result: Result, form: str = "") -> str:
    return format(result.rows_per_call, form)


def _rate(result: Result) -> str:
    return f"{_millions(result):.3g}"


def _millions(result: Result) -> float:
    return result.rows_per_second / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
