"""Results and changes that go through Spark as binaries: pickles, and compressed Arrow."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.spark.reduction.map_in_arrow import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def result_batch(result: object) -> pa.RecordBatch:
    """Return the row of a result: ``data`` binary."""
    return pa.record_batch({"data": [pickle.dumps(result)]})


def results_of(rows: DataFrame, function: Callable[[Batches], Batches]) -> list[Any]:
    """Return the results that a function yields for rows in Spark's tasks."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField("data", BinaryType())])
    return [pickle.loads(data) for (data,) in map_in_arrow(rows, function, schema).collect()]


def events_column(events: pa.RecordBatch) -> pa.BinaryArray:
    """Return a column of one row, which has compressed events."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema, options=_COMPRESSED) as stream:
        stream.write(events)
    data = sink.getvalue()
    offsets = pa.array([0, data.size], pa.int32()).buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, offsets, data])


def read_events(data: pa.BinaryScalar) -> pa.RecordBatch:
    """Return the events in a row of :func:`events_column`."""
    return pa.ipc.open_stream(data.as_buffer()).read_next_batch()
