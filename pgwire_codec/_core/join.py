"""Shares of a column, decoded by several threads, put behind each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec._arrow_layout import ArrowBuffers
from pgwire_codec.reference.values import Decoded


def join_decoded(pieces: Sequence[Decoded], edges: Sequence[int]) -> Decoded:
    """Join the shares of a column.

    Parameters
    ----------
    pieces : sequence of Decoded
        Of one type, and no views. Each but the last has a multiple of 8 rows.
    edges : sequence of int
        The row that each begins with.
    """
    arrays = [piece.array for piece in pieces]
    if any(array.format == "z" for array in arrays):
        for array in arrays:  # an unknown type is binary once a value came in binary form
            array.format = "z"
    invalid = [piece.invalid + first for piece, first in zip(pieces, edges, strict=False)]
    return Decoded(_join(arrays), np.concatenate(invalid))


def _join(arrays: list[ArrowBuffers]) -> ArrowBuffers:
    first = arrays[0]
    joined = ArrowBuffers(
        first.format,
        sum(array.length for array in arrays),
        sum(array.null_count for array in arrays),
        None,
        [],
        extension=first.extension,
        numeric=first.numeric,
    )
    if joined.null_count:
        joined.validity = np.concatenate([_validity(array) for array in arrays])
    if first.format == "+l":
        joined.buffers = [_offsets(arrays, joined.length)]
        joined.children = [_join_any([array.children[0] for array in arrays])]
    elif first.format in ("u", "z"):
        joined.buffers = [
            _offsets(arrays, joined.length),
            np.concatenate([array.buffers[1] for array in arrays]),
        ]
    else:  # values of a width, or bits, whose shares are whole bytes
        joined.buffers = [np.concatenate([array.buffers[0] for array in arrays])]
    return joined


def _join_any(arrays: list[ArrowBuffers]) -> ArrowBuffers:
    """Join arrays of any numbers of rows: bits are spread out first, and packed again."""
    flags: list[list[npt.NDArray[np.uint8]]] = []
    for array in arrays:
        bits = [_validity(array), *([array.buffers[0]] if array.format == "b" else [])]
        flags.append([np.unpackbits(each, count=array.length, bitorder="little") for each in bits])
    joined = _join(arrays)
    packed = [
        np.packbits(np.concatenate(parts), bitorder="little") for parts in zip(*flags, strict=True)
    ]
    joined.validity = packed[0] if joined.null_count else None
    if joined.format == "b":
        joined.buffers = [packed[1]]
    return joined


def _validity(array: ArrowBuffers) -> npt.NDArray[np.uint8]:
    if array.validity is not None:
        return array.validity
    return np.packbits(np.ones(array.length, np.uint8), bitorder="little")


def _offsets(arrays: list[ArrowBuffers], length: int) -> npt.NDArray[np.int32]:
    offsets = np.empty(length + 1, np.int32)
    offsets[0] = row = end = 0
    for array in arrays:
        np.add(array.buffers[0][1:], end, out=offsets[row + 1 : row + 1 + array.length])
        row += array.length
        end = int(offsets[row])
    return offsets
