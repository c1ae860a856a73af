"""SparkRunner: gives a mirror's tasks to Spark's executors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa

from pgwire_codec.lake.runners.runner import Merge, Split
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.tasks import BucketKey, ChangeFacts, MergeOutcome, Piece
from pgwire_codec.log.partition import LogPartition
from pgwire_codec.spark.failures import failure_of
from pgwire_codec.spark.task_results import events_column, read_events, result_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

#: Bytes that cost less than a job if this process works on them.
_SMALL_BYTES: Final = 64 << 20

#: Bytes of messages of a task that merges, and the most such tasks.
_TASK_BYTES: Final = 32 << 20
_MOST_TASKS: Final = 4096

#: Rows from one task to another: changes, or facts for the driver, whose bucket is -1.
_PIECES: Final = pa.schema({"relation_oid": pa.int64(), "bucket": pa.int64(), "data": pa.binary()})
_RESULTS: Final = pa.schema({"data": pa.binary()})
_FACTS: Final = -1


class SparkRunner:
    """Runs tasks on Spark's executors, and small ones in this process. See :class:`Runner`.

    The JVM sees descriptions of work, results, and compressed Arrow as binaries, never rows.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._threads = Threads()

    def map(self, task: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
        if size < _SMALL_BYTES:
            return self._threads.map(task, items, size)

        pickled = _Pickled(items)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                yield result_batch((number, task(pickled[number])))

        results: dict[int, R] = dict(_collect(self._over(len(items), run, _RESULTS)))
        return [results[number] for number in range(len(items))]

    def exchange(
        self, split: Split, partitions: Sequence[LogPartition], merge: Merge, message_bytes: int
    ) -> tuple[list[ChangeFacts], list[MergeOutcome]]:
        if message_bytes < _SMALL_BYTES:
            return self._threads.exchange(split, partitions, merge, message_bytes)

        pickled = _Pickled(partitions)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                for result in split(pickled[number]):
                    yield _row(result)

        def gather(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
            oid, bucket = key[0].as_py(), key[1].as_py()
            if bucket == _FACTS:
                return rows.select(["data"])
            outcome = merge(BucketKey(oid, bucket), [*map(read_events, rows["data"])])
            return pa.Table.from_batches([result_batch(outcome)])

        rows = self._over(len(partitions), run, _PIECES)
        count = min(-(-message_bytes // _TASK_BYTES), _MOST_TASKS)
        keyed = rows.repartition(count, "relation_oid", "bucket").groupBy("relation_oid", "bucket")
        results: list[Any] = list(_collect(keyed.applyInArrow(gather, _ddl(_RESULTS))))
        facts = [each for each in results if isinstance(each, ChangeFacts)]
        return facts, [each for each in results if isinstance(each, MergeOutcome)]

    def _over(self, count: int, function: Any, schema: pa.Schema) -> DataFrame:
        """Return what a function returns for numbers, each of which is a task."""
        return self._spark.range(0, count, 1, max(count, 1)).mapInArrow(function, _ddl(schema))


class _Pickled(Generic[T]):
    """Items of which each task unpickles its own."""

    def __init__(self, items: Sequence[T]) -> None:
        self._data = [pickle.dumps(item) for item in items]

    def __getitem__(self, number: int) -> T:
        item: T = pickle.loads(self._data[number])
        return item


def _ddl(schema: pa.Schema) -> str:
    names = {pa.int64(): "bigint", pa.binary(): "binary"}
    return ", ".join(f"{column.name} {names[column.type]}" for column in schema)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _row(result: Piece | ChangeFacts) -> pa.RecordBatch:
    if isinstance(result, ChangeFacts):
        row: dict[str, Any] = {"relation_oid": result.relation_oid, "bucket": _FACTS}
        row["data"] = pickle.dumps(result)
        return pa.RecordBatch.from_pylist([row], _PIECES)
    key, column = result.key, events_column(result.events)
    return pa.record_batch([[key.relation_oid], [key.bucket], column], _PIECES)


def _collect(rows: DataFrame) -> Iterator[Any]:
    """Yield the results of tasks. Raises the error of this package for one of Spark."""
    try:
        found = rows.toArrow()
    except Exception as error:  # of Java, or of Spark Connect
        raise failure_of(str(error)) from error
    for data in found.column("data"):
        yield pickle.loads(data.as_buffer())
