"""Offsets of streams: micro-batches of a table that changes only; without a Spark session."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from tests.support import build, spark_logs
from tests.support.build import column
from tests.support.logs import append

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pyspark.sql.datasource import CaseInsensitiveDict

from pgwire_codec.log import ipc_file, sealed_segments
from pgwire_codec.spark import PgoutputDataSource
from pgwire_codec.spark.stream_reader import PgoutputStreamReader

Offset = dict[str, Any]

ID = column("id", "int4", key=True)


def insert(oid: int, name: str, lsn: int) -> list[bytes]:
    relation = build.relation(oid, ID, name=name)
    return build.wire(build.transaction(relation, build.insert(oid, str(lsn)), lsn=lsn))


class Stream:
    """A stream's reader as Spark uses it."""

    def __init__(self, path: Path, **options: str) -> None:
        given = CaseInsensitiveDict({"path": str(path)} | options)
        source = PgoutputDataSource(given)
        self._reader = source.streamReader(source.schema())
        self.offset: Offset = self._reader.initialOffset()

    def latest(self) -> Offset:
        if type(self._reader) is PgoutputStreamReader:  # Spark 4.0 and 4.1
            return self._reader.latestOffset()
        return self._reader.latestOffset(self.offset, self._reader.getDefaultReadLimit())

    def batch(self) -> list[int] | None:
        """Return the IDs of rows in the next micro-batch, or None without one."""
        end = self.latest()
        if end == self.offset:
            return None
        partitions = self.plan(end)
        self.offset = end
        return self.read(partitions)

    def plan(self, end: Offset) -> list[Any]:
        """Return the partitions of the next micro-batch, as a task receives them."""
        planned: list[Any] = pickle.loads(pickle.dumps(self._reader.partitions(self.offset, end)))
        return planned

    def read(self, partitions: list[Any]) -> list[int]:
        """Return the IDs of rows in a micro-batch."""
        batches = [batch for each in partitions for batch in self._reader.read(each)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        return [row.get("id") for row in rows]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    spark_logs.write(tmp_path / "log", insert(1, "a", 10) + insert(2, "b", 20))
    return tmp_path / "log"


@pytest.fixture(params=[{"table": "public.a"}, {"relationOid": "1"}], ids=["table", "OID"])
def stream(request: pytest.FixtureRequest, folder: Path) -> Stream:
    return Stream(folder, **request.param)


def grow(writer: log.LogWriter, messages: list[bytes]) -> None:
    """Add messages to the growing segment."""
    append(writer, messages)
    writer.flush()


def test_no_micro_batch_when_other_tables_change(folder: Path, stream: Stream) -> None:
    assert stream.batch() == [10]
    assert stream.batch() is None
    with log.LogWriter(folder, spark_logs.source()) as writer:
        for lsn in (30, 40, 50):
            grow(writer, insert(2, "b", lsn))
            assert stream.batch() is None
        grow(writer, insert(1, "a", 60))
        assert stream.batch() == [60]
        grow(writer, insert(2, "b", 70))
        assert stream.batch() is None
        grow(writer, insert(1, "a", 80) + insert(2, "b", 90))
        assert stream.batch() == [80]


def test_a_transaction_that_was_open(folder: Path, stream: Stream) -> None:
    """Its changes are before a place up to which the log was searched, its commit after it."""
    assert stream.batch() == [10]
    streamed = build.streamed(
        build.relation(1, ID, name="a", xid=9), build.insert(1, "40", xid=9), xid=9
    )
    plain = insert(1, "a", 50)
    with log.LogWriter(folder, spark_logs.source()) as writer:
        grow(writer, build.wire(streamed) + insert(2, "b", 30))
        assert stream.batch() == []
        grow(writer, insert(2, "b", 35))
        assert stream.batch() == []
        grow(writer, build.wire([pgc.StreamCommit(9, 0, 40, 41, 0)]))
        assert stream.batch() == [40]
        grow(writer, plain[:3])
        assert stream.batch() is None
        grow(writer, plain[3:])
        assert stream.batch() == [50]
        grow(writer, insert(2, "b", 60))
        assert stream.batch() is None


def test_a_table_that_is_renamed(folder: Path) -> None:
    stream = Stream(folder, table="public.a")
    assert stream.batch() == [10]
    spark_logs.write(folder, insert(2, "b", 30))
    assert stream.batch() is None
    spark_logs.write(folder, insert(1, "z", 40))
    with pytest.raises(log.LogError, match=r"relation 1 had the name public\.a .*public\.z now"):
        stream.batch()
    assert stream.offset["lsn"] == "0/14"


def seal(folder: Path) -> None:
    with log.LogWriter(folder, spark_logs.source()) as writer:
        writer.seal()


def test_a_log_that_is_pruned(folder: Path) -> None:
    """A segment of other tables makes a micro-batch, so that the offset moves."""
    stream = Stream(folder, table="public.a")
    assert stream.batch() == [10]
    lsn = 20
    for _ in range(4):
        lsn += 10
        spark_logs.write(folder, insert(2, "b", lsn))
        seal(folder)
        while (rows := stream.batch()) is not None:
            assert rows == []
        log.prune(folder, int(stream.offset["lsn"][2:], 16))
    assert log.Log(folder).begin.lsn > 20
    spark_logs.write(folder, insert(1, "a", 100))
    assert stream.batch() == [100]


def test_a_log_that_is_compacted(folder: Path) -> None:
    """A planned micro-batch, and offsets of a checkpoint, are read from the joined segment."""
    stream, planned = (Stream(folder, table="public.a") for _ in range(2))
    assert stream.batch() == planned.batch() == [10]
    for lsn in (30, 40, 50):
        spark_logs.write(folder, insert(1, "a", lsn))
        seal(folder)
    partitions = planned.plan(planned.latest())
    checkpoint = stream.offset
    assert len(log.compact(folder)) == len(log.Log(folder)) == 1
    assert planned.read(partitions) == [30, 40, 50]
    assert stream.batch() == [30, 40, 50]
    assert stream.batch() is None
    restarted = Stream(folder, table="public.a")
    restarted.offset = checkpoint
    assert restarted.batch() == [30, 40, 50]
    assert restarted.offset == stream.offset == planned.latest()
    spark_logs.write(folder, insert(2, "b", 55))
    assert stream.batch() is None
    spark_logs.write(folder, insert(1, "a", 60))
    assert stream.batch() == [60]


def test_only_new_segments_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for lsn in range(100, 2100, 100):
        spark_logs.write(folder, insert(1, "a", lsn))
        seal(folder)
    stream = Stream(folder, table="public.a")
    assert stream.batch() == [10, *range(100, 2100, 100)]
    read: list[str] = []
    original = sealed_segments.read_sidecar

    def counting(store: Any, name: str, manifest: Any) -> Any:
        read.append(name)
        return original(store, name, manifest)

    monkeypatch.setattr(sealed_segments, "read_sidecar", counting)
    assert stream.batch() is None
    assert not read
    for number in range(1, 4):
        spark_logs.write(folder, insert(1, "a", 5000 + number))
        seal(folder)
        read.clear()  # by the writers, to continue the log
        assert stream.batch() == [5000 + number]
        assert len(read) == 1


@pytest.mark.parametrize("options", [{}, {"table": "public.a"}], ids=str)
def test_a_micro_batch_of_small_flushes_reads_what_is_new(
    folder: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(folder, **options)
    stream.batch()
    read, batches = ipc_file._stored_batches, 0

    def count(*arguments: Any) -> Any:
        nonlocal batches
        for batch in read(*arguments):
            batches += 1
            yield batch

    monkeypatch.setattr(ipc_file, "_stored_batches", count)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    with log.LogWriter(folder, spark_logs.source()) as writer:
        for number in range(1, 61):
            for flush in range(5):
                grow(writer, insert(1, "a", 100 * number + flush))
            if number % 25 == 0:
                writer.seal()
            batches = 0
            rows = stream.batch()
            assert rows is not None
            assert batches <= 2 * 5  # described once, and decoded once
            if "table" in options:
                assert rows == [100 * number + flush for flush in range(5)]
