"""SparkRunner: gives tasks to Spark's executors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from pgwire_codec.errors import OptionError
from pgwire_codec.lake.runners.runner import BucketKey, Merge, Piece
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.spark.failures import failure_of
from pgwire_codec.spark.tasks import begin_task, compressed, decompressed

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F")

#: Bytes that cost less than a job if this process works on them.
_SMALL_BYTES: Final = 64 << 20

#: Bytes of the work of a task that merges, and the most such tasks.
_TASK_BYTES: Final = 32 << 20
_MOST_TASKS: Final = 4096

_FACTS: Final = BucketKey(0, -1)  # in place of the key of a piece, for facts


class SparkRunner:
    """Runs tasks on Spark's executors, and small ones in this process. See :class:`Runner`.

    The JVM sees descriptions of work, results, and compressed Arrow, as bytes. So RDDs have them:
    a query would be planned and compiled first.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._threads = Threads()

    def map(self, task: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
        if size < _SMALL_BYTES:
            return self._threads.map(task, items, size)

        def run(item: bytes) -> R:
            begin_task()
            return task(pickle.loads(item))

        return _collect(self._tasks(items).map(run))

    def exchange(
        self,
        split: Callable[[T], Iterable[Piece | F]],
        items: Sequence[T],
        merge: Merge[R],
        size: int,
    ) -> tuple[list[F], list[R]]:
        if size < _SMALL_BYTES:
            return self._threads.exchange(split, items, merge, size)

        def run(item: bytes) -> Iterator[tuple[BucketKey, Any]]:
            begin_task()
            for result in split(pickle.loads(item)):
                if isinstance(result, Piece):
                    yield result.key, compressed(result.rows)
                else:
                    yield _FACTS, result

        def gather(pairs: Iterable[tuple[BucketKey, Any]]) -> Iterator[tuple[bool, Any]]:
            by_key: dict[BucketKey, list[bytes]] = {}
            for key, data in pairs:
                if key == _FACTS:
                    yield True, data
                else:
                    by_key.setdefault(key, []).append(data)
            for key in sorted(by_key):
                pieces: list[pa.RecordBatch] = [*map(decompressed, by_key.pop(key))]
                yield False, merge(key, pieces)

        count = min(-(-size // _TASK_BYTES), _MOST_TASKS)
        by_bucket = self._tasks(items).flatMap(run).partitionBy(count, lambda key: sum(key))
        results = _collect(by_bucket.mapPartitions(gather))
        facts = [result for is_fact, result in results if is_fact]
        return facts, [result for is_fact, result in results if not is_fact]

    def _tasks(self, items: Sequence[T]) -> RDD[bytes]:
        """Return items, each of which is a task. They are pickled, faster than Spark does it."""
        return self._context.parallelize(map(pickle.dumps, items), max(len(items), 1))


def spark_runner(spark: SparkSession) -> SparkRunner:
    """Return the runner of a session. Raises ``OptionError`` for one of Spark Connect."""
    if not hasattr(spark, "_jsparkSession"):
        raise OptionError(
            "tasks cannot be given to the executors by a session of Spark Connect",
            hint="Use a session in the driver. Or do it without Spark: pgwire_codec.lake.",
        )
    return SparkRunner(spark.sparkContext)


def _collect(rdd: RDD[R]) -> list[R]:
    """Return the results of tasks. Raises the error of this package for one of Spark."""
    try:
        return rdd.collect()
    except Exception as error:  # of Java
        raise failure_of(str(error)) from error
