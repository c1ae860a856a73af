"""format("pgoutput") gives the rows of the serial decoder, in batches and as a stream."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec import log
from pgwire_codec.protocol.lsn import format_lsn
from tests.support import build, corpus, spark_logs
from tests.support.build import column
from tests.support.histories import History, to_messages
from tests.support.spark_logs import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

STREAMS = corpus.capture("streams.pg18.v4-parallel-2pc")


@pytest.fixture(scope="module", autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")


def load(reader: Any, path: str, **options: str) -> DataFrame:
    return reader.format("pgoutput").options(**options).load(path)


def rows_of(df: DataFrame) -> list[Row]:
    rows: list[Row] = df.toArrow().to_pylist(maps_as_pydicts="strict")
    return rows


class Collected:
    """A sink that keeps what each micro-batch gave."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.batches.append(rows_of(batch))

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def run(self, stream: DataFrame, checkpoint: Path) -> Any:
        """Read all that is there; give the last progress of the source."""
        query = (
            stream.writeStream.foreachBatch(self)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query.lastProgress.sources[0]


#: Of every kind; test_rows.py reads all captures, without a session around the source.
GROUP = [
    corpus.capture(name)
    for name in (
        "dml.pg12.v1-text",
        "immediate.pg16.v4-parallel-2pc",
        "settings.pg18.german",
        "streams.pg18.v2-stream-binary",
        "traps.pg15.v3-2pc",
        "types.pg18.v1-binary",
    )
]


def union(reader: Any, folder: Path) -> DataFrame:
    """The captures read by one query: to start one takes longer than to read it."""
    from pyspark.sql import DataFrame, functions

    each = [
        load(reader, spark_logs.to_log(capture, folder, part_bytes=16 << 10)).withColumn(
            "capture", functions.lit(capture.name)
        )
        for capture in GROUP
    ]
    return functools.reduce(DataFrame.union, each)


def compare(rows: list[Row]) -> None:
    by_capture: dict[str, list[Row]] = {capture.name: [] for capture in GROUP}
    for row in rows:
        by_capture[row.pop("capture")].append(row)
    for capture in GROUP:
        found = sorted(by_capture[capture.name], key=spark_logs.in_order)
        assert found == spark_logs.serial_changes(capture), capture.name


def test_batch_of_captures(spark: SparkSession, tmp_path: Path) -> None:
    compare(rows_of(union(spark.read, tmp_path)))


def test_stream_of_captures(spark: SparkSession, tmp_path: Path) -> None:
    collected = Collected()
    collected.run(union(spark.readStream, tmp_path / "logs"), tmp_path / "checkpoint")
    compare(collected.rows)


@pytest.mark.parametrize("size", ["1", "20k", "1g"])
def test_partition_sizes(spark: SparkSession, tmp_path: Path, size: str) -> None:
    """From a message a partition to everything in one; a table in its own types."""
    if size == "1":
        capture = corpus.capture("traps.pg18.v4-parallel-2pc")
        df = load(
            spark.read, spark_logs.to_log(capture, tmp_path, part_bytes=1), maxPartitionBytes="1"
        )
        found = sorted(rows_of(df), key=spark_logs.in_order)
        assert found == spark_logs.serial_changes(capture)
        return
    path = spark_logs.to_log(STREAMS, tmp_path, part_bytes=10_000)
    df = load(spark.read, path, table="public.acct", unrepresentable="null", maxPartitionBytes=size)
    # Parts before the first commit of the log are partitions of their own.
    assert (df.rdd.getNumPartitions() > 20) == (size == "20k")
    rows = sorted(rows_of(df), key=spark_logs.place)
    assert rows == spark_logs.serial_rows(STREAMS, "public.acct", rows[0], unrepresentable="null")


def test_options_that_are_wrong(spark: SparkSession, tmp_path: Path) -> None:
    path = spark_logs.to_log(corpus.capture("dml.pg18.v1-text"), tmp_path)
    with pytest.raises(Exception, match="has no option tabel — hint: Its options are path, table"):
        load(spark.read, path, tabel="x")
    with pytest.raises(Exception, match=r"no table 'public\.nope' — hint: Their tables"):
        load(spark.read, path, table="public.nope")
    with pytest.raises(Exception, match="a stream has no endingLsn"):
        Collected().run(load(spark.readStream, path, endingLsn="0/1"), tmp_path / "checkpoint")
    times = {"startingTimestamp": "2026-01-31T12:00:00Z"}
    with pytest.raises(Exception, match="a stream has no startingTimestamp and endingTimestamp"):
        Collected().run(load(spark.readStream, path, **times), tmp_path / "checkpoint")


def test_spark_says_what_does_not_decode(spark: SparkSession, tmp_path: Path) -> None:
    messages = build.wire(build.transaction(build.T, build.insert(1, "x", "a", "b")))
    path = spark_logs.write(tmp_path / "log", messages)
    with pytest.raises(Exception, match=r"bad_value: message 2, .*column id .*commit LSN 0/64"):
        load(spark.read, path, table="public.t").collect()
    assert load(spark.read, path, table="public.t", onError="skip").count() == 0


def inserts(*keys: int, lsn: int) -> list[bytes]:
    rows = [build.insert(1, str(key), "v", None) for key in keys]
    return build.wire(build.transaction(build.T, *rows, lsn=lsn))


def test_a_growing_log(spark: SparkSession, tmp_path: Path) -> None:
    """Each run gives what came since; a new stream begins after startingLsn."""
    path = spark_logs.write(tmp_path / "log", inserts(1, 2, lsn=100))
    stream = load(spark.readStream, path, table="public.t")
    collected = Collected()
    collected.run(stream, tmp_path / "checkpoint")
    assert [row["id"] for row in collected.rows] == [1, 2]
    # Without new messages, or with an open transaction, no batch is made.
    spark_logs.write(tmp_path / "log", inserts(3, lsn=200)[:-1])
    collected.run(stream, tmp_path / "checkpoint")
    # Spark 4.0 and 4.1 do not pass the checkpoint's offset, so there can be an empty batch.
    assert collected.batches[1:] in ([[]] if spark_logs.HAS_LIMITS else [[], [[]]])
    spark_logs.write(tmp_path / "log", [*inserts(3, lsn=200), *inserts(4, lsn=300)])
    source = collected.run(stream, tmp_path / "checkpoint")
    assert [row["id"] for row in collected.rows] == [1, 2, 3, 4]
    assert repr(format_lsn(300)) in source.endOffset.replace('"', "'")  # a dict's repr in 4.0
    if spark_logs.HAS_LIMITS:
        assert json.loads(source.latestOffset)["lsn"] == format_lsn(300)
    assert log.SparkCheckpoint(tmp_path / "checkpoint").read_lsn() == 300
    later = Collected()
    later.run(load(spark.readStream, path, table="public.t", startingLsn="0/64"), tmp_path / "c2")
    assert [row["id"] for row in later.rows] == [3, 4]


def test_a_limit_that_this_spark_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    if spark_logs.HAS_LIMITS:
        pytest.skip("Spark 4.2 and later have it")
    path = spark_logs.write(tmp_path / "log", inserts(1, lsn=100))
    stream = load(spark.readStream, path, table="public.t", maxBytesPerTrigger="2k")
    with pytest.raises(Exception, match=r"maxBytesPerTrigger needs Spark 4\.2, not 4\.[01]"):
        Collected().run(stream, tmp_path / "checkpoint")


@pytest.mark.skipif(not spark_logs.HAS_LIMITS, reason="Spark 4.2 and later have limits")
def test_micro_batches_of_a_size(spark: SparkSession, tmp_path: Path) -> None:
    """Streamed transactions come whole, when they commit, wherever the batches end."""
    history = History(1)
    for _ in range(60):
        history.transaction(1, 8)
    messages = to_messages(history.changes)
    path = spark_logs.write(tmp_path / "log", messages, part_bytes=200, flushes=20)
    collected = Collected()
    stream = load(spark.readStream, path, table="public.t", maxBytesPerTrigger="2k")
    collected.run(stream, tmp_path / "checkpoint")
    assert len(collected.batches) > 5
    assert all(collected.batches)
    places = [spark_logs.place(row) for row in collected.rows]
    assert sorted(places) == [(change[8], change[10]) for change in history.changes]
    ends = [max(row["_commit_lsn"] for row in batch) for batch in collected.batches]
    begins = [min(row["_commit_lsn"] for row in batch) for batch in collected.batches]
    assert all(end < begin for end, begin in zip(ends, begins[1:], strict=False))


def test_a_batch_that_failed_comes_again_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Also when the log has grown meanwhile."""
    path = spark_logs.write(tmp_path / "log", inserts(1, lsn=100))
    seen: list[list[int]] = []

    def fail(batch: DataFrame, batch_id: int) -> None:
        seen.append([row["id"] for row in batch.collect()])
        if len(seen) == 1:
            raise RuntimeError("the sink is down")

    # Spark 4.0 and 4.1 stop after the unfinished batch.
    for _ in range(2 if spark_logs.HAS_LIMITS else 3):
        query = (
            load(spark.readStream, path, table="public.t")
            .writeStream.foreachBatch(fail)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if not seen:
            with pytest.raises(Exception, match="the sink is down"):
                query.awaitTermination()
            spark_logs.write(tmp_path / "log", inserts(2, lsn=200))
        else:
            query.awaitTermination()
    assert seen == [[1], [1], [2]]


def test_no_micro_batch_when_other_tables_change(spark: SparkSession, tmp_path: Path) -> None:
    """Neither jobs nor progress, until the table changes."""
    folder = tmp_path / "log"
    path = spark_logs.write(folder, inserts(1, lsn=100))
    collected = Collected()
    query = (
        load(spark.readStream, path, table="public.t")
        .writeStream.foreachBatch(collected)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        other = build.relation(2, column("id", "int4", key=True), name="other")
        changes = build.transaction(other, build.insert(2, "1"), lsn=200)
        spark_logs.write(folder, build.wire(changes))
        query.processAllAvailable()
        assert [len(batch) for batch in collected.batches] == [1]
        spark_logs.write(folder, inserts(2, lsn=300))
        query.processAllAvailable()
    finally:
        query.stop()
    assert [[row["id"] for row in batch] for batch in collected.batches] == [[1], [2]]


def test_a_table_that_changes_under_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The query stops before anything of the new columns is lost; started again, it has them."""
    path = spark_logs.write(tmp_path / "log", inserts(1, lsn=100))
    collected = Collected()
    query = (
        load(spark.readStream, path, table="public.t")
        .writeStream.foreachBatch(collected)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    wider = build.relation(1, *build.T.columns, column("more"))
    changes = build.transaction(wider, build.insert(1, "2", "v", None, "new"), lsn=200)
    spark_logs.write(tmp_path / "log", build.wire(changes))
    with pytest.raises(
        Exception, match=r"public\.t has a new column more: .*hint: Start the query again"
    ):
        query.awaitTermination()
    collected.run(load(spark.readStream, path, table="public.t"), tmp_path / "checkpoint")
    assert [(row["id"], row.get("more")) for row in collected.rows] == [(1, None), (2, "new")]


def test_another_log_under_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    path = spark_logs.write(tmp_path / "log", inserts(1, lsn=300))
    done: list[int] = []

    def fail_once(batch: DataFrame, batch_id: int) -> None:
        done.append(batch.count())
        raise RuntimeError("fails, so that the batch is to come again")

    def run() -> None:
        query = (
            load(spark.readStream, path, table="public.t")
            .writeStream.foreachBatch(fail_once)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match="to come again"):
        run()
    (tmp_path / "log").rename(tmp_path / "away")
    spark_logs.write(tmp_path / "log", inserts(1, lsn=100))
    with pytest.raises(Exception, match=r"the checkpoint is at 0/12C, .* ends at 0/64"):
        run()
    assert done == [1]
