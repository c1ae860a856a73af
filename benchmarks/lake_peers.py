"""Measurements of the mirror beside other ways from PostgreSQL to Delta tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.csv

from benchmarks import lake_commands, lake_data, lake_local, lake_scan
from benchmarks.bench_peers import LINEITEM
from benchmarks.lake_cost import Cost, command, in_child, process_cpu
from benchmarks.lake_page import cells, peer_line
from benchmarks.lake_spark import POSTGRESQL, delta_settings
from benchmarks.snapshot_speed import connected
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.log import Log

Programs = Callable[[Path], list[list[str]]]

_KEY = "l_orderkey"
_SETTINGS = {"max_wal_size": "8GB", "shared_buffers": "2GB", "fsync": "off"}


def snapshots(place: Path, rows: int) -> Iterator[str]:
    """Measure lineitem of a server into a new Delta table; yield lines of the table."""
    with EmbeddedServer(settings=_SETTINGS) as server:
        wanted = _fill(server, rows)
        command(lake_commands.capture(server.dsn, "first", place / "log"))
        limit = in_child(lake_local.limit, place / "log", 0, rows, place)
        yield cells("limit, from a log", limit, "", f"{rows / limit.cpu:,.0f}", "100%")
        for name, (title, programs) in _snapshot_peers(server.dsn).items():
            before = _server_cpu(server)
            cost = lake_commands.attempt(partial(programs, place / name))
            used = _server_cpu(server) - before
            yield peer_line(title, rows, cost, limit, f"{used:.2f}")
            if isinstance(cost, Cost) and _sums(_only_table(place / name), _KEY) != wanted:
                raise AssertionError(f"{title}: the table has other rows than the server's")


def _snapshot_peers(dsn: str) -> dict[str, tuple[str, Programs]]:
    def ours(runner: str) -> Programs:
        def programs(target: Path) -> list[list[str]]:
            log = target.with_suffix(".log")
            mirror = lake_commands.mirror(log, target, runner)
            return [lake_commands.capture(dsn, f"slot_{runner}", log), mirror]

        return programs

    def program(name: str, *modules: str) -> Programs:
        def programs(target: Path) -> list[list[str]]:
            lake_commands.need(*modules)
            return [lake_commands.peer(name, dsn, target)]

        return programs

    def jdbc(target: Path) -> list[list[str]]:
        delta_settings(*POSTGRESQL)  # fetches the jars
        return [lake_commands.peer("jdbc", dsn, target)]

    return {
        "local": ("capture --snapshot, mirror --runner local", ours("local")),
        "spark": ("capture --snapshot, mirror --runner spark", ours("spark")),
        "adbc": ("ADBC, write_deltalake", program("adbc", "adbc_driver_postgresql")),
        "dlt": ("dlt, sql_database with pyarrow", program("dlt", "dlt", "sqlalchemy")),
        "jdbc": ("Spark: JDBC, delta-spark", jdbc),
    }


def _fill(server: EmbeddedServer, rows: int) -> tuple[int, int]:
    """Create lineitem; return the number of its rows, and the sum of a column."""
    with connected(server) as cursor:
        cursor.execute(LINEITEM.replace("UNLOGGED ", ""))
        for piece in lake_data.lineitem(rows):
            text = io.BytesIO()
            pa.csv.write_csv(piece.rows, text, pa.csv.WriteOptions(include_header=False))
            text.seek(0)
            cursor.copy_expert("COPY lineitem FROM STDIN (FORMAT csv)", text)
        cursor.execute("ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)")
        cursor.execute("VACUUM ANALYZE lineitem")
        cursor.execute("CREATE PUBLICATION p FOR TABLE lineitem")
        cursor.execute(f"SELECT count(*), sum({_KEY}) FROM lineitem")
        count, total = cursor.fetchone()
    return int(count), int(total)


def _server_cpu(server: EmbeddedServer) -> float:
    """Return the CPU seconds of the server's processes, ended ones included."""
    with connected(server) as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
        postmaster = psutil.Process(psutil.Process(backend).ppid())
        return sum(map(process_cpu, [postmaster, *postmaster.children()]))


def merges(
    place: Path, rows: int, changes: int, shares: tuple[float, float, float]
) -> Iterator[str]:
    """Measure changes of a Delta table that exists; yield lines of the table."""
    log, source = place / "log", lake_data.Changes(rows)
    lake_data.write(log, [source.begin()])
    after = Log(log).end.lsn
    peers = _merge_peers(log, after)
    for name in lake_commands.RUNNERS:
        in_child(lake_local.mirror_once, log, f"delta:{place / name}")
    for name in peers.keys() - set(lake_commands.RUNNERS):
        in_child(lake_scan.write_at_once, _only_table(place / "local"), place / name)
    lake_data.write(log, [source.add(changes, shares)])
    limit = in_child(lake_local.limit, log, after, changes, place)
    yield cells("limit", limit, f"{changes / limit.cpu:,.0f}", "100%")
    results = set()
    for name, (title, programs) in peers.items():
        cost = lake_commands.attempt(partial(programs, place / name))
        yield peer_line(title, changes, cost, limit)
        if isinstance(cost, Cost):
            results.add(_sums(_only_table(place / name), "id", "balance", "amount"))
    if len(results) != 1:
        raise AssertionError(f"the tables differ: {results}")


def _merge_peers(log: Path, after: int) -> dict[str, tuple[str, Programs]]:
    def ours(runner: str) -> Programs:
        return lambda target: [lake_commands.mirror(log, target, runner)]

    def spark(target: Path) -> list[list[str]]:
        delta_settings()  # fetches the jars
        return [lake_commands.peer("merge_by_spark", log, str(after), target)]

    def delta_rs(target: Path) -> list[list[str]]:
        return [lake_commands.peer("merge_by_delta_rs", log, str(after), target)]

    return {
        "local": ("mirror --runner local", ours("local")),
        "spark": ("mirror --runner spark", ours("spark")),
        "merge-spark": ("delta-spark: MERGE INTO", spark),
        "merge-delta-rs": ("delta-rs: DeltaTable.merge", delta_rs),
    }


def _only_table(folder: Path) -> Path:
    """Return the only Delta table in a folder that is not one of a program's own."""
    logs = [log.parent for log in folder.rglob("_delta_log")]
    [table] = [path for path in logs if not path.name.startswith("_")]
    return table


def _sums(table: Path, *columns: str) -> tuple[int | Decimal, ...]:
    """Return the number of a table's rows, and the sum of each column."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in columns)
    [row] = lake_scan.query(table, f"SELECT count(*) AS rows, {sums}").to_pylist()
    return tuple(row.values())
