"""Rows of a table without a key: equal rows are counted.

A change adds a row, removes one, or, as an update, does both. Changes are sorted by row, the newest
first, and a row that was removed is the newest of its equals that was added before. So it is enough
to keep the number of removals whose rows are still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.spark.change_columns import ChangeColumns
from pgwire_codec.spark.comparison import Mask, differs
from pgwire_codec.spark.net_changes import after_truncates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HASH = "row_hash"


def row_changes(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the rows that numbered changes after the last truncate add and remove on balance.

    Its columns: ``c0``, ``c1``, … the row; the metadata of the change that added it; ``removed``
    boolean, for rows that were there before these changes; ``count`` long, how many such rows were
    removed, or 1 for a row that was added.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType, LongType, StructField, StructType

    events = _events(after_truncates(changes), columns)
    kinds = {field.name: field.dataType for field in events.schema}
    exact = {
        name: functions.col(name).cast(_comparable(kinds[name])).alias(f"exact_{name}")
        for name in columns.numbers
        if kinds[name] != _comparable(kinds[name])
    }
    compared = [f"exact_{name}" if name in exact else name for name in columns.numbers]
    names = [*columns.numbers, *columns.row_metadata]
    fields = [StructField(name, kinds[name]) for name in names]
    fields += [StructField("removed", BooleanType()), StructField("count", LongType())]
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
        .mapInArrow(_count(compared, names), StructType(fields))
    )


def _events(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the rows that changes add and remove: an update does both."""
    from pyspark.sql import functions

    col = functions.col
    op = col("_op")
    whole = set(columns.before) >= set(columns.table)
    no_row = (op == "U") & col("_before").isNull() if whole else op.isin("U", "D")
    removed = [functions.lit(each) for each in (False, True)]
    both = (
        functions.when(no_row, _stop())
        .when(op == "U", functions.array(*removed))
        .when(op == "D", functions.array(removed[1]))
        .otherwise(functions.array(removed[0]))
    )
    row: list[Column | str] = list(columns.numbers)
    if whole:
        lost = _stop()
        is_old = col("removed") & (op == "U")
        for number, name in enumerate(columns.table):
            sent, old = col(f"c{number}"), col("_before")[f"c{number}"]
            # A value that was moved out of its row is never NULL: a NULL was not sent.
            unsent = functions.array_contains("_unchanged", name)
            row[number] = (
                functions.when(is_old, old)
                .when(unsent, functions.coalesce(old, lost))
                .otherwise(sent)
                .alias(f"c{number}")
            )
    return changes.withColumn("removed", functions.explode(both)).select(
        *row, *columns.row_metadata, "removed"
    )


def _stop() -> Column:
    from pyspark.sql import functions

    return functions.raise_error(
        functions.lit(
            "an update or delete without the whole old row, which is needed to find the row of a "
            "table without a key: set REPLICA IDENTITY FULL before the first change, decode with "
            'before="key", and leave all columns in; or name keys'
        )
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
        weight = np.where(_removed(batch), 1, -1)
        # A change that was stored twice counts once.
        weight[1:][equal & _is_same_change(batch)] = 0
        if last is not None:
            weight[0] = removals
        starts = np.flatnonzero(np.append(True, ~equal))
        is_left, open_removals = _balance(weight, starts)
        is_left[0] &= last is None
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


def _removed(batch: pa.RecordBatch) -> Mask:
    removed: Mask = batch.column("removed").to_numpy(zero_copy_only=False)
    return removed


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
