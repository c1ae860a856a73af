"""Steps of the demo: a capture into a log, and a mirror of it into a lakehouse, which both run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pgwire_codec.capture import LogCapture, SegmentOptions, Status
from pgwire_codec.capture.connection.connect import connect, current_lsn
from pgwire_codec.capture.options import Streaming
from pgwire_codec.comparing.comparison import compare
from pgwire_codec.demo.shop import PUBLICATION, SLOT, TABLES
from pgwire_codec.lake.mirroring import Mirror, mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgwire_codec.comparing.result import Comparison
    from pgwire_codec.lake.mirror_options import MirroredBatch

_SEGMENT_BYTES: Final = 256 << 10  # several segments, so that Spark has several partitions
_POLL_SECONDS: Final = 0.05

#: Settings for a small shop and a short life: Java's second compiler costs more than it saves.
SMALL: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.sql.shuffle.partitions": "2",
}


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


def capture_until_now(dsn: str, log: Path) -> Status:
    """Capture the slot's present changes into a new or existing log."""
    return open_capture(dsn, log).run(until_lsn="now")


@dataclass(frozen=True, slots=True)
class RunningCapture:
    """A capture that runs in a thread.

    Attributes
    ----------
    capture : LogCapture
    result : Future of Status
        Result of its run.
    """

    capture: LogCapture
    result: Future[Status]

    def wait_for(self, lsn: int) -> None:
        """Wait until the log has everything before an LSN; raise the error of a capture."""
        while (self.capture.status.confirmed_lsn or 0) < lsn:
            if self.result.done():
                self.result.result()
            time.sleep(_POLL_SECONDS)


@contextmanager
def capturing(dsn: str, log: Path) -> Iterator[RunningCapture]:
    """Capture the shop's changes into a log until the block ends."""
    capture = open_capture(dsn, log)
    with ThreadPoolExecutor(1, "capture") as executor:
        running = RunningCapture(capture, executor.submit(capture.run))
        try:
            yield running
        finally:
            capture.stop()
    running.result.result()


@contextmanager
def local_spark(settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Start a quiet Spark on two cores of this machine, which listens on loopback only."""
    from pgwire_codec.spark import local  # which needs Spark

    usual = {
        "spark.app.name": "pgwire_codec demo",
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
    }
    with local.local_spark(usual | dict(settings)) as session:
        yield session


@contextmanager
def mirroring(
    spark: SparkSession | None, log: Path, target: str, report: Callable[[MirroredBatch], None]
) -> Iterator[Mirror]:
    """Mirror the tables of a log into Delta until the block ends, by Spark or in this process."""
    if spark is None:
        made = mirror(log, target, report=report)
    else:
        from pgwire_codec import spark as on_spark

        made = on_spark.mirror(spark, log, target, report=report)
    running = made.start()
    try:
        yield running
    finally:
        running.stop()
        running.awaitTermination()


def compared(spark: SparkSession | None, log: Path, target: str, dsn: str) -> Comparison:
    """Compare the lake with the server."""
    if spark is None:
        return compare(log, target, dsn, publication=PUBLICATION)
    from pgwire_codec import spark as on_spark

    return on_spark.compare(spark, log, target, dsn, publication=PUBLICATION)


def catch_up(dsn: str, capture: RunningCapture, running: Mirror) -> None:
    """Wait until the lake has all that the server has committed; raise the error of a mirror."""
    capture.wait_for(current_lsn(dsn))
    running.processAllAvailable()
