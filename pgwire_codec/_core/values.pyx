# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""decode_values over the kernels, without the GIL: the twin of ``reference.values``."""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from pgwire_codec._core.block cimport BINARY, BLOCK, TEXT, Slot, column_run
from pgwire_codec._core.column cimport ColumnDecoder, has_kernel
from pgwire_codec.reference import values as reference
from pgwire_codec.codec.values import Decoded, ValueProblem

__all__ = ["Decoded", "ValueProblem", "decode_values"]

cdef enum:
    VALUE = 1  # of the four states, the only one that has bytes
    BEFORE = 12  # bytes that a kernel may load before a value


cdef struct Rows:
    const uint8_t* data
    const int64_t* offsets
    const int32_t* lengths
    const uint8_t* state
    const uint8_t* formats


def decode_values(
    column, data, offsets, lengths, state, formats, *, str unrepresentable="raise"
):
    """Read a column's values into Arrow's layout; see ``reference.values.decode_values``."""
    cdef Py_ssize_t count = len(state)
    cdef ColumnDecoder decoder
    cdef Rows rows
    if not has_kernel(column):
        return reference.decode_values(
            column, data, offsets, lengths, state, formats, unrepresentable=unrepresentable
        )
    cdef const uint8_t[::1] states = np.ascontiguousarray(state, np.uint8)
    cdef const uint8_t[::1] forms = np.ascontiguousarray(formats, np.uint8)
    cdef const int64_t[::1] starts = np.ascontiguousarray(offsets, np.int64)
    cdef const int32_t[::1] sizes = np.ascontiguousarray(lengths, np.int32)
    if not len(forms) == len(starts) == len(sizes) == count:
        raise ValueError("offsets, lengths, state and formats have one entry a row")
    data = np.ascontiguousarray(data, np.uint8)
    values = np.flatnonzero(np.asarray(states) == VALUE)
    low = starts_within(np.asarray(starts)[values], np.asarray(sizes)[values], len(data))
    if low < BEFORE and not column.format.startswith("v"):
        # No message begins with a value, but a kernel counts on what comes before one.
        data = np.concatenate([np.zeros(BEFORE, np.uint8), data])
        starts = np.asarray(starts) + BEFORE
    decoder = ColumnDecoder(column, count, data, unrepresentable)
    if count:
        rows = Rows(decoder.c.start, &starts[0], &sizes[0], &states[0], &forms[0])
        with nogil:
            failed = run(decoder, &rows, count)
        if failed:
            raise MemoryError
    return decoder.finish()


cdef object starts_within(starts, sizes, Py_ssize_t end):
    """Give the least offset, once all values lie within the data."""
    if len(starts) == 0:
        return BEFORE
    if starts.min() < 0 or sizes.min() < 0 or (sizes > end - starts).any():
        raise ValueError("a value lies outside the data")
    return starts.min()


cdef int run(ColumnDecoder decoder, const Rows* rows, Py_ssize_t count) noexcept nogil:
    cdef Slot slots[BLOCK]
    cdef Py_ssize_t at = 0, i, n
    cdef bint all_values
    while at < count:
        n = min(count - at, <Py_ssize_t> BLOCK)
        all_values = True
        for i in range(n):
            if rows.state[at + i] == VALUE:
                slots[i].p = rows.data + rows.offsets[at + i]
                slots[i].length = rows.lengths[at + i]
                slots[i].kind = BINARY if rows.formats[at + i] == 1 else TEXT
            else:
                all_values = False
                slots[i].p = rows.data
                slots[i].length = 0
                slots[i].kind = -1
        if column_run(&decoder.c, slots, n, all_values):
            return -1
        at += n
    return 0
