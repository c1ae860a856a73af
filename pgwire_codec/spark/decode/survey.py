"""The first pass over a DataFrame of messages: its parts, and a summary of each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import DecodeError, TableError
from pgwire_codec.parallel import summarise_pieces
from pgwire_codec.protocol.tags import ROW_CHANGES
from pgwire_codec.spark.task_process import begin_task
from pgwire_codec.transactions.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Name of the column with the number of a message's part.
PART = "_pgwire_part"

#: Number of ordinals of each part that are reported, to cut new parts by.
_SAMPLES = 64

#: Bytes of a change up to the end of its relation's OID, at most: tag, xid, OID.
_HEAD = 9

_RESULT = "part long, first long, last long, count long, sorted boolean, sample array<long>"


@dataclass(frozen=True, slots=True)
class SurveyedPart:
    """A run of messages in one task.

    ``part`` is its number; ``first`` and ``last`` are its lowest and highest ordinals;
    ``is_sorted`` is whether they are strictly ascending; ``sample`` has some of them.
    """

    part: int
    first: int
    last: int
    count: int
    is_sorted: bool
    sample: tuple[int, ...]
    summary: Summary | DecodeError | None


def survey(messages: DataFrame, *, in_parts: bool, on_error: str) -> list[SurveyedPart]:
    """Summarise every part of a DataFrame of ``(ordinal, data[, lsn][, part])``, as Spark cuts it.

    Returns the parts by ascending first ordinal. Parts whose ordinals do not ascend have no
    summary. A part that does not decode has its error in place of the summary: it may be out of
    order.
    """
    pass_ = _survey_pass(in_parts=in_parts, on_error=on_error)
    # All columns, including unused ones: a shuffle coalesces partitions by their size, and the
    # decoding pass must see the same parts.
    sent = messages if on_error == "skip" else messages.withColumn("data", _heads())
    summarised = sent.mapInArrow(pass_, f"{_RESULT}, summary binary")  # type: ignore[arg-type]
    rows = summarised.collect()
    parts = [
        SurveyedPart(
            part=row["part"],
            first=row["first"],
            last=row["last"],
            count=row["count"],
            is_sorted=row["sorted"],
            sample=tuple(row["sample"]),
            summary=None if row["summary"] is None else pickle.loads(row["summary"]),
        )
        for row in rows
    ]
    return sorted(parts, key=lambda part: (part.first, part.last))


def _heads() -> Column:
    """Return the messages, changes without what follows the relation's OID.

    The JVM cuts them: the rest, most of the bytes, is sent to Python only where it is decoded. With
    ``on_error="skip"`` it is needed to know which changes count.
    """
    from pyspark.sql import functions

    data = functions.col("data")
    is_change = functions.substring(data, 1, 1).isin([bytearray([tag]) for tag in ROW_CHANGES])
    return functions.when(is_change, functions.substring(data, 1, _HEAD)).otherwise(data)


def _survey_pass(
    *, in_parts: bool, on_error: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        surveyor: _Surveyor | None = None
        for number, batch in split_by_part(batches, in_parts=in_parts):
            if surveyor is None or surveyor.part != number:
                if surveyor is not None:
                    yield surveyor.result()
                surveyor = _Surveyor(number, on_error)
            surveyor.add(batch)
        if surveyor is not None:
            yield surveyor.result()

    return run


def split_by_part(
    batches: Iterator[pa.RecordBatch], *, in_parts: bool
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut the batches of a task where the part column changes; without one, all are part 0."""
    for batch in batches:
        if not in_parts or not batch.num_rows:
            yield from [(0, batch)] if batch.num_rows else []
            continue
        runs = pc.run_end_encode(batch.column(PART))
        start = 0
        for stop, number in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield number, batch.slice(start, stop - start)
            start = stop


class _Surveyor:
    """Summarises one part, batch by batch."""

    def __init__(self, part: int, on_error: str) -> None:
        self.part = part
        self._summariser = summarise_pieces(on_error=on_error, heads=on_error != "skip")
        self._error: DecodeError | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._end: int | None = None  # the last ordinal so far
        self._count = 0
        self._sorted = True
        self._sample: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        ordinals = check_ordinals(batch.column("ordinal"))
        low, high = pc.min_max(ordinals).as_py().values()
        first = ordinals[0].as_py()
        self._sorted = (
            self._sorted
            and (self._end is None or self._end < first)
            and bool(pc.all(pc.less(ordinals[:-1], ordinals[1:])).as_py() is not False)
        )
        self._end = ordinals[-1].as_py()
        self._first = low if self._first is None else min(self._first, low)
        self._last = high if self._last is None else max(self._last, high)
        self._count += len(ordinals)
        step = max(1, len(ordinals) // 8)
        self._sample += ordinals[::step].to_pylist()
        if len(self._sample) > 2 * _SAMPLES:
            self._sample = self._sample[::2]
        if self._sorted and self._error is None:
            try:
                self._summariser.add(batch.column("data"))
            except DecodeError as error:
                self._error = error

    def result(self) -> pa.RecordBatch:
        found = self._error or self._summariser.summary()
        summary = pickle.dumps(found) if self._sorted else None
        columns: dict[str, tuple[Any, pa.DataType]] = {
            "part": (self.part, pa.int64()),
            "first": (self._first, pa.int64()),
            "last": (self._last, pa.int64()),
            "count": (self._count, pa.int64()),
            "sorted": (self._sorted, pa.bool_()),
            "sample": (self._sample, pa.list_(pa.int64())),
            "summary": (summary, pa.binary()),
        }
        return pa.RecordBatch.from_arrays(
            [pa.array([value], kind) for value, kind in columns.values()], names=list(columns)
        )


def check_ordinals(ordinals: pa.Array) -> pa.Array:
    """Return the ordinals; raise ``TableError`` for a null."""
    if ordinals.null_count:
        raise TableError(
            "the ordinal column has a null", hint="Every message needs an ordinal of its own."
        )
    return ordinals
