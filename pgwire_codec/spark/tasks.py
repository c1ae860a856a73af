"""Functions that Spark's tasks run on rows in Arrow, and what goes through Spark as binaries."""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zipimport import zipimporter

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Batches: TypeAlias = "Iterator[pa.RecordBatch]"

_TASKS: Final = itertools.count()

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def begin_task() -> None:
    """Spare later tasks of this process most of what Spark does around each: 0.2 s of CPU time.

    Before a task, Spark has the directory of each zip file with modules read again, such as its
    own. After it, garbage is collected among all that is imported.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):  # whose file does not change
            vars(finder)["invalidate_caches"] = _nothing
    if next(_TASKS) == 1:  # the first task imports what it needs
        gc.freeze()


def _nothing() -> None:
    pass


def results_of(rows: DataFrame, function: Callable[[Batches], Batches]) -> list[Any]:
    """Return the results that a function yields for rows, as batches of :func:`result_batch`."""
    return [pickle.loads(data) for (data,) in map_in_arrow(rows, function, "data binary").collect()]


def result_batch(result: object) -> pa.RecordBatch:
    """Return the row of a result: ``data`` binary."""
    return pa.record_batch({"data": [pickle.dumps(result)]})


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


def map_in_arrow(
    rows: DataFrame, function: Callable[[Batches], Batches], schema: StructType | str
) -> DataFrame:
    """Return what ``rows.mapInArrow(function, schema)`` does, in time linear in the rows.

    Spark measures the size of an Arrow batch after each row. For a list, a column or a field of a
    struct, it then takes a step for each null since the last list (``ListVector.setValueCount`` of
    Arrow's Java), so nulls alone take the square of the batch's rows. Here, such a list is empty on
    its way.
    """
    from pyspark.sql.functions import col
    from pyspark.sql.types import ArrayType, StructType

    names = rows.columns
    lists: list[int] = []
    structs: dict[int, tuple[list[str], list[int]]] = {}
    for place, field in enumerate(rows.schema):
        kind = field.dataType
        if isinstance(kind, ArrayType) and field.nullable:
            lists.append(place)
        elif isinstance(kind, StructType):
            inner = [n for n, each in enumerate(kind) if isinstance(each.dataType, ArrayType)]
            if inner:
                structs[place] = kind.names, inner

    def run(batches: Batches) -> Batches:
        begin_task()
        if lists or structs:
            batches = (_with_nulls(batch, names, lists, structs) for batch in batches)
        return function(batches)

    # Only the lists are expressions: each one takes the driver milliseconds.
    sent: dict[str, Column] = {}
    added: dict[str, Column] = {}
    for place in lists:
        name = f"c{place}"
        sent[name], added[f"null{place}"] = _sent(col(name))
    for place, (_, inner) in structs.items():
        name = f"c{place}"
        struct = col(name).cast(_numbered(rows.schema[place].dataType))
        for number in inner:
            value, is_null = _sent(struct[f"f{number}"])
            added |= {f"list{place}_{number}": value, f"null{place}_{number}": is_null}
        sent[name] = _without(struct, inner)
    if sent:
        numbered = rows.toDF(*(f"c{place}" for place in range(len(names))))
        rows = numbered.withColumns(sent | added)
    return rows.mapInArrow(run, schema)  # type: ignore[arg-type]


def _sent(value: Column) -> tuple[Column, Column]:
    """Return a list that is never null, and whether it is."""
    from pyspark.sql.functions import array, coalesce

    return coalesce(value, array()), value.isNull()


def _numbered(kind: Any) -> StructType:
    """Return the type of a struct with the fields f0, f1, …, of which no two names are alike."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f"f{n}", field.dataType) for n, field in enumerate(kind)])


def _without(struct: Column, inner: Sequence[int]) -> Column:
    """Return a struct with a constant in place of some fields."""
    from pyspark.sql.functions import lit

    for number in inner:
        struct = struct.withField(f"f{number}", lit(False))
    return struct


def _with_nulls(
    batch: pa.RecordBatch,
    names: list[str],
    lists: Sequence[int],
    structs: Mapping[int, tuple[Sequence[str], Sequence[int]]],
) -> pa.RecordBatch:
    """Return a batch with its names, and with the lists that are null by its last columns."""
    columns, added = batch.columns[: len(names)], iter(batch.columns[len(names) :])
    for place in lists:
        columns[place] = _nulled(columns[place], next(added))
    for place, (fields, inner) in structs.items():
        struct = columns[place]
        values = [struct.field(number) for number in range(len(fields))]
        for number in inner:
            values[number] = _nulled(next(added), next(added))
        columns[place] = pa.StructArray.from_arrays(values, names=fields, mask=struct.is_null())
    return pa.RecordBatch.from_arrays(columns, names)


def _nulled(values: pa.Array, is_null: pa.Array) -> pa.Array:
    return (
        pc.if_else(is_null, pa.scalar(None, values.type), values) if is_null.true_count else values
    )
