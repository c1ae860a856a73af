"""Rows that the reference decoded, inserted among those of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, valid_rows, validity_bitmap
from pgwire_codec.codec.value_buffers import INLINE, offsets_of

Rows = npt.NDArray[np.int64]
#: Rows of an array from one number up to another.
Run = tuple[ArrowBuffers, int, int]


def patch_rows(array: ArrowBuffers, rows: Rows, patch: ArrowBuffers, chunks: int) -> None:
    """Replace rows of `array`, ascending, each without a value so far, by those of `patch`.

    `chunks` is the number of buffers of views that are the messages' own.
    """
    if array.null_count or patch.null_count:
        valid = valid_rows(array)
        valid[rows] = valid_rows(patch)
        array.null_count, array.validity = validity_bitmap(valid)
    if array.format in ("u", "z", "+l"):
        joined = _join(list(_runs(array, rows, patch)))
        array.buffers, array.children = joined.buffers, joined.children
    elif array.format in ("vu", "vz"):
        _patch_views(array, rows, patch, chunks)
    elif array.format == "b":
        flags = _flags(array)
        flags[rows] = _flags(patch)
        array.buffers = [np.packbits(flags, bitorder="little")]
    else:
        _fixed(array)[rows] = _fixed(patch)


def _runs(array: ArrowBuffers, rows: Rows, patch: ArrowBuffers) -> Iterator[Run]:
    """Yield the runs of rows that are kept and those that replace others, in order."""
    done = 0
    for index, row in enumerate(rows.tolist()):
        yield array, done, row
        yield patch, index, index + 1
        done = row + 1
    yield array, done, array.length


def _fixed(array: ArrowBuffers) -> npt.NDArray[Any]:
    """Return the fixed-width values, or the bytes of each, row by row."""
    values = array.buffers[0]
    return values if len(values) == array.length else values.reshape(array.length, -1)


def _flags(array: ArrowBuffers) -> npt.NDArray[np.uint8]:
    return np.unpackbits(array.buffers[0], count=array.length, bitorder="little")


def _join(runs: list[Run]) -> ArrowBuffers:
    """Concatenate runs of rows of one format."""
    first = runs[0][0]
    length = sum(stop - start for _, start, stop in runs)
    joined = ArrowBuffers(first.format, length, 0, None, [])
    joined.extension, joined.numeric = first.extension, first.numeric
    if any(array.null_count for array, _, _ in runs):
        valid = {id(array): valid_rows(array) for array, _, _ in runs}
        joined.null_count, joined.validity = validity_bitmap(
            np.concatenate([valid[id(array)][start:stop] for array, start, stop in runs])
        )
    if first.format in ("u", "z", "+l"):
        lengths = {id(array): np.diff(array.buffers[0]) for array, _, _ in runs}
        joined.buffers = [
            offsets_of(
                np.concatenate([lengths[id(array)][start:stop] for array, start, stop in runs])
            )
        ]
        inner: list[Run] = [
            (array, int(array.buffers[0][start]), int(array.buffers[0][stop]))
            for array, start, stop in runs
        ]
        if first.format == "+l":
            joined.children = [
                _join([(array.children[0], start, stop) for array, start, stop in inner])
            ]
        else:
            joined.buffers.append(
                np.concatenate([array.buffers[1][start:stop] for array, start, stop in inner])
            )
    elif first.format == "b":
        flags = {id(array): _flags(array) for array, _, _ in runs}
        joined.buffers = [
            np.packbits(
                np.concatenate([flags[id(array)][start:stop] for array, start, stop in runs]),
                bitorder="little",
            )
        ]
    else:
        values = {id(array): _fixed(array) for array, _, _ in runs if array.length}
        parts = [values[id(array)][start:stop] for array, start, stop in runs if start < stop]
        joined.buffers = [np.concatenate(parts).reshape(-1) if parts else first.buffers[0][:0]]
    return joined


def _patch_views(array: ArrowBuffers, rows: Rows, patch: ArrowBuffers, chunks: int) -> None:
    """Replace views; bytes that were written, not viewed, stay in the order of the rows."""
    views, theirs = array.buffers[0].reshape(-1, 4), patch.buffers[0].reshape(-1, 4)
    pool = array.buffers[1 + chunks :]
    their_pool = patch.buffers[1 + chunks :]
    if their_pool:
        ours = np.where(_is_written(views, chunks), views[:, 0], 0).astype(np.int64)
        cuts = np.cumsum(ours) - ours
        sizes = np.where(_is_written(theirs, chunks), theirs[:, 0], 0).tolist()
        pieces: list[npt.NDArray[np.uint8]] = []
        done = taken = 0
        for cut, size in zip(cuts[rows].tolist(), sizes, strict=True):
            if pool:
                pieces.append(pool[0][done:cut])
            pieces.append(their_pool[0][taken : taken + size])
            done = cut
            taken += size
        if pool:
            pieces.append(pool[0][done:])
        array.buffers[1 + chunks :] = [np.concatenate(pieces)]
    views[rows] = theirs
    written = _is_written(views, chunks)
    ends = np.cumsum(views[written, 0], dtype=np.int64)
    views[written, 3] = ends - views[written, 0]


def _is_written(views: npt.NDArray[np.int32], chunks: int) -> npt.NDArray[np.bool_]:
    written: npt.NDArray[np.bool_] = (views[:, 0] > INLINE) & (views[:, 2] == chunks)
    return written
