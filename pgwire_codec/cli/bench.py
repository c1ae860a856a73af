"""The command ``pgwire-codec bench``, which runs :mod:`pgwire_codec.bench`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pgwire_codec.errors import missing_extra

_EPILOG = """\b
Examples:
  pgwire-codec bench
  pgwire-codec bench --json x86.json
  pgwire-codec bench --compare x86.json arm.json
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--changes", default=50_000, show_default=True, type=click.IntRange(1_000),
    help="Number of changes in each shape of input.",
)  # fmt: skip
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(2),
    help="Rounds; the median counts.",
)
@click.option(
    "--fast-only", is_flag=True, help="Leave out the reference decoder and other decoders."
)
@click.option(
    "--json", "output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the results to this file.",
)  # fmt: skip
@click.option(
    "--compare", nargs=2, metavar="FILE FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing; compare two files of --json.",
)  # fmt: skip
def bench(
    changes: int,
    rounds: int,
    fast_only: bool,
    output: Path | None,
    compare: tuple[Path, Path] | None,
) -> None:
    """Measure the decoder on this machine, in about a minute.

    Generated messages of many shapes are decoded to record batches. Costs are nanoseconds of CPU
    time. The limit is a C loop that skips from column to column and reads no values.
    """
    try:
        from pgwire_codec.bench import run as harness
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise missing_extra("the benchmarks need pyarrow", "arrow") from error
    if compare:
        _show_comparison(harness.compare(*map(_read, compare)), *compare)
        return
    results = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=None)
        for result in harness.run(changes, rounds, slow=not fast_only):
            results.append(result)
            progress.update(task, description=result.shape)
    if output is not None:
        run = {"machine": harness.machine(), "results": [asdict(each) for each in results]}
        output.write_text(json.dumps(run, indent=1), "utf-8")
    _show(results)


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the results of a file of ``--json``."""
    try:
        results: list[dict[str, Any]] = json.loads(path.read_bytes())["results"]
    except (ValueError, TypeError, KeyError) as error:
        raise click.UsageError(f"{path} is not a file that --json wrote") from error
    return results


def _show(results: list[Any]) -> None:
    others = list(dict.fromkeys(name for each in results for name in each.cost))
    others = [name for name in others if name not in ("limit", "pgwire_codec")]
    table = Table("input", "ns a", *["limit", "pgwire_codec", "of the limit", *others])
    for column in table.columns[2:]:
        column.justify = "right"
    for each in results:
        costs = [_cost(each.cost.get(name)) for name in ["limit", "pgwire_codec", *others]]
        share = "" if each.of_the_limit is None else f"{each.of_the_limit:.2f}"
        table.add_row(each.shape, each.unit, *costs[:2], share, *costs[2:])
    Console().print(table)


def _show_comparison(pairs: list[tuple[str, str, float, float]], before: Path, after: Path) -> None:
    table = Table("input", "ns a", before.name, after.name, "ratio")
    for column in table.columns[2:]:
        column.justify = "right"
    for shape, unit, old, new in pairs:
        table.add_row(shape, unit, _cost(old), _cost(new), f"{new / old:.2f}")
    Console().print(table)


def _cost(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds:,.0f}"
