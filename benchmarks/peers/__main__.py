"""Measures the peers and this package in one run, and writes ``FOLDER/peers.csv``.

Called as ``python -m benchmarks.peers SIZE FOLDER [ROUNDS]``, by ``make bench-peers``. In a round,
one program after the other reads the same file of messages in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.grid import Grid
from benchmarks.machine import machine
from benchmarks.peers.programs import PROGRAMS, NotMeasuredError, Program
from benchmarks.peers.record_batches import write_messages
from benchmarks.shapes import shapes

_Input = tuple[str, str]  # form of values, rows of a transaction

ROWS = {"tiny": 1_000, "quick": 20_000, "full": 100_000}
ROUNDS = 7
PASSES = 5  # of each program in a round, after one that does not count
_TRANSACTIONS = {"transactions of 10,000": "10,000", "transactions of 1": "1"}


@dataclass(frozen=True)
class _Measured:
    """A program, why it cannot run, and its nanoseconds a change, one a round."""

    program: Program
    command: Sequence[str] = ()
    reason: str = ""
    costs: dict[_Input, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> _Measured:
        """Build a program."""
        try:
            return cls(program, program.command())
        except NotMeasuredError as reason:
            return cls(program, reason=f"not measured: {reason}")


def main(size: str, folder: str, rounds: str = str(ROUNDS)) -> None:
    with tempfile.TemporaryDirectory() as place:
        inputs = dict(_inputs(ROWS[size], Path(place)))
        grid = _grid(inputs, _measured(inputs, int(rounds)))
    print(f"CPU ns a change, medians (minima) of {rounds} rounds, on {machine()}\n")
    print(grid.markdown())
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "peers.csv").write_text(grid.csv(), "utf-8")


def _inputs(rows: int, place: Path) -> Iterator[tuple[_Input, Path]]:
    """Write a file for each form of values and size of transactions; yield them with its path."""
    lineitem = takewhile(lambda shape: shape.name.startswith("lineitem"), shapes(rows))
    for number, shape in enumerate(lineitem):
        name, transactions, _ = shape.name.split(", ", 2)
        if transactions not in _TRANSACTIONS:
            continue
        path = place / f"{number}.messages"
        write_messages(path, pa.concat_arrays(shape.calls))
        yield (name.removeprefix("lineitem "), _TRANSACTIONS[transactions]), path


def _measured(inputs: Mapping[_Input, Path], rounds: int) -> list[_Measured]:
    """Measure each program on each input that it reads, in rounds."""
    measured = [_Measured.of(program) for program in PROGRAMS]
    for _ in range(rounds):
        for key, path in inputs.items():
            seen: set[tuple[int, ...]] = set()
            for each in measured:
                if each.command and key[0] in each.program.forms:
                    result = _run(each, path)
                    seen.add(tuple(result[name] for name in ("messages", "changes", "bytes")))
                    cost = median(result["nanoseconds"]) / result["changes"]
                    each.costs.setdefault(key, []).append(cost)
            if len(seen) != 1:
                raise AssertionError(f"the programs read different values: {seen}")
    return measured


def _run(each: _Measured, path: Path) -> dict[str, Any]:
    command = [*each.command, str(path), str(PASSES), *each.program.last]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _grid(inputs: Mapping[_Input, Path], measured: Sequence[_Measured]) -> Grid:
    rows = []
    for each in measured:
        program, costs = each.program, [each.costs.get(key) for key in inputs]
        cells = ["" if cost is None else f"{median(cost):.0f} ({min(cost):.0f})" for cost in costs]
        types = "yes" if program.is_typed else "no"
        rows.append([program.name, each.reason or program.result, types, *cells])
    head = [f"{form}, transactions of {count}" for form, count in inputs]
    return Grid(["decoder", "result", "types", *head], rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
