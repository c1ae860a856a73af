"""Prints what a run measured as one table, and writes docs/benchmarks.md and its chart.

Called as ``python -m benchmarks.report RESULTS.json [FOLDER]``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.chart import draw
from benchmarks.results import Result, Run

HEAD = (
    "table", "changes", "form", "step", "rows a call",
    "million rows/s", "GB/s", "of the limit", "× reference", "× adbc",
)  # fmt: skip
STEPS = {
    "limit": "hop over the columns: the limit",
    "scan": "scan",
    "tuples": "tuples",
    "decode": "typed decode, all columns",
    "decode 2 of 16": "typed decode, 2 of 16 columns",
    "to_arrow": "messages to record batches",
    "decode_message": "decode_message, one by one",
    "encode_batch": "encode_batch",
    "scan and resolve": "scan and resolve",
    "fetch": "fetch from a server",
}
NAMES = {"cython": "", "reference": "reference: ", "pypgoutput": "pypgoutput: ", "adbc": "adbc: "}
ALONE = 1.1  # a load average above this is not the run's own

DOCUMENT = """\
# Benchmarks

Written by `make bench`, which measures all of this in one run ({size} data, {date}), on one core of
{machine}.

![Rows a second of lineitem, by step](benchmarks.svg)

{load}

## Speed

{table}

- **The limit** is a compiled loop that hops over every column of every tuple, and neither looks at
  a value nor checks a length. It is measured just before each step, on the same messages, in every
  round; *of the limit* is the median of the rounds' ratios. All else are medians of {rounds}
  rounds.
- `scan` checks every message to its last byte. `tuples` gives the offset, length, state and form of
  every column. Typed decode gives Arrow's buffers, of messages that were scanned. *Messages to
  record batches* is all of it, `Decoder.decode` and `to_arrow()`, with a decoder and a transaction
  a call.
- Typed decode of updates is of their new tuples; their record batches have the old ones, too.
- Seconds are of the thread's CPU time, all of which is the clock's on a quiet machine.
- *× reference*: the same step by the plain-Python implementation, on fewer rows.
- *× adbc*: against adbc-driver-postgresql, which fetches the same rows in binary form from a server
  on the same machine. The server's CPU time does not count, and numeric stays text there.
- pypgoutput makes one object a message, with a `str` for every value.
- *transactions of one*: Begin, Insert, Commit, and again. A row is a message there.
- What is decoded in one call writes to memory that is new to the process, which the system has to
  clear first; smaller calls use the same memory again.

## Aims

{aims}

## Cost of a row

Typed decode of all columns of lineitem in text form, by the number of rows, in nanoseconds a row.

{cost}

## Memory

The most resident memory that a process took, beyond what it had with everything imported, while it
read a file of lineitem and made one record batch of it: `Decoder.decode` and `to_arrow()`.

{memory}

## A log

`LogPartition.decode` and `to_arrow()` of all partitions of a log of lineitem, in transactions of
10,000 rows, and how much of that time the comparison of checksums takes: each round reads once
without it, too.

{log}

## Two threads

By the clock, against one thread that does the same work: one call with `threads=2`, and two Python
threads that have a decoder and half of the rows each. With a load average well above 2, other
programs had the second core, and the ratio says nothing.

{threads}

## To run them

```sh
make bench                # all of the above, in a few minutes
make bench SIZE=quick     # a fifth of the rows, in about a minute
```

