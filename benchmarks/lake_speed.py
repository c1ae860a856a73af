"""Measures mirrors and other ways to a lake beside their limit: decoding, and Parquet's writer.

Called as ``python -m benchmarks.lake_speed SIZE FOLDER``, by ``make bench-lake``. It prints a page,
and with full data writes it to ``FOLDER/benchmarks-lake.md``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import (
    lake_commands,
    lake_data,
    lake_local,
    lake_page,
    lake_peers,
    lake_scan,
    lake_spark,
    sections,
)
from benchmarks.lake_cost import in_child
from benchmarks.machine import machine
from benchmarks.peers.programs import NotMeasuredError
from pgwire_codec.log import Log

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """Numbers of rows, changes and turns of the scenarios."""

    lineitem: int
    backlog: tuple[int, int]  # rows and changes
    tables: tuple[int, int, int]  # number, rows and changes of all
    shop: tuple[int, int]  # number and rows of all
    scattered: tuple[int, int, int]  # rows, turns, and turns of Spark


SIZES = {
    "tiny": Size(2_000, (2_000, 500), (4, 400, 200), (6, 600), (2_000, 24, 22)),
    "quick": Size(
        200_000, (200_000, 100_000), (20, 200_000, 100_000), (27, 46_000), (200_000, 100, 20)
    ),
    "full": Size(
        6_000_000,
        (1_000_000, 1_000_000),
        (200, 2_000_000, 1_000_000),
        (27, 460_000),
        (2_000_000, 1_000, 100),
    ),
}

#: Shares of updates, inserts and deletes.
ALL_KINDS = (0.6, 0.3, 0.1)


def main(size: str, folder: str) -> None:
    made = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="pgwire-bench-") as place:
        tables = dict(_tables(Path(place), made))
    page = lake_page.TEXT.format(
        size=size,
        date=date.today().isoformat(),
        machine=machine(),
        shop_rows=made.shop[1],
        rows=made.scattered[0],
        scattered=lake_local.SCATTERED,
        rounds=lake_scan.ROUNDS,
        server_rows=made.lineitem,
        merge_rows=made.backlog[0],
        merged=made.backlog[1],
        **tables,
    )
    print(page)
    if size == "full":
        sections.write_all(Path(folder, lake_page.PAGE), page)


def _tables(place: Path, made: Size) -> Iterator[tuple[str, str]]:
    """Yield the name of each table in the text of the page, and the table."""
    lines = mirrors(place / "mirrors", made)
    yield "mirrors", _table(lake_page.MIRRORS, lines)
    lines = commands(_new(place / "shop"), *made.shop)
    yield "commands", _table(lake_page.COMMANDS, lines)
    yield "turns", _table(lake_page.TURNS, turns(place / "turns", *made.scattered))
    yield "scans", _table(lake_page.SCANS, scans(place / "turns" / "local"))
    lines = lake_peers.snapshots(_new(place / "server"), made.lineitem)
    yield "snapshots", _table(lake_page.SNAPSHOTS, lines)
    lines = lake_peers.merges(_new(place / "merges"), *made.backlog, ALL_KINDS)
    yield "merges", _table(lake_page.MERGES, lines)


def _table(header: list[str], lines: Iterable[str]) -> str:
    """Return a table, whose lines are printed as they are measured, too."""
    made = []
    for line in lines:
        print(line, file=sys.stderr, flush=True)
        made.append(line)
    return "\n".join([*header, *made])


def mirrors(place: Path, made: Size) -> Iterator[str]:
    """Measure snapshots and changes by both runners; yield lines of the table."""
    lineitem = _new(place / "lineitem")
    in_child(lake_data.write_lineitem, lineitem / "log", made.lineitem)
    yield from _mirrored(lineitem, "snapshot of lineitem", 0, made.lineitem)
    yield from _changed(_new(place / "backlog"), 1, *made.backlog)
    yield from _changed(_new(place / "tables"), *made.tables)


def _changed(place: Path, count: int, rows: int, changes: int) -> Iterator[str]:
    """Measure the inserts of tables, and then changes of all; yield lines of the table."""
    name = "a table" if count == 1 else f"{count} tables"
    sources = [lake_data.Changes(rows // count, number) for number in range(count)]
    lake_data.write(place / "log", (source.begin() for source in sources))
    yield from _mirrored(place, f"snapshot of {name}", 0, rows)
    after = Log(place / "log").end.lsn
    lake_data.write(place / "log", (source.add(changes // count, ALL_KINDS) for source in sources))
    yield from _mirrored(place, f"changes of {name}", after, changes)


def _mirrored(place: Path, name: str, after: int, changes: int) -> Iterator[str]:
    """Measure mirrors of each format up to the end of the log; yield lines of the table."""
    log = place / "log"
    limit = in_child(lake_local.limit, log, after, changes, place)
    for form in lake_spark.FORMATS:
        local = None
        if form != "iceberg":
            local = in_child(lake_local.mirror_once, log, f"{form}:{place / 'local' / form}")
        spark = _attempt(lake_spark.mirror_twice, place, form)
        title = f"{name}: {form.capitalize()}"
        yield lake_page.Mirrors(title, changes, limit, local, spark).line()


def commands(place: Path, count: int, rows: int) -> Iterator[str]:
    """Measure the command for tables of a shop; yield lines of the table."""
    in_child(lake_data.write_shop, place / "log", count, rows)
    limit = in_child(lake_local.limit, place / "log", 0, rows, place)
    yield lake_page.cells("limit", count, f"{rows:,}", limit, "100%")
    for runner in lake_commands.RUNNERS:
        cost = lake_commands.attempt(
            lambda runner=runner: [lake_commands.mirror(place / "log", place / runner, runner)]
        )
        share = "" if isinstance(cost, str) else cost.share(limit)
        yield lake_page.cells(f"--runner {runner}", count, f"{rows:,}", cost, share)


def turns(place: Path, rows: int, local: int, spark: int) -> Iterator[str]:
    """Measure turns of a few changes by both runners; yield lines of the table."""
    for figures in in_child(lake_local.turns, _new(place / "local"), rows, local):
        yield lake_page.turns_line("local", figures)
    figures_of_spark = _attempt(lake_spark.turns, _new(place / "spark"), rows, spark)
    if isinstance(figures_of_spark, str):
        yield lake_page.cells("Spark", figures_of_spark, "", "", "")
        return
    for figures in figures_of_spark:
        yield lake_page.turns_line("Spark", figures)


def scans(place: Path) -> Iterator[str]:
    """Measure scans of the table after the turns; yield lines of the table."""
    table, at_once = lake_local.table(place), place / "at-once"
    in_child(lake_scan.write_at_once, table, at_once)
    for name, path in (("after all turns", table), ("written at once", at_once)):
        seconds = [_attempt(scan, path) for scan in (lake_scan.by_polars, lake_scan.by_duckdb)]
        shown = [time if isinstance(time, str) else f"{time:.3f}" for time in seconds]
        yield lake_page.cells(name, lake_local.data_files(path), *shown)


def _attempt(job: Callable[..., T], *arguments: Any) -> T | str:
    """Return the result of a function in a process of its own, or why it has none."""
    try:
        return in_child(job, *arguments)
    except NotMeasuredError as reason:
        return f"not measured: {reason}"


def _new(place: Path) -> Path:
    place.mkdir(parents=True)
    return place


if __name__ == "__main__":
    main(*sys.argv[1:])
