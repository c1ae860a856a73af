"""Rows of a table without a key: equal rows are counted.

A change adds a row, removes one, or, as an update, does both. Changes are sorted by row, the newest
first, and a row that was removed is the newest of its equals that was added before. So it is enough
to keep the number of removals whose rows are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.spark.reduction.change_columns import ChangeColumns
from pgwire_codec.spark.reduction.comparison import Mask, differs
from pgwire_codec.spark.reduction.net_changes import lasting_changes
from pgwire_codec.spark.reduction.unsent_values import missing_values, with_old_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HASH: Final = "row_hash"


def row_changes(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the rows that the :func:`lasting_changes` add and remove on balance.

    Its columns: ``c0``, ``c1``, … the row; the metadata of the change that added it; ``removed``
    boolean, for rows that were there before these changes; ``count`` long, how many such rows were
    removed, or 1 for a row that was added.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType, LongType, StructField, StructType

    numbered = lasting_changes(changes)
    kinds = {field.name: field.dataType for field in numbered.schema}
    names = [*columns.numbers, *columns.row_metadata]
    fields = [StructField(name, kinds[name]) for name in names]
    fields.append(StructField("removed", BooleanType()))
    counted = [*fields, StructField("count", LongType())]
    events = numbered.mapInArrow(_split(columns), StructType(fields))
    exact = {
        name: functions.col(name).cast(_comparable(kinds[name])).alias(f"exact_{name}")
        for name in columns.numbers
        if kinds[name] != _comparable(kinds[name])
    }
    compared = [f"exact_{name}" if name in exact else name for name in columns.numbers]
    return (
        events.select("*", *exact.values())
        .withColumn(_HASH, functions.xxhash64(*compared))
        .repartition(_HASH)
        .sortWithinPartitions(
            _HASH,
            *compared,
            functions.col("_commit_lsn").desc(),
            functions.col("_seq").desc(),
            "removed",
        )
        .mapInArrow(_count(compared, names), StructType(counted))
    )


def _split(
    columns: ChangeColumns,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return lambda batches: (split_updates(batch, columns) for batch in batches)


def split_updates(batch: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return the rows that numbered changes add, and those that they remove: an update does both.

    Raises ``ValueError`` for a change without its whole old row.
    """
    data = dict(zip(batch.schema.names, batch.columns, strict=True))
    op = data["_op"].to_numpy(zero_copy_only=False)
    before = data.get("_before")
    if not set(columns.before) >= set(columns.table):
        before = None
    if before is None and np.isin(op, ("U", "D")).any():
        raise _no_old_row("an update or delete")
    if before is not None and (_mask(before.is_null()) & (op == "U")).any():
        raise _no_old_row("an update")
    data, missing = with_old_values(
        data, columns, missing_values(data["_unchanged"], columns.table)
    )
    if missing:
        lacking = ", ".join(columns.table[number] for number in missing)
        raise _no_old_row(f"a value of column {lacking} was not sent: a change")
    added, removed = np.flatnonzero(op != "D"), np.flatnonzero(op != "I")
    old = removed + np.where(op[removed] == "U", len(batch), 0)
    rows = pa.array(np.append(added, removed))
    sources = pa.array(np.append(added, old))
    result = {}
    for name in columns.numbers:
        values = [data[name]] if before is None else [data[name], pc.struct_field(before, name)]
        result[name] = pa.concat_arrays(values).take(sources)
    result |= {name: data[name].take(rows) for name in columns.row_metadata}
    result["removed"] = pa.array(np.arange(len(rows)) >= len(added))
    return pa.RecordBatch.from_pydict(result)


def _no_old_row(change: str) -> ValueError:
    return ValueError(
        f"{change} without the whole old row, by which the row of a table without a key is found: "
        'set REPLICA IDENTITY FULL before the first change, decode with before="key", and leave '
        "in all columns; or name keys"
    )


def _comparable(kind: Any) -> Any:
    """Return the type in which values are compared: floats as text, which tells -0.0 from 0.0."""
    from pyspark.sql.types import ArrayType, DecimalType, FractionalType, StringType

    if isinstance(kind, ArrayType):
        return ArrayType(_comparable(kind.elementType), kind.containsNull)
    is_float = isinstance(kind, FractionalType) and not isinstance(kind, DecimalType)
    return StringType() if is_float else kind


