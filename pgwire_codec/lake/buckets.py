"""Buckets of rows by a hash of their key, the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

#: Odd numbers of 64 bits: by which a value is multiplied, and one column's hash after another.
_VALUE: Final = np.uint64(0x9E3779B97F4A7C15)
_COLUMN: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL: Final = np.uint64(0x165667B19E3779F9)
_SHIFT: Final = np.uint64(29)


def bucket_numbers(columns: Sequence[pa.Array], count: int) -> npt.NDArray[np.int64]:
    """Return the number of each row's bucket, below ``count``: equal rows have the same."""
    numbers = (row_hashes(columns) >> np.uint64(32)) % np.uint64(count)
    buckets: npt.NDArray[np.int64] = numbers.astype(np.int64)
    return buckets


def row_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Return a hash of each row. Lists do not count."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = _mixed(total * _COLUMN + _hashes(column))
    return total


def _hashes(column: pa.Array) -> Hashes:
    kind, count = column.type, len(column)
    hashes: Hashes
    if pa.types.is_nested(kind):
        return np.zeros(count, np.uint64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _of_bytes(column)
    elif pa.types.is_boolean(kind):
        hashes = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)
    elif pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        # Equal values have equal bits then: -0.0 equals 0.0, and NaN equals NaN.
        usual = np.where(np.isnan(values), np.nan, values) + 0.0
        hashes = usual.view(np.uint64)
    elif pa.types.is_decimal(kind):
        lanes = _fixed(column, 2)
        hashes = _mixed(lanes[:, 0] * _VALUE) + lanes[:, 1]
    else:
        signed = column.view(pa.int32()) if kind.bit_width == 32 else column
        wide = signed.view(pa.int64()) if kind.bit_width == 64 else signed.cast(pa.int64())
        hashes = np.asarray(wide.fill_null(0).to_numpy(zero_copy_only=False)).view(np.uint64)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return _mixed(hashes * _VALUE)


def _fixed(column: pa.Array, lanes: int) -> npt.NDArray[np.uint64]:
    """Return values of a fixed width as numbers, some a value."""
    data = column.buffers()[1]
    values = np.frombuffer(data, np.uint64)
    begin = column.offset * lanes
    return values[begin : begin + len(column) * lanes].reshape(-1, lanes)


def _of_bytes(column: pa.Array) -> Hashes:
    """Return hashes of texts: sums of their bytes, each times a power of an odd number."""
    column = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "")
    _, offsets, data = column.buffers()
    begin = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = (int(begin[0]), int(begin[-1])) if len(begin) else (0, 0)
    if last == first:
        return np.zeros(len(column), np.uint64)
    starts = (begin[:-1] - first).astype(np.int64)
    lengths = np.diff(begin).astype(np.int64)
    values = np.frombuffer(data, np.uint8)[first:last].astype(np.uint64) + np.uint64(1)
    powers = np.cumprod(np.full(int(lengths.max()), _VALUE), dtype=np.uint64)
    values *= powers[np.arange(len(values)) - np.repeat(starts, lengths)]
    # Texts without bytes at the end begin after the last byte; others get the next one's sum.
    sums = np.add.reduceat(np.append(values, np.uint64(0)), starts)
    hashes: Hashes = np.where(lengths > 0, sums, np.uint64(0))
    return hashes


def _mixed(hashes: Hashes) -> Hashes:
    mixed: Hashes = (hashes ^ (hashes >> _SHIFT)) * _VALUE
    return mixed
