"""One-dimensional arrays as lists, in both forms.

The elements are decoded by the kernel of the child, their own type. An element with escapes is
unescaped into memory that is used again for the next, so a row is deferred if any of its elements
is, and its rows of the child are removed. Bounds that are written out, and more dimensions, are
deferred.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from pgwire_codec._core.kernels.column cimport (
    BINARY, DEFERRED, FINE, MAX_BYTES, MISSING, NO_VALUE, TEXT, ColumnBuffers, Kernel, Slice,
    column_grow, column_mark, column_mark_invalid, column_rewind, column_run, likely, unlikely,
)
from pgwire_codec._core.wire.primitives cimport load_i32, load_u32

cdef enum:
    GROUP = 64  # elements that the child decodes at once
    BEFORE = 16  # bytes before an unescaped element, as a slice promises
    ARRAY_HEAD = 12  # array_send: dimensions, flags, element type
    DIMENSION = 8  # and the length and the lower bound of each dimension


cdef inline Kernel array_kernel(ColumnBuffers* c, str delimiter, element_oid):
    """Set the column up, whose child is set up already; return its kernel.

    `element_oid` is the one that a binary array must declare, None if it may declare any.
    """
    c.width = 4
    c.delimiter = ord(delimiter)
    c.any_element = element_oid is None
    c.element_oid = element_oid or 0
    return decode_arrays


cdef inline bint is_bare(uint8_t byte, uint8_t delimiter) noexcept nogil:
    """Return whether an element may contain this byte outside quotes."""
    if byte == delimiter or byte == 0x22 or byte == 0x5C or byte == 0x7B or byte == 0x7D:
        return False
    return byte != 0x20 and (byte < 0x09 or byte > 0x0D)


cdef inline bint is_null(const uint8_t* p, int32_t n) noexcept nogil:
    return (
        n == 4
        and p[0] | 0x20 == 0x6E and p[1] | 0x20 == 0x75
        and p[2] | 0x20 == 0x6C and p[3] | 0x20 == 0x6C
    )


cdef inline int append_unescaped(ColumnBuffers* c, const uint8_t* p, int32_t n) noexcept nogil:
    """Append one element to the child: n bytes with escapes, between quotes."""
    cdef ColumnBuffers* child = c.child
    cdef Py_ssize_t size = n + BEFORE
    cdef uint8_t* out
    cdef void* larger
    cdef Slice value
    cdef int32_t at = 0
    cdef int code
    if size > c.scratch_size:
        larger = column_grow(c, c.scratch, size)
        if larger is NULL:
            return DEFERRED
        c.scratch = <uint8_t*> larger
        c.scratch_size = size
    out = c.scratch + BEFORE
    value.p = out
    value.form = TEXT
    while at < n:
        at += p[at] == 0x5C  # the caller has checked that it escapes a byte
        out[0] = p[at]
        out += 1
        at += 1
    value.length = <int32_t> (out - value.p)
    child.start = c.scratch
    child.end = out
    code = column_run(child, &value, 1, True)
    child.start = c.start
    child.end = c.end
    return DEFERRED if code else FINE


cdef inline int read_array_text(ColumnBuffers* c, const uint8_t* p, int32_t n) noexcept nogil:
    cdef Slice group[GROUP]
    cdef Py_ssize_t filled = 0
    cdef bint all_values = True, escaped
    cdef int32_t at = 1, start
    if n < 2 or p[0] != 0x7B or p[n - 1] != 0x7D:
        return DEFERRED
    if n == 2:
        return FINE
    while True:
        # From here on the last byte, a closing brace, ends every search.
        escaped = False
        if p[at] == 0x22:
            at += 1
            start = at
            while at < n and p[at] != 0x22:
                if p[at] == 0x5C:
                    escaped = True
                    at += 1
                at += 1
            if at >= n:
                return DEFERRED
            group[filled].form = TEXT
            group[filled].length = at - start
            at += 1
        else:
            start = at
            while is_bare(p[at], c.delimiter):
                at += 1
            if at == start:
                return DEFERRED
            group[filled].form = NO_VALUE if is_null(p + start, at - start) else TEXT
            all_values = all_values and group[filled].form == TEXT
            group[filled].length = at - start
        group[filled].p = p + start
        if escaped or filled == GROUP - 1:
            filled += not escaped
            if filled and column_run(c.child, group, filled, all_values):
                return DEFERRED
            if escaped and append_unescaped(c, p + start, group[filled].length):
                return DEFERRED
            filled = 0
            all_values = True
        else:
            filled += 1
        if at >= n - 1:
            break
        if p[at] != c.delimiter:
            return DEFERRED
        at += 1
    if at != n - 1:
        return DEFERRED
    if filled and column_run(c.child, group, filled, all_values):
        return DEFERRED
    return FINE


cdef inline int read_array_binary(ColumnBuffers* c, const uint8_t* p, int32_t n) noexcept nogil:
    cdef Slice group[GROUP]
    cdef const uint8_t* end = p + n
    cdef Py_ssize_t filled = 0
    cdef bint all_values = True
    cdef int32_t dimensions, count, length
    if n < ARRAY_HEAD or load_u32(p + 4) > 1:
        return DEFERRED
    if load_u32(p + 8) != c.element_oid and not c.any_element:
        return DEFERRED
    dimensions = load_i32(p)
    if dimensions == 0:
        return FINE if n == ARRAY_HEAD else DEFERRED
    if dimensions != 1 or n < ARRAY_HEAD + DIMENSION:
        return DEFERRED
    count = load_i32(p + ARRAY_HEAD)
    if count < 0 or count > n >> 2:
        return DEFERRED
    if <int64_t> load_i32(p + ARRAY_HEAD + 4) + count - 1 > INT32_MAX:
        return DEFERRED
    p += ARRAY_HEAD + DIMENSION
    while count:
        if end - p < 4:
            return DEFERRED
        length = load_i32(p)
        p += 4
        group[filled].p = p
        group[filled].length = length
        group[filled].form = BINARY
        if length == -1:
            group[filled].form = NO_VALUE
            all_values = False
        elif length < 0 or length > end - p:
            return DEFERRED
        else:
            p += length
        filled += 1
        count -= 1
        if filled == GROUP or count == 0:
            if column_run(c.child, group, filled, all_values):
                return DEFERRED
            filled = 0
            all_values = True
    return FINE if p == end else DEFERRED


cdef inline void decode_arrays(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef ColumnBuffers* child = c.child
    cdef Py_ssize_t i, length, used, nulls
    cdef int status
    for i in range(n):
        length = child.length
        used = child.used
        nulls = child.nulls
        if likely(values[i].form == TEXT):
            status = read_array_text(c, values[i].p, values[i].length)
        elif values[i].form == BINARY:
            status = read_array_binary(c, values[i].p, values[i].length)
        else:
            status = MISSING
        if unlikely(child.out_of_memory):
            c.out_of_memory = True
            return
        if unlikely(status == DEFERRED or child.deferred_count):
            status = DEFERRED
            column_rewind(child, length, used, nulls)
            child.deferred_count = 0
        elif unlikely(child.invalid_count):
            column_mark_invalid(c, c.length + i)
        child.invalid_count = 0
        if unlikely(status):
            column_mark(c, i, &values[i], status)
        if unlikely(
            c.overflow_row < 0 and (child.overflow_row >= 0 or child.length > MAX_BYTES)
        ):
            c.overflow_row = c.length + i
        offsets[i] = <int32_t> child.length
