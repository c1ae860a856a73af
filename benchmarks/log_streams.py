"""Streams of an embedded server. Their LSNs and times add to the size of a log."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from benchmarks import datasets
from benchmarks.bench_peers import LINEITEM
from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.log import Log

_SETTINGS = {"fsync": "off", "max_wal_size": "4GB", "logical_decoding_work_mem": "64MB"}
_PGBENCH = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history")


def streams(place: Path, rows: int) -> Iterator[tuple[str, Path]]:
    """Yield the name of each stream, and an Arrow file with its LSNs, times and messages.

    ``rows`` is the number of changes of the first; the others have fewer, which are smaller.
    """
    with EmbeddedServer(settings=_SETTINGS) as server:
        connection = connect(server.dsn)
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(LINEITEM.replace("UNLOGGED ", ""))
        for name, count, step in (("10,000 rows", rows, 10_000), ("one row", rows // 3, 1)):
            with_rows = _lineitem(cursor, count, step)
            path = place / f"{step}.arrow"
            _capture(server.dsn, cursor, ("lineitem",), with_rows, path)
            yield f"lineitem, transactions of {name}", path
        _pgbench(server, "-i", "-q", "-s", "10")
        path = place / "pgbench.arrow"
        each = str(rows // 12)
        _capture(
            server.dsn,
            cursor,
            _PGBENCH,
            lambda: _pgbench(server, "-n", "-c", "4", "-t", each),
            path,
        )
        yield "pgbench", path
        connection.close()


def _lineitem(cursor: Any, count: int, step: int) -> Callable[[], None]:
    made = datasets.lineitem(datasets.SIZES["full"]).rows
    options = pa.csv.WriteOptions(include_header=False)

    def insert() -> None:
        for start in range(0, count, step):
            text = io.BytesIO()
            pa.csv.write_csv(made.slice(start, step), text, options)
            text.seek(0)
            cursor.copy_expert("COPY lineitem FROM STDIN (FORMAT csv)", text)

    return insert


def _pgbench(server: EmbeddedServer, *options: str) -> None:
    command = [server.bin_path / "pgbench", *options, server.dsn]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _capture(
    dsn: str, cursor: Any, tables: tuple[str, ...], write: Callable[[], None], path: Path
) -> None:
    """Capture what is written to some tables, as an Arrow file."""
    name = path.stem if path.stem.isidentifier() else f"s{path.stem}"
    cursor.execute(f"CREATE PUBLICATION {name} FOR TABLE {', '.join(tables)}")
    cursor.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    write()
    folder = path.with_suffix(".log")
    LogCapture(dsn, folder, slot=name, publication=name).run(until_lsn="now")
    cursor.execute(f"SELECT pg_drop_replication_slot('{name}')")
    found = pa.Table.from_batches(Log(folder).messages()).drop_columns(["ordinal"])
    with pa.ipc.new_file(path, found.schema) as file:
        file.write_table(found)
