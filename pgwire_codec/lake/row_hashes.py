"""Hashes of rows, of 64 bits: of their values only, and the same in every process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.lake.comparison import Numbers, mask_of

Hashes = npt.NDArray[np.uint64]

#: Odd numbers of 64 bits, by which one hash after another is multiplied, and positions.
_NEXT: Final = np.uint64(0x9E3779B97F4A7C15)
_POSITION: Final = np.uint64(0xC2B2AE3D27D4EB4F)

#: Hash of NULL, and what is added to values: 0 has another hash than an empty text.
_NULL: Final = np.uint64(0x165667B19E3779F9)
_VALUE: Final = np.uint64(0x27D4EB2F165667C5)

#: Steps of the finalizer of splitmix64.
_STEPS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT: Final = np.uint64(31)

_WORD: Final = 8
_ALL_BITS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


#: Rows that are hashed at a time: their intermediate results are in the processor's caches.
_ROWS: Final = 1 << 15


def row_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Return a hash of each row."""
    hashes = [
        combined(column_hashes(column.slice(start, _ROWS)) for column in columns)
        for start in range(0, max(1, len(columns[0])), _ROWS)
    ]
    return np.concatenate(hashes)


def combined(hashes: Iterable[Hashes], seed: int = 0) -> Hashes:
    """Return the hash of each row from those of its values; another seed gives other hashes."""
    total: Hashes | None = None
    for values in hashes:
        total = np.full(len(values), seed, np.uint64) if total is None else total
        total *= _NEXT
        total += values
        _mix(total)
    assert total is not None, "a row has at least one column"
    return total


def column_hashes(column: pa.Array) -> Hashes:
    """Return a hash of each value: equal values have the same, NaN included."""
    kind = column.type
    if pa.types.is_list(kind):
        hashes = _of_lists(column)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _of_bytes(column)
    elif pa.types.is_decimal(kind):
        lanes = _lanes(column, kind.bit_width // 64)
        hashes = combined(lanes[:, number] for number in range(lanes.shape[1]))
    else:
        hashes = _bits(column)
        hashes += _VALUE
        _mix(hashes)
    if column.null_count:
        hashes[mask_of(column.is_null())] = _NULL
    return hashes


def _bits(column: pa.Array) -> Hashes:
    """Return values of up to 64 bits as numbers; any number for NULL."""
    kind = column.type
    if pa.types.is_boolean(kind):
        numbers = _filled(column, False)
    elif pa.types.is_floating(kind):
        values = _filled(column, 0).astype(np.float64)
        numbers = np.where(np.isnan(values), np.nan, values).view(np.int64)
    else:
        if not pa.types.is_integer(kind):  # dates and times
            column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        numbers = _filled(column, 0)
    bits: Hashes = numbers.astype(np.int64).view(np.uint64)
    return bits


def _filled(column: pa.Array, value: int) -> npt.NDArray[Any]:
    if column.null_count:
        column = column.fill_null(value)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _lanes(column: pa.Array, count: int) -> Hashes:
    """Return values of a fixed width as numbers: ``count`` for each."""
    values = np.frombuffer(column.buffers()[1], np.uint64)
    begin = column.offset * count
    return values[begin : begin + len(column) * count].reshape(-1, count)


def _of_bytes(column: pa.Array) -> Hashes:
    """Return hashes of texts, from their words of eight bytes."""
    if not len(column):
        return np.zeros(0, np.uint64)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(bounds[0]), int(bounds[-1])
    starts = (bounds[:-1] - first).astype(np.int64)
    lengths = np.diff(bounds).astype(np.int64)
    counts = (lengths + (_WORD - 1)) // _WORD
    positions = _positions(counts)
    if last == first:
        return _of_sequences(np.zeros(0, np.uint64), positions, counts, lengths)
    padded = np.zeros(last - first + _WORD, np.uint8)
    padded[:-_WORD] = np.frombuffer(data, np.uint8)[first:last]
    at_each_byte = np.ndarray(last - first + 1, "<u8", padded, strides=(1,))
    places = np.repeat(starts, counts)
    places += _WORD * positions
    words = at_each_byte[places]
    has_words = counts > 0
    last_words = (np.cumsum(counts) - 1)[has_words]
    other_bits = 8 * (_WORD * counts - lengths)[has_words]  # of the next text
    words[last_words] &= _ALL_BITS >> other_bits.astype(np.uint64)
    return _of_sequences(words, positions, counts, lengths)


def _of_lists(column: pa.ListArray) -> Hashes:
    offsets = column.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)
    values = column.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return _of_sequences(column_hashes(values), _positions(counts), counts, counts)


def _of_sequences(parts: Hashes, positions: Numbers, counts: Numbers, lengths: Numbers) -> Hashes:
    """Return hashes of rows, each of which has ``counts`` of the parts, and its length.

    The parts are changed.
    """
    parts += positions.view(np.uint64) * _POSITION
    _mix(parts)
    hashes: Hashes = lengths.astype(np.uint64)
    has_parts = np.flatnonzero(counts)
    if len(has_parts):
        begins = (np.cumsum(counts) - counts)[has_parts]
        hashes[has_parts] += np.add.reduceat(parts, begins)
    _mix(hashes)
    return hashes


def _positions(counts: Numbers) -> Numbers:
    """Return the position of each part in its row."""
    ends = np.cumsum(counts)
    positions: Numbers = np.repeat(counts - ends, counts)
    positions += np.arange(len(positions))
    return positions


def _mix(hashes: Hashes) -> None:
    """Change numbers in place, so that each bit depends on all bits."""
    shifted = np.empty_like(hashes)
    for shift, factor in _STEPS:
        hashes ^= np.right_shift(hashes, shift, out=shifted)
        hashes *= factor
    hashes ^= np.right_shift(hashes, _LAST_SHIFT, out=shifted)
