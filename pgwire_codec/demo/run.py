"""The demo: a shop's changes from PostgreSQL to typed tables on Spark, compared with the server."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pgwire_codec.capture import Status
from pgwire_codec.demo import shop, steps, workload
from pgwire_codec.demo.apply import AppliedTable, differences
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.errors import OptionError

#: How many differing rows of a table are printed.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing one decoded table with the server's."""

    table: str
    applied: AppliedTable
    compared: int
    different: list[str]


def main(
    *,
    dsn: str | None = None,
    output: Path | None = None,
    keep: bool = False,
    console: Console | None = None,
) -> int:
    """Run the demo.

    Parameters
    ----------
    dsn : str, optional
        A server to use; it gets a schema, a publication and a slot named ``pgwire_demo``, which are
        removed again. By default an embedded PostgreSQL 18.
    output : Path, optional
        An empty or new folder for log and tables. By default a temporary one, which stays.
    keep : bool
        Leave schema, publication and slot on the server of ``dsn``.

    Returns
    -------
    int
        0 when every table is the server's, else 1.
    """
    console = console or Console()
    started = time.monotonic()
    folder = _output_folder(output)
    with _server(dsn, console) as server:
        shop.create(server)
        try:
            comparisons = _run(server, folder, console)
        finally:
            if not keep:
                shop.drop(server)
    console.print(_result(comparisons))
    for each in comparisons:
        for line in each.different[:_SHOWN]:
            console.print(Text(f"{each.table}: {line}", style="red"))
    console.print(f"Log:    {folder / 'log'} (see: pgwire-codec log info)")
    console.print(f"Tables: {folder / 'tables'} (Parquet, one folder a table)")
    different = sum(len(each.different) for each in comparisons)
    console.print(
        f"{different} differences, {time.monotonic() - started:.0f} s",
        style="red" if different else "green",
    )
    return 1 if different else 0


def _output_folder(output: Path | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="pgwire-demo-"))
    if output.exists() and any(output.iterdir()):
        raise OptionError(f"output folder {output} is not empty", hint="Use a new or empty folder.")
    output.mkdir(parents=True, exist_ok=True)
    return output.resolve()


@contextmanager
def _server(dsn: str | None, console: Console) -> Iterator[str]:
    if dsn is not None:
        yield dsn
        return
    with console.status("Starting PostgreSQL 18"):
        server = EmbeddedServer(18)
        server.__enter__()
    try:
        yield server.dsn
    finally:
        server.stop()


def _run(dsn: str, folder: Path, console: Console) -> list[Comparison]:
    log, tables = folder / "log", folder / "tables"
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        steps.capture_until_now(dsn, log)  # from here on the slot keeps every change
        _change(dsn, progress)
        _capture(dsn, log, progress)
        _decode(log, tables, progress)
        return _compare_all(dsn, tables, progress)


def _change(dsn: str, progress: Progress) -> None:
    task = progress.add_task("Change the shop", total=len(workload.STEPS), what="")
    workload.run(dsn, report=lambda step: progress.update(task, advance=1, what=step.name))
    progress.update(task, completed=len(workload.STEPS), what="")


def _capture(dsn: str, log: Path, progress: Progress) -> None:
    task = progress.add_task("Capture into the log", total=None, what="")

    def report(status: Status) -> None:
        size = f"{status.bytes / 1e6:.1f} MB, {status.segments} segments"
        progress.update(task, what=f"{status.messages:,} messages, {size}")

    steps.capture_until_now(dsn, log, report)
    progress.update(task, total=1, completed=1)


def _decode(log: Path, tables: Path, progress: Progress) -> None:
    task = progress.add_task("Decode on Spark", total=len(shop.KEYS), what="start Spark")
    with steps.local_spark() as spark:
        steps.decode_tables(
            spark, log, tables, lambda table: progress.update(task, advance=1, what=table)
        )
    progress.update(task, what="")


def _compare_all(dsn: str, tables: Path, progress: Progress) -> list[Comparison]:
    task = progress.add_task("Compare with the server", total=len(shop.KEYS), what="")
    comparisons = []
    for table in shop.KEYS:
        comparisons.append(_compare(dsn, table, tables / table))
        progress.update(task, advance=1, what=table)
    progress.update(task, what="")
    return comparisons


def _compare(dsn: str, table: str, changes: Path) -> Comparison:
    applied = AppliedTable(shop.KEYS[table])
    applied.apply(pq.read_table(changes).to_pylist())
    server = shop.typed_rows(dsn, table)
    found = differences(applied, server)
    return Comparison(
        table,
        applied,
        len(server),
        [f"{key}: decoded {ours}, the server has {theirs}" for key, ours, theirs in found],
    )


def _result(comparisons: list[Comparison]) -> Table:
    result = Table(title="Decoded on Spark, compared with PostgreSQL", box=SIMPLE_HEAD)
    result.add_column("table", no_wrap=True)
    for name in ("inserts", "updates", "deletes", "truncates", "rows compared", "differences"):
        result.add_column(name, justify="right", no_wrap=True)
    for each in comparisons:
        counts = each.applied.counts
        result.add_row(
            each.table,
            *(f"{counts[operation]:,}" for operation in "IUDT"),
            f"{each.compared:,}",
            f"{len(each.different):,}",
            style="red" if each.different else None,
        )
    return result
