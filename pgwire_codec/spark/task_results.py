"""Results and rows that go through Spark as binaries: pickles, and compressed Arrow."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.spark.reduction.map_in_arrow import Batches, map_in_arrow
from pgwire_codec.spark.task_process import begin_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def result_batch(result: object) -> pa.RecordBatch:
    """Return the row of a result: ``data`` binary."""
    return pa.record_batch({"data": [pickle.dumps(result)]})


def results_of(rows: DataFrame, function: Callable[[Batches], Batches]) -> list[Any]:
    """Return the results that a function yields for rows in Spark's tasks."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    def run(batches: Batches) -> Batches:
        begin_task()
        return function(batches)

    schema = StructType([StructField("data", BinaryType())])
    return [pickle.loads(data) for (data,) in map_in_arrow(rows, run, schema).collect()]


def events_column(events: pa.RecordBatch) -> pa.BinaryArray:
    """Return a column of one row, which has compressed events."""
    return pa.array([compressed(events)], pa.binary())


def read_events(data: pa.BinaryScalar) -> pa.RecordBatch:
    """Return the events in a row of :func:`events_column`."""
    return decompressed(data.as_buffer())


def compressed(events: pa.RecordBatch) -> bytes:
    """Return events as compressed Arrow IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema, options=_COMPRESSED) as stream:
        stream.write(events)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decompressed(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Return the events of :func:`compressed`."""
    return pa.ipc.open_stream(data).read_next_batch()
