"""One-dimensional arrays as lists, in both forms.

The elements become slots for the child's own kernel. An element with escapes is unescaped into
memory that lasts only so long, so a row any of whose elements is hard is hard itself, and the
child's rows of it are taken back. Bounds that are written out, and more dimensions, are hard.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from pgwire_codec._core.kernels.column cimport (
    BINARY,
    FINE,
    HARD,
    MAX_BYTES,
    MISSING,
    TEXT,
    Column,
    Kernel,
    Slot,
    column_note_invalid,
    column_odd,
    column_rewind,
    column_run,
    likely,
    unlikely,
)
from pgwire_codec._core.kernels.memory cimport pool_realloc
from pgwire_codec._core.wire.primitives cimport load_i32, load_u32

cdef enum:
    GROUP = 64  # elements that the child is handed at once
    BEFORE = 16  # bytes before an unescaped element: a slot's promise
    ARRAY_HEAD = 12  # array_send: dimensions, flags, element type
    DIMENSION = 8  # and length and lower bound of each dimension


cdef inline Kernel list_kernel(Column* c, str delimiter, element_oid):
    """Set the column up; its child is set up already.

    `element_oid` is what a binary array must tell, None where it may tell another.
    """
    c.width = 4
    c.delimiter = ord(delimiter)
    c.any_element = element_oid is None
    c.element_oid = element_oid or 0
    return run_list


cdef inline bint is_bare(uint8_t byte, uint8_t delimiter) noexcept nogil:
    """Say whether an element may have this byte outside quotes."""
    if byte == delimiter or byte == 0x22 or byte == 0x5C or byte == 0x7B or byte == 0x7D:
        return False
    return byte != 0x20 and (byte < 0x09 or byte > 0x0D)


cdef inline bint is_null(const uint8_t* p, int32_t n) noexcept nogil:
    return (
        n == 4
        and p[0] | 0x20 == 0x6E and p[1] | 0x20 == 0x75
        and p[2] | 0x20 == 0x6C and p[3] | 0x20 == 0x6C
    )


cdef inline int run_unescaped(Column* c, const uint8_t* p, int32_t n) noexcept nogil:
    """Give the child one element, n bytes with escapes between quotes."""
    cdef Column* child = c.child
    cdef Py_ssize_t size = n + BEFORE
    cdef uint8_t* out
    cdef void* grown
    cdef Slot slot
    cdef int32_t at = 0
    cdef int code
    if size > c.scratch_size:
        grown = pool_realloc(c.scratch, <size_t> size)
        if grown is NULL:
            c.failed = True
            return HARD
        c.scratch = <uint8_t*> grown
        c.scratch_size = size
    out = c.scratch + BEFORE
    slot.p = out
    slot.kind = TEXT
    while at < n:
        at += p[at] == 0x5C  # the caller has seen what it escapes
        out[0] = p[at]
        out += 1
        at += 1
    slot.length = <int32_t> (out - slot.p)
    child.start = c.scratch
    child.end = out
    code = column_run(child, &slot, 1, True)
    child.start = c.start
    child.end = c.end
    return HARD if code else FINE


cdef inline int text_list(Column* c, const uint8_t* p, int32_t n) noexcept nogil:
    cdef Slot group[GROUP]
    cdef Py_ssize_t filled = 0
    cdef bint all_values = True, escaped
    cdef int32_t at = 1, start
    if n < 2 or p[0] != 0x7B or p[n - 1] != 0x7D:
        return HARD
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
                return HARD
            group[filled].kind = TEXT
            group[filled].length = at - start
            at += 1
        else:
            start = at
            while is_bare(p[at], c.delimiter):
                at += 1
            if at == start:
                return HARD
            group[filled].kind = -1 if is_null(p + start, at - start) else TEXT
            all_values = all_values and group[filled].kind == TEXT
            group[filled].length = at - start
        group[filled].p = p + start
        if escaped or filled == GROUP - 1:
            filled += not escaped
            if filled and column_run(c.child, group, filled, all_values):
                return HARD
            if escaped and run_unescaped(c, p + start, group[filled].length):
                return HARD
            filled = 0
            all_values = True
        else:
            filled += 1
        if at >= n - 1:
            break
        if p[at] != c.delimiter:
            return HARD
        at += 1
    if at != n - 1:
        return HARD
    if filled and column_run(c.child, group, filled, all_values):
        return HARD
    return FINE


cdef inline int binary_list(Column* c, const uint8_t* p, int32_t n) noexcept nogil:
    cdef Slot group[GROUP]
    cdef const uint8_t* end = p + n
    cdef Py_ssize_t filled = 0
    cdef bint all_values = True
    cdef int32_t dimensions, count, length
    if n < ARRAY_HEAD or load_u32(p + 4) > 1:
        return HARD
    if load_u32(p + 8) != c.element_oid and not c.any_element:
        return HARD
    dimensions = load_i32(p)
    if dimensions == 0:
        return FINE if n == ARRAY_HEAD else HARD
    if dimensions != 1 or n < ARRAY_HEAD + DIMENSION:
        return HARD
    count = load_i32(p + ARRAY_HEAD)
    if count < 0 or count > n >> 2:
        return HARD
    if <int64_t> load_i32(p + ARRAY_HEAD + 4) + count - 1 > INT32_MAX:
        return HARD
    p += ARRAY_HEAD + DIMENSION
    while count:
        if end - p < 4:
            return HARD
        length = load_i32(p)
        p += 4
        group[filled].p = p
        group[filled].length = length
        group[filled].kind = BINARY
        if length == -1:
            group[filled].kind = -1
            all_values = False
        elif length < 0 or length > end - p:
            return HARD
        else:
            p += length
        filled += 1
        count -= 1
        if filled == GROUP or count == 0:
            if column_run(c.child, group, filled, all_values):
                return HARD
            filled = 0
            all_values = True
    return FINE if p == end else HARD


cdef inline void run_list(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef Column* child = c.child
    cdef Py_ssize_t i, length, used, nulls
    cdef int odd
    for i in range(n):
        length = child.length
        used = child.used
        nulls = child.nulls
        if likely(slots[i].kind == TEXT):
            odd = text_list(c, slots[i].p, slots[i].length)
        elif slots[i].kind == BINARY:
            odd = binary_list(c, slots[i].p, slots[i].length)
        else:
            odd = MISSING
        if unlikely(child.failed):
            c.failed = True
            return
        if unlikely(odd == HARD or child.hard_count):
            odd = HARD
            column_rewind(child, length, used, nulls)
            child.hard_count = 0
        elif unlikely(child.invalid_count):
            column_note_invalid(c, c.length + i)
        child.invalid_count = 0
        if unlikely(odd):
            column_odd(c, i, &slots[i], odd)
        if unlikely(
            c.overflow_row < 0 and (child.overflow_row >= 0 or child.length > MAX_BYTES)
        ):
            c.overflow_row = c.length + i
        offsets[i] = <int32_t> child.length
