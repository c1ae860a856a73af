"""Measurements of the local runner, and of its limit: decoding, and Parquet's writer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks import lake_data
from benchmarks.lake_cost import Cost, measured
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.mirror_options import MirrorOptions
from pgwire_codec.lake.mirror_run import MirrorRun
from pgwire_codec.lake.mirroring import mirror
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import OK, TableStatus
from pgwire_codec.log import Log
from pgwire_codec.options import DecoderOptions

SCATTERED = 100  # changes of a turn
WARM_UP = 10  # turns
MEASURED = 10  # turns
UPDATES = (1.0, 0.0, 0.0)  # shares of updates, inserts and deletes

_ROW_GROUP = 250_000


@dataclass(frozen=True)
class Turns:
    """Medians of some turns, and the size of the table after them."""

    first: int
    last: int
    cost: Cost
    log_bytes: int
    files: int


def limit(log: Path, after: int, changes: int, folder: Path) -> Cost:
    """Measure one thread that decodes the changes after an LSN, and writes them to Parquet."""
    return measured(lambda: _decode_and_write(log, after, changes, folder))


def _decode_and_write(log: Path, after: int, changes: int, folder: Path) -> None:
    options = DecoderOptions(arrow_types=ROW_TYPES)
    writers: dict[str, pq.ParquetWriter] = {}
    buffers: dict[str, list[pa.RecordBatch]] = {}
    count = 0
    for partition in Log(log).plan(after).partitions:
        for batch in partition.decode(options):
            name = batch.relation.name
            rows = batch.to_arrow().select([column.name for column in batch.relation.columns])
            count += len(rows)
            if name not in writers:
                file = folder / f"{name}-{after}.parquet"
                writers[name], buffers[name] = pq.ParquetWriter(file, rows.schema), []
            buffers[name].append(rows)
            if sum(map(len, buffers[name])) >= _ROW_GROUP:
                writers[name].write_table(pa.Table.from_batches(buffers[name]))
                buffers[name].clear()
    for name, writer in writers.items():
        if buffers[name]:
            writer.write_table(pa.Table.from_batches(buffers[name]))
        writer.close()
    if count != changes:
        raise AssertionError(f"the log has {count} changes, not {changes}")


def mirror_once(log: Path, target: str) -> Cost:
    """Measure a mirror up to the end of the log, in the threads of this process."""
    run = mirror(log, target, once=True)
    cost = measured(run.run)
    check(run.status)
    return cost


def check(status: dict[str, TableStatus]) -> None:
    """Raise an error if tables are left out, for example because of an error."""
    if not status or any(row.state != OK for row in status.values()):
        raise AssertionError(f"tables are not mirrored: {status}")


def turns(place: Path, rows: int, count: int) -> list[Turns]:
    """Measure turns of a few updates each: early ones, and the last."""
    changes = lake_data.Changes(rows)
    lake_data.write(place / "log", [changes.begin()])
    lake = Lake.parse(f"delta:{place / 'lake'}")
    run = MirrorRun(str(place / "log"), ["*"], lake, MirrorOptions(), Threads())
    run.turn(0)
    costs, sizes = [], []
    for number in range(1, count + 1):
        lake_data.write(place / "log", [changes.add(SCATTERED, UPDATES)])
        costs.append(measured(partial(run.turn, number)))
        sizes.append(_size(table(place)) if number in windows(count) else (0, 0))
    check(run.status)
    return [
        Turns(last - MEASURED + 1, last, typical(costs[last - MEASURED : last]), *sizes[last - 1])
        for last in windows(count)
    ]


def windows(count: int) -> tuple[int, int]:
    """Return the last turn of the early ones, and of the last ones."""
    return WARM_UP + MEASURED, count


def typical(costs: list[Cost]) -> Cost:
    """Return medians."""
    return Cost(median(cost.seconds for cost in costs), median(cost.cpu for cost in costs))


def table(place: Path) -> Path:
    """Return the folder of the only table of the mirror in a place."""
    return place / "lake" / "public" / "acct"


def _size(path: Path) -> tuple[int, int]:
    """Return the bytes of a Delta log, and the number of the table's data files."""
    files = [file for file in (path / "_delta_log").rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files), data_files(path)


def data_files(path: Path) -> int:
    """Return the number of data files that a Delta table has now."""
    return len(DeltaTable(path).file_uris())
