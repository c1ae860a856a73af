"""Columns of a log's messages, and the differences by which a segment stores them."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.log.numbers import is_known, numbers, to_array

#: Representation of ordinals, LSNs and times in the file of a segment.
Encoding = Literal["plain", "differences"]

#: The columns. LSNs are signed, because Spark has no unsigned types: the bits are the same.
SCHEMA: Final = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("data", pa.binary(), nullable=False),
    ]
)

#: The same with differences from the row before, modulo 2**64. The first row of each record batch
#: is the difference from 0, so that a batch is readable alone. A time that is not known is null,
#: and the next one is the difference from the last that is known.
_DIFFERENCES: Final = pa.schema(
    [
        pa.field("ordinal_step", pa.int64(), nullable=False),
        pa.field("lsn_step", pa.int64(), nullable=False),
        pa.field("time_step", pa.int64()),
        SCHEMA.field("data"),
    ]
)

#: Start of the only record batch.
_ONE_BATCH: Final = np.zeros(1, np.int64)

_WITHOUT_TIME: Final = pa.schema([field for field in SCHEMA if field.name != "time"])

#: The columns in the file of a segment.
STORED: Final[dict[Encoding, pa.Schema]] = {"plain": SCHEMA, "differences": _DIFFERENCES}


def column(values: npt.NDArray[Any], name: str) -> pa.Array:
    """Return values of 64 bits as a column of :data:`SCHEMA`; a NaT is a null."""
    known = ~np.isnat(values) if values.dtype.kind == "M" else None
    return to_array(values, SCHEMA.field(name).type, known)


def lsns(records: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Return the messages' LSNs."""
    signed: npt.NDArray[np.int64] = numbers(records.column("lsn"))
    return signed.view(np.uint64)


def encoding_of(compression: str | None) -> Encoding:
    """Return the representation in new segments: differences compress well, and gain nothing else.

    To compute them, and the values from them, takes a tenth of the time of writing and reading.
    """
    return "plain" if compression is None else "differences"


def to_stored(records: pa.RecordBatch, encoding: Encoding) -> pa.RecordBatch:
    """Return messages as a segment stores them."""
    if encoding == "plain":
        return records
    columns = [_steps(each) for each in records.columns[:3]]
    return pa.RecordBatch.from_arrays([*columns, records.column("data")], schema=_DIFFERENCES)


def from_stored(
    records: pa.RecordBatch,
    encoding: Encoding,
    *,
    with_time: bool = True,
    starts: npt.NDArray[np.int64] = _ONE_BATCH,
) -> pa.RecordBatch:
    """Return messages that a segment stores, in the columns of :data:`SCHEMA`.

    Without ``with_time``, the column ``time`` is left out if it would have to be computed.
    ``starts`` are the rows at which the record batches begin of which ``records`` consists.
    """
    if encoding == "plain":
        return records
    ordinal, lsn, time, data = records.columns
    columns = {
        "ordinal": _ordinals(ordinal, starts),
        "lsn": _sums(lsn, SCHEMA.field("lsn").type, starts),
    }
    if with_time:
        columns["time"] = _sums(time, SCHEMA.field("time").type, starts)
    columns["data"] = data
    schema = SCHEMA if with_time else _WITHOUT_TIME
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _steps(values: pa.Array) -> pa.Array:
    known = is_known(values) if values.null_count else None
    plain = numbers((values if known is None else values.drop_null()).view(pa.int64()))
    steps = plain.copy()
    np.subtract(plain[1:], plain[:-1], out=steps[1:])
    if known is not None:
        found = np.zeros(len(values), np.int64)
        found[known] = steps
        steps = found
    return to_array(steps, pa.int64(), known)


def _ordinals(steps: pa.Array, starts: npt.NDArray[np.int64]) -> pa.Array:
    found = numbers(steps)
    first = found[:1]
    expected = np.ones(len(found), np.int64)
    expected[starts[: len(found)]] = first + starts[: len(found)]
    if not (found == expected).all():
        return _sums(steps, steps.type, starts)
    return column(first + np.arange(len(found)), "ordinal")  # a tenth of the time


def _sums(steps: pa.Array, kind: pa.DataType, starts: npt.NDArray[np.int64]) -> pa.Array:
    known = is_known(steps) if steps.null_count else None
    sums = np.cumsum(numbers(steps))
    if len(starts) > 1:  # each record batch begins with the difference from 0
        before = np.concatenate([[0], sums[starts[1:] - 1]])
        sums -= np.repeat(before, np.diff(starts, append=len(sums)))
    return to_array(sums, kind, known)
