"""Steps of the demo: server, replication slot, log, ``format("pgoutput")``, Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgwire_codec.capture import LogCapture, SegmentOptions, Status
from pgwire_codec.capture.connection.connect import connect, current_lsn
from pgwire_codec.capture.options import Streaming
from pgwire_codec.demo.shop import KEYS, PUBLICATION, SCHEMA, SLOT, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEGMENT_BYTES: Final = 256 << 10  # several segments, so that Spark has several partitions
_REPORT_SECONDS: Final = 0.1


def open_capture(dsn: str, log: Path) -> LogCapture:
    """Return the shop's capture into a log, with every option that the server supports.

    Its first run creates publication and slot; the log begins there.
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
    return LogCapture(
        dsn,
        log,
        slot=SLOT,
        publication=PUBLICATION,
        create_slot=True,
        create_publication=list(TABLES),
        streaming=streaming,
        two_phase=can_prepare and major >= 15,
        segments=SegmentOptions(segment_bytes=_SEGMENT_BYTES),
    )


def capture_until_now(
    dsn: str, log: Path, report: Callable[[Status], None] = lambda status: None
) -> Status:
    """Capture the slot's present changes into a new or existing log.

    ``report`` is called with the capture's status.
    """
    capture = open_capture(dsn, log)
    with ThreadPoolExecutor(1, "capture") as executor:
        running = executor.submit(capture.run, until_lsn=current_lsn(dsn))
        try:
            while not wait([running], _REPORT_SECONDS).done:
                report(capture.status)
        finally:
            capture.stop()  # if an exception, such as of Ctrl-C, ended the wait
    status = running.result()
    report(status)
    return status


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """Start a quiet Spark on two cores of this machine, which listens on loopback only."""
    from pgwire_codec.spark import local  # which needs Spark

    settings = {
        "spark.app.name": "pgwire_codec demo",
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        # Not the default INT96, which has no time zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    with local.local_spark(settings) as session:
        yield session


def decode_tables(
    spark: SparkSession, log: Path, tables: Path, report: Callable[[str], None]
) -> None:
    """Decode the log on Spark into one Parquet data set of changes for each table."""
    for table in KEYS:
        changes = (
            spark.read.format("pgoutput")
            .option("path", str(log))
            .option("table", f"{SCHEMA}.{table}")
            .load()
        )
        changes.write.parquet(str(tables / table))
        report(table)