def _count(
    compared: list[str], names: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return lambda batches: count_rows(batches, compared, names)


def count_rows(
    batches: Iterable[pa.RecordBatch], compared: list[str], names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Count the rows of sorted changes.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Changes with equal rows next to one another, the newest first, and of an update the row that
        it added first: ``compared``, ``names``, ``row_hash``, and ``removed`` bool.
    compared : list of str
        Columns that make rows equal.
    names : list of str
        Columns to yield.

    Yields
    ------
    pyarrow.RecordBatch
        Rows that are left of those that were added, and those that were removed without having been
        added: ``names``, ``removed`` and ``count``.
    """
    last: pa.RecordBatch | None = None  # of the batch before
    removals = 0  # of rows that equal it, and are still to come
    for batch in batches:
        if not batch.num_rows:
            continue
        if last is not None:
            batch = pa.RecordBatch.from_arrays(
                [pa.concat_arrays(pair) for pair in zip(last, batch, strict=True)],
                schema=batch.schema,
            )
        equal = _equals_previous(batch, compared)
        weight = np.where(_mask(batch.column("removed")), 1, -1)
        # A change that was stored twice counts once.
        weight[1:][equal & _is_same_change(batch)] = 0
        if last is not None:
            weight[0] = removals
        starts = np.flatnonzero(np.append(True, ~equal))
        is_left, open_removals = _balance(weight, starts)
        removals = int(open_removals[-1])
        ends = np.append(starts[1:], batch.num_rows) - 1
        count = np.zeros(batch.num_rows, np.int64)
        count[ends[:-1]] = open_removals[:-1]
        yield from _rows(batch, names, is_left, count)
        last = batch.take(pa.array([batch.num_rows - 1]))
    if last is not None:
        yield from _rows(last, names, np.array([False]), np.array([removals]))


def _balance(
    weight: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> tuple[Mask, npt.NDArray[np.int64]]:
    """Return which additions no removal cancels, and of each run the removals that are left.

    ``weight`` is the number of removals, or -1 for an addition. Removals add up, and an addition
    takes one away if there is one: it is not cancelled where the sum reaches a new minimum below 0.
    Each run is lowered below all before it, so that one cumulated minimum serves all.
    """
    run = np.zeros(len(weight), np.int64)
    run[starts[1:]] = 1
    run = np.cumsum(run)
    total = np.cumsum(weight)
    total -= (total[starts] - weight[starts])[run]
    floor = -run * 2 * (int(np.abs(weight).sum()) + 1)
    total += floor
    lowest = np.minimum.accumulate(np.minimum(total, floor))
    before = np.minimum(np.append(0, lowest[:-1]), floor)
    ends = np.append(starts[1:], len(weight)) - 1
    return (weight < 0) & (total < before), total[ends] - lowest[ends]


def _equals_previous(batch: pa.RecordBatch, compared: list[str]) -> Mask:
    """Return which rows from the second on equal the one before."""
    hashes = batch.column(_HASH).to_numpy()
    rows = np.flatnonzero(hashes[1:] == hashes[:-1])
    for name in compared:
        if not len(rows):
            break
        column = batch.column(name)
        rows = rows[~differs(column.take(pa.array(rows)), column.take(pa.array(rows + 1)))]
    equal = np.zeros(len(hashes) - 1, np.bool_)
    equal[rows] = True
    return equal


def _is_same_change(batch: pa.RecordBatch) -> Mask:
    same = np.ones(batch.num_rows - 1, np.bool_)
    for name in ("_commit_lsn", "_seq", "removed"):
        column = batch.column(name)
        same &= ~differs(column[:-1], column[1:])
    return same


def _mask(array: pa.BooleanArray) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def _rows(
    batch: pa.RecordBatch, names: list[str], is_left: Mask, removals: npt.NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are left, and those that were removed so often."""
    rows = np.concatenate([np.flatnonzero(is_left), np.flatnonzero(removals)])
    if len(rows):
        removed = np.arange(len(rows)) >= np.count_nonzero(is_left)
        data = {name: batch.column(name).take(pa.array(rows)) for name in names}
        count = np.where(removed, removals[rows], 1)
        yield pa.RecordBatch.from_pydict(data | {"removed": removed, "count": count})
