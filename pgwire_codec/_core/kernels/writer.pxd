"""Columns of Arrow arrays as the writers of values read them, and the output that they write to.

A writer reserves memory, writes the value of one row after its kind and length, and returns
WRITTEN. For a value that is not ordinary, which the reference writes or refuses, it writes nothing
and returns DEFERRED. It is not called for rows that are null.
"""

from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.kernels.column cimport DEFERRED
from pgwire_codec._core.kernels.shortest cimport u128
from pgwire_codec._core.wire.primitives cimport store_bytes, store_u32
from pgwire_codec._core.wire.tuple_data cimport VALUE_HEAD

cdef enum:
    # Results of a writer, beside DEFERRED.
    WRITTEN = 0
    NO_MEMORY = -1

cdef enum:
    MOST_BYTES = 64  # of a value and its head, if its size does not depend on it


cdef struct Output:
    uint8_t* start
    uint8_t* p
    uint8_t* end


cdef struct ArrowBuffer:
    const uint8_t* data
    int64_t length


ctypedef int (*Writer)(const ArrowColumn*, int64_t, Output*) noexcept nogil


cdef struct ArrowColumn:
    # One column of some rows. The index of a row counts from the first element of the arrays.
    Writer write  # NULL: the column is NULL throughout
    uint8_t kind  # t or b
    const uint8_t* valid  # bitmap, or NULL
    const uint8_t* unchanged  # a byte for each of the rows, or NULL
    int64_t start  # index of the first of the rows
    const uint8_t* data  # values, or offsets or views of strings
    int64_t bytes_length
    const uint8_t* bytes  # that offsets point into
    ArrowBuffer* buffers  # that views point into
    int n_buffers
    int width  # bytes of a value or offset in `data`
    bint is_signed
    uint64_t most  # of an integer, as it is written
    uint64_t least  # how far below zero it goes
    int out_width  # bytes of its binary form
    int64_t multiply  # to microseconds
    int64_t divide
    int scale  # of a decimal
    u128 limit  # that its digits stay below; 0 for no limit
    bint with_zone  # a timestamp whose text ends in +00
    bint single  # a float4


cdef inline int reserve(Output* out, int64_t wanted) noexcept nogil:
    """Reserve that many bytes; return WRITTEN, or NO_MEMORY."""
    cdef int64_t used, capacity
    cdef uint8_t* grown
    if wanted <= out.end - out.p:
        return WRITTEN
    used = out.p - out.start
    capacity = out.end - out.start
    capacity = max(capacity + capacity // 2, used + wanted + 4096)
    grown = <uint8_t*> PyMem_RawRealloc(out.start, <size_t> capacity)
    if grown is NULL:
        return NO_MEMORY
    out.start = grown
    out.p = grown + used
    out.end = grown + capacity
    return WRITTEN


cdef inline int finish(const ArrowColumn* v, Output* out, uint8_t* end) noexcept nogil:
    """Write the kind and the length of a value that was written after them, up to `end`."""
    out.p[0] = v.kind
    store_u32(out.p + 1, <unsigned int> (end - out.p - VALUE_HEAD))
    out.p = end
    return WRITTEN


cdef inline int64_t load_i64_native(const uint8_t* p) noexcept nogil:
    cdef int64_t x
    memcpy(&x, p, 8)
    return x


cdef inline int32_t load_i32_native(const uint8_t* p) noexcept nogil:
    cdef int32_t x
    memcpy(&x, p, 4)
    return x


cdef inline int stored_bytes(
    const ArrowColumn* v, int64_t row, const uint8_t** data, int64_t* length
) noexcept nogil:
    """Find a string: by offsets of 4 or 8 bytes, by a view of 16, or by the size that all have."""
    cdef int64_t low, high
    cdef const uint8_t* view
    cdef int32_t index
    if v.width == 4:
        low = load_i32_native(v.data + 4 * row)
        high = load_i32_native(v.data + 4 * row + 4)
    elif v.width == 8:
        low = load_i64_native(v.data + 8 * row)
        high = load_i64_native(v.data + 8 * row + 8)
    elif v.width == 16:
        view = v.data + 16 * row
        length[0] = load_i32_native(view)
        if length[0] < 0:
            return DEFERRED
        if length[0] <= 12:
            data[0] = view + 4
            return WRITTEN
        index = load_i32_native(view + 8)
        low = load_i32_native(view + 12)
        if index < 0 or index >= v.n_buffers or low < 0:
            return DEFERRED
        if length[0] > v.buffers[index].length - low:
            return DEFERRED
        data[0] = v.buffers[index].data + low
        return WRITTEN
    else:
        low = v.out_width * row
        high = low + v.out_width
    if low < 0 or high < low or high > v.bytes_length:
        return DEFERRED
    data[0] = v.bytes + low
    length[0] = high - low
    return WRITTEN


cdef inline int write_stored_bytes(
    const ArrowColumn* v, int64_t row, Output* out
) noexcept nogil:
    """Write a string or a binary value as it is."""
    cdef const uint8_t* data
    cdef int64_t length
    if stored_bytes(v, row, &data, &length) or length > INT32_MAX:
        return DEFERRED
    if reserve(out, VALUE_HEAD + length):
        return NO_MEMORY
    return finish(v, out, store_bytes(out.p + VALUE_HEAD, data, length))
