"""The demo's way of the data: server, replication slot, messages in Parquet, tables in Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec.capture import Capture
from pgwire_codec.capture.connect import connect
from pgwire_codec.capture.options import Streaming
from pgwire_codec.demo.shop import KEYS, PUBLICATION, SCHEMA, SLOT, TABLES
from pgwire_codec.spark import plan_changes
from pgwire_codec.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows of a Parquet file of messages at the least, but for the last.
_SMALLEST_FILE = 100


def open_capture(dsn: str) -> Capture:
    """Give the capture of the shop, with all that the server can do; it makes slot and publication.

    Entering it is what connects.
    """
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT current_setting('max_prepared_transactions')::int > 0")
        can_prepare = bool(cursor.fetchone()[0])
        major = connection.server_version // 10_000
    finally:
        connection.close()
    streaming: Streaming = "parallel" if major >= 16 else "on" if major >= 14 else "off"
    return Capture(
        dsn,
        slot=SLOT,
        publication=PUBLICATION,
        create_slot=True,
        create_publication=list(TABLES),
        streaming=streaming,
        two_phase=can_prepare and major >= 15,
    )


def write_messages(dsn: str, folder: Path, files: int, report: Callable[[int, int], None]) -> None:
    """Capture what is in the slot into Parquet files, and confirm it.

    ``report`` is told how many messages and bytes came so far.
    """
    folder.mkdir(parents=True)
    batches: list[pa.RecordBatch] = []
    messages = size = confirm = 0
    with open_capture(dsn) as capture:
        for batch in capture.batches(until_lsn=capture.current_lsn()):
            batches.append(batch.to_arrow())
            messages, size = messages + len(batch), size + batch.nbytes
            confirm = batch.confirm_lsn
            report(messages, size)
        table = pa.Table.from_batches(batches)
        rows = max(_SMALLEST_FILE, -(-len(table) // files))
        for number, start in enumerate(range(0, len(table), rows)):
            path = folder / f"messages-{number:05}.parquet"
            pq.write_table(table.slice(start, rows), path)
        capture.confirm(confirm)


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """A quiet Spark on two cores of this machine, which listens on loopback only."""
    import os

    from pyspark.sql import SparkSession

    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pgwire_codec demo")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        # Not the INT96 of old, which has no time zone.
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        # Each file of messages is a partition.
        .config("spark.sql.files.maxPartitionBytes", "64m")
        .config("spark.sql.files.openCostInBytes", "64m")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def decode_tables(
    spark: SparkSession, messages: Path, tables: Path, report: Callable[[str], None]
) -> None:
    """Decode the messages on Spark into one Parquet data set of changes a table."""
    log = spark.read.parquet(str(messages))
    planned = plan_changes(log, lsn="lsn", before="key")
    for table in KEYS:
        planned.decode(f"{SCHEMA}.{table}").write.parquet(str(tables / table))
        report(table)