The data are made by tpchgen-cli (TPC-H's lineitem and orders) and by `benchmarks/tables.py`, and
kept in `build/benchmarks`; the JSON of the run is `build/benchmarks/results.json`.
"""


def main(path: str, folder: str = "docs") -> None:
    run = Run.read(Path(path))
    parts = {
        "table": speed(run),
        "aims": aims(run),
        "cost": cost(run),
        "memory": memory(run),
        "log": log(run),
        "threads": threads(run),
        "load": load(run),
    }
    print("\n\n".join(part for part in parts.values() if part))
    Path(folder).mkdir(parents=True, exist_ok=True)
    cpu = run.machine["cpu"]
    document = DOCUMENT.format(
        size=run.size,
        date=run.date,
        machine=f"{cpu.get('brand_raw', 'an unknown processor')}, "
        f"Python {run.machine['python_version']}",
        rounds="5 or 7",
        **parts,
    )
    Path(folder, "benchmarks.md").write_text(document, "utf-8")
    draw(run, Path(folder, "benchmarks.svg"))


def speed(run: Run) -> str:
    """Give the one table."""
    lines = []
    for result in sorted(run.select(kind="speed"), key=_place):
        lines.append(
            [
                result.table,
                result.operation,
                result.form,
                NAMES[result.who] + STEPS[result.step],
                "1" if result.step == "decode_message" else f"{result.batch or result.rows:,}",
                f"{result.rows_per_second / 1e6:.3g}",
                f"{result.bytes_per_second / 1e9:.3g}" if result.bytes else "",
                _number(result.ratio, ".2f"),
                _number(run.to_reference(result), ".0f"),
                _number(run.to_adbc(result), ".1f"),
            ]
        )
    return grid(HEAD, lines)


def aims(run: Run) -> str:
    """Give what was to be reached, and what was, on lineitem."""
    aimed = [
        ("tuples, of the limit", "text", "tuples", lambda result: result.ratio, 0.6),
        ("typed decode, of the limit", "text", "decode", lambda result: result.ratio, 0.25),
        ("typed decode, of the limit", "binary", "decode", lambda result: result.ratio, 0.33),
        ("typed decode, × reference", "text", "decode", run.to_reference, 150),
        ("typed decode, × adbc", "text", "decode", run.to_adbc, 6),
        ("messages to record batches, × adbc", "text", "to_arrow", run.to_adbc, 6),
        ("decode_message, million/s", "text", "decode_message", _millions, 1),
        ("encode_batch, million rows/s", "text", "encode_batch", _millions, 1),
    ]
    lines = []
    for what, form, step, of, aim in aimed:
        found = run.select(table="lineitem", form=form, step=step, who="cython", kind="speed",
                           operation="insert")  # fmt: skip
        reached = [(result, of(result)) for result in found]
        told = ", ".join(
            _number(value, ".2f" if aim < 10 else ".0f")
            + (f" ({result.batch or result.rows:,} rows a call)" if len(reached) > 1 else "")
            for result, value in reached
            if value is not None
        )
        lines.append([what, form, f"{aim:g}", told or "not measured"])
    return grid(["", "form", "aim", "measured"], lines)


def cost(run: Run) -> str:
    """Give nanoseconds a row by the number of rows, and how flat they are."""
    ways = list(dict.fromkeys(result.how for result in run.select(kind="cost")))
    counts = sorted({result.of for result in run.select(kind="cost")})
    costs: dict[str, list[float]] = {}
    for how in ways:
        found = [run.find(kind="cost", how=how, of=count) for count in counts]
        costs[how] = [1e9 / each.rows_per_second for each in found if each is not None]
    lines = [
        [f"{count:,}", *(f"{costs[how][place]:.0f}" for how in ways)]
        for place, count in enumerate(counts)
    ]
    flat = [f"+{100 * (max(costs[how]) / min(costs[how]) - 1):.0f} %" for how in ways]
    lines.append(["dearest to cheapest", *flat])
    heads = {"in batches": "in batches of 10,000", "at once": "in one call"}
    return grid(["rows", *(heads[how] for how in ways)], lines)


def memory(run: Run) -> str:
    lines = []
    for result in run.select(kind="memory"):
        middle = {name: median(each[name] for each in result.told) for name in result.told[0]}
        ratio = middle["peak"] / (middle["input"] + middle["output"])
        sizes = [f"{middle[name] / 1e6:.0f}" for name in ("input", "output", "peak")]
        lines.append([result.form, f"{result.rows:,}", *sizes, f"{ratio:.2f}"])
    head = ["form", "rows", "input, MB", "output, MB", "peak, MB", "peak / (input + output)"]
    return grid(head, lines) if lines else "Not measured: not on Linux."


def log(run: Run) -> str:
    """Give the speed of reading a log, and how much of it its checksums take."""
    lines = [
        [
            result.form,
            f"{result.rows_per_second / 1e6:.3g}",
            f"{result.bytes_per_second / 1e9:.3g}",
            "" if result.ratio is None else f"{100 * (1 - result.ratio):.1f} %",
        ]
        for result in run.select(kind="log")
    ]
    return grid(["form", "million rows/s", "GB/s", "checksums"], lines)


def threads(run: Run) -> str:
    lines = [
        [
            result.step,
            f"{result.clock_rows_per_second / 1e6:.3g}",
            _number(result.clock_ratio, ".2f"),
            f"{result.load:.1f}",
        ]
        for result in run.select(kind="threads")
    ]
    return grid(["step", "million rows/s", "× one thread", "load average"], lines)


def load(run: Run) -> str:
    """Say whether other programs had a part of the machine."""
    # A single thread alone brings the average to 1; two threads and a server bring it higher.
    busy = [result.load for result in run.select(kind="speed") if result.load > ALONE]
    if not busy:
        return "The machine did nothing else."
    return (
        f"The machine was not quiet: the load average was above 1, up to {max(busy):.1f}, in "
        f"{len(busy)} of {len(run.select(kind='speed'))} measurements of speed."
    )


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Give a Markdown table whose columns stand below each other as text, too."""
    widths = [max(len(row[place]) for row in [head, *lines]) for place in range(len(head))]
    numeric = [
        all(row[place][:1] in "+0123456789" for row in lines if row[place])
        for place in range(len(head))
    ]
    rule = ["-" * (width - 1) + (":" if right else "-")
            for width, right in zip(widths, numeric, strict=True)]  # fmt: skip
    text = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        for row in (head, *lines)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [text[0], rule, *text[1:]])


def _place(result: Result) -> tuple[object, ...]:
    """Where a result stands: lineitem's inserts first, text before binary, step by step."""
    first = result.table != "lineitem" or result.operation not in ("insert", "select")
    whose = list(NAMES).index(result.who)
    shape = (result.table, result.operation) if first else ()
    form = result.form != "text" or result.who == "adbc"
    return first, shape, form, whose, list(STEPS).index(result.step), result.batch or result.rows


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _millions(result: Result) -> float:
    return result.rows_per_second / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
