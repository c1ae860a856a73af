"""The first pass over a DataFrame of messages: its parts, and a summary of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import DecodeError, TableError
from pgwire_codec.parallel import summarise_pieces
from pgwire_codec.protocol.tags import ROW_CHANGES
from pgwire_codec.spark.tasks import Batches, result_batch, results_of
from pgwire_codec.transactions.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PART: Final = "_pgwire_part"  # name of the column with the number of a message's part

#: Number of ordinals of each part that are reported, to cut new parts by.
_SAMPLES: Final = 64

#: Bytes of a change up to the end of its relation's OID, at most: tag, xid, OID.
_HEAD: Final = 9


@dataclass(slots=True)
class SurveyedPart:
    """A run of messages in one task."""

    #: Lowest and highest ordinal.
    first: int
    last: int
    count: int
    is_sorted: bool  # True if ordinals are strictly ascending
    sample: list[int]  # some of the ordinals
    summary: Summary | DecodeError | None


def survey(messages: DataFrame, *, in_parts: bool, on_error: str) -> list[SurveyedPart]:
    """Summarise every part of a DataFrame of ``(ordinal, data[, lsn][, part])``, as Spark cuts it.

    Returns the parts by ascending first ordinal. Parts whose ordinals do not ascend have no
    summary. A part that does not decode has its error in place of the summary: it may be out of
    order.
    """

    def run(batches: Batches) -> Batches:
        for part in parts_of(batches, in_parts=in_parts):
            yield result_batch(_surveyed(part, on_error))

    # All columns, including unused ones: a shuffle coalesces partitions by their size, and the
    # decoding pass must see the same parts.
    sent = messages if on_error == "skip" else messages.withColumn("data", _heads())
    return sorted(results_of(sent, run), key=lambda part: (part.first, part.last))


def _heads() -> Column:
    """Return the messages, changes without what follows the relation's OID.

    The JVM cuts them: the rest, most of the bytes, is sent to Python only where it is decoded. With
    ``on_error="skip"`` it is needed to know which changes count.
    """
    from pyspark.sql import functions

    data = functions.col("data")
    is_change = functions.substring(data, 1, 1).isin([bytearray([tag]) for tag in ROW_CHANGES])
    return functions.when(is_change, functions.substring(data, 1, _HEAD)).otherwise(data)


def parts_of(batches: Batches, *, in_parts: bool) -> Iterator[Batches]:
    """Yield the batches of each part of a task, cut where the part column changes.

    Without such a column, all are one part. A part must be read before the next one.
    """
    for _, part in itertools.groupby(_by_part(batches, in_parts=in_parts), itemgetter(0)):
        yield (batch for _, batch in part)


def _by_part(batches: Batches, *, in_parts: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        if not in_parts:
            yield 0, batch
            continue
        runs = pc.run_end_encode(batch.column(PART))
        start = 0
        for stop, number in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield number, batch.slice(start, stop - start)
            start = stop


def _surveyed(batches: Iterable[pa.RecordBatch], on_error: str) -> SurveyedPart:
    """Return the survey of a part."""
    summariser = summarise_pieces(on_error=on_error, heads=on_error != "skip")
    error: DecodeError | None = None
    part: SurveyedPart | None = None
    end = 0  # the last ordinal so far
    for batch in batches:
        ordinals = check_ordinals(batch.column("ordinal"))
        low, high = pc.min_max(ordinals).as_py().values()
        if part is None:
            part = SurveyedPart(low, high, 0, is_sorted=True, sample=[], summary=None)
        part.is_sorted &= (not part.count or end < ordinals[0].as_py()) and (
            pc.all(pc.less(ordinals[:-1], ordinals[1:])).as_py() is not False
        )
        end = ordinals[-1].as_py()
        part.first, part.last = min(part.first, low), max(part.last, high)
        part.count += len(ordinals)
        part.sample += ordinals[:: max(1, len(ordinals) // 8)].to_pylist()
        if len(part.sample) > 2 * _SAMPLES:
            part.sample = part.sample[::2]
        if part.is_sorted and error is None:
            try:
                summariser.add(batch.column("data"))
            except DecodeError as found:
                error = found
    assert part is not None, "a part has messages"
    if part.is_sorted:
        part.summary = error or summariser.summary()
    return part


def check_ordinals(ordinals: pa.Array) -> pa.Array:
    """Return the ordinals; raise ``TableError`` for a null."""
    if ordinals.null_count:
        raise TableError(
            "the ordinal column has a null", hint="Every message needs an ordinal of its own."
        )
    return ordinals
