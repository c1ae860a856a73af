"""The demo: a shop's tables, from PostgreSQL to a lakehouse, compared with the server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pgwire_codec.demo import shop, steps, workload
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.errors import OptionError

if TYPE_CHECKING:
    from pgwire_codec.comparing.result import Comparison
    from pgwire_codec.lake.mirror_options import MirroredBatch

#: Query of an order in the lake.
QUERY: Final = f"SELECT {', '.join(shop.ORDER)} FROM orders WHERE id = {shop.ORDER_ID}"

#: Columns of an order, as texts.
Row = tuple[str, ...]

#: Steps of the workload: after which there are orders, and before tables get new columns.
_ORDERED: Final = "orders come in"
_BEFORE_COLUMNS: Final = workload.STEPS[workload.STEPS.index("tables get new columns") - 1]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demo.

    Attributes
    ----------
    folder : Path
        Folder of ``log`` and ``lake``.
    comparison : Comparison
        The tables of the lake, compared with those of the server.
    order : mapping of str to tuple of str
        Columns of an order: as it came in, as the server has it, and as the lake does.
    """

    folder: Path
    comparison: Comparison
    order: Mapping[str, Row]


def run(
    *,
    dsn: str | None = None,
    output: Path | None = None,
    keep: bool = False,
    on_spark: bool = False,
    console: Console,
) -> DemoResult:
    """Run the demo.

    Parameters
    ----------
    dsn : str, optional
        A server to use; it gets a schema, a publication and a slot named ``pgwire_demo``, which are
        removed again. By default an embedded PostgreSQL 18.
    output : Path, optional
        An empty or new folder for log and lake. By default a temporary one, which stays.
    keep : bool
        Leave schema, publication and slot on the server of ``dsn``.
    on_spark : bool
        Have Spark do the work of mirror and comparison. By default, this process does it.
    console : Console
        Shows the progress.
    """
    folder = _output_folder(output)
    with _server(dsn, console) as server:
        shop.create(server)
        try:
            return _run(server, folder, console, on_spark=on_spark)
        finally:
            if not keep:
                shop.drop(server)


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


def _run(dsn: str, folder: Path, console: Console, *, on_spark: bool) -> DemoResult:
    log, lake = folder / "log", f"delta:{folder / 'lake'}"
    order: dict[str, Row] = {}
    applied: list[int] = []  # changes of each micro-batch
    with _progress(console) as progress, ExitStack() as running:
        change, captured, mirror, compared = (
            progress.add_task(name, total=total, start=False, what="")
            for name, total in (
                ("Change the shop", len(workload.STEPS) + 1),
                ("Capture into the log", None),
                ("Mirror into Delta", None),
                ("Compare with the server", None),
            )
        )

        def show_batch(batch: MirroredBatch) -> None:
            applied.append(sum(table.changes for table in batch.changed))
            tables = f"{len(batch.tables)} tables, {len(applied)} batches"
            progress.update(mirror, what=f"{sum(applied):,} changes, {tables}")

        def show_step(name: str) -> None:
            progress.update(change, advance=1, what=name)
            status = capture.capture.status
            size = f"{status.bytes / 1e6:.1f} MB"
            progress.update(captured, what=f"{status.messages:,} messages, {size}")

        def after(step: workload.Step) -> None:
            show_step(step.name)
            if step.name == _ORDERED:
                order["as it came in"] = shop.order(dsn)
            if step.name == _BEFORE_COLUMNS:
                # The columns are then added to tables that the lake has.
                steps.catch_up(dsn, capture, mirrored)

        progress.start_task(captured)
        steps.capture_until_now(dsn, log)  # from here on the slot keeps every change
        capture = running.enter_context(steps.capturing(dsn, log))
        progress.start_task(mirror)
        spark = None
        if on_spark:
            progress.update(mirror, what="start Spark")
            spark = running.enter_context(steps.local_spark(steps.SMALL))
        with steps.mirroring(spark, log, lake, show_batch) as mirrored:
            progress.start_task(change)
            workload.run(dsn, report=after)
            shop.publish_reviews(dsn)
            steps.catch_up(dsn, capture, mirrored)
            show_step("a table is published")
        for task in (change, captured, mirror):
            progress.update(task, total=1, completed=1)
        progress.start_task(compared)
        comparison = steps.compared(spark, log, lake, dsn)
        progress.update(compared, total=1, completed=1)
    order["on the server now"] = shop.order(dsn)
    order["in the lake"] = _order_in_lake(folder / "lake")
    return DemoResult(folder, comparison, order)


def _order_in_lake(lake: Path) -> Row:
    import deltalake

    table = deltalake.DeltaTable(str(lake / shop.SCHEMA / "orders"))
    rows = deltalake.QueryBuilder().register("orders", table).execute(QUERY).read_all()
    (row,) = pa.table(rows).to_pylist()
    return tuple(map(str, row.values()))


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
        console=console,
    )
