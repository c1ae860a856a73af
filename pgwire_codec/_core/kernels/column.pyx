"""The growing buffers of one column, and the rows of it that are not ordinary.

These functions are in a module of their own so that they are not inlined into kernels.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from pgwire_codec._core.kernels.memory cimport pool_expect, pool_free, pool_realloc


cdef void column_init(ColumnBuffers* c) noexcept nogil:
    memset(c, 0, sizeof(ColumnBuffers))
    c.overflow_row = -1


cdef void column_clear(ColumnBuffers* c) noexcept nogil:
    """Free all that the column, and its child, still own."""
    if not c.borrows_values:
        pool_free(c.values)
    pool_free(c.validity)
    pool_free(c.bytes)
    pool_free(c.deferred)
    pool_free(c.invalid)
    pool_free(c.scratch)
    if c.child is not NULL:
        column_clear(c.child)
        pool_free(c.child)
    column_init(c)


cdef int column_run(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, bint all_values
) noexcept nogil:
    """Append n rows, and return 0, or -1 if out of memory.

    `all_values` states that no row lacks a value.
    """
    if n > c.capacity - c.length and column_reserve(c, c.length + n):
        return -1
    if not all_values or c.validity is not NULL:
        # From the first null on the bitmap reaches as far as the rows.
        if reserve_validity(c, c.length + n):
            return -1
    c.all_values = all_values
    c.kernel(c, values, n)
    c.length += n
    return -1 if c.out_of_memory else 0


# Capacity.


cdef void* column_grow(ColumnBuffers* c, void* p, Py_ssize_t size) noexcept nogil:
    """Return memory of that size with the contents of p; NULL, and note it, if out of memory."""
    cdef void* larger = pool_realloc(p, <size_t> size)
    if larger is NULL:
        c.out_of_memory = True
    return larger


cdef int column_reserve(ColumnBuffers* c, Py_ssize_t rows) noexcept nogil:
    """Reserve memory for that many rows in all, and for the offset after the last of them."""
    cdef void* larger
    if rows <= c.capacity:
        return 0
    rows = max(rows, c.capacity + c.capacity // 2)
    larger = column_grow(c, c.values, (rows + 1) * c.width)
    if larger is NULL:
        return -1
    # The first `rows` is how many will come; a later one is a guess.
    pool_expect(larger, <size_t> ((rows + 1) * c.width), c.capacity == 0)
    c.values = <uint8_t*> larger
    if c.capacity == 0:
        memset(c.values, 0, <size_t> c.width)  # the first offset
    c.capacity = rows
    return 0


cdef int reserve_validity(ColumnBuffers* c, Py_ssize_t rows) noexcept nogil:
    """Extend the bitmap over that many rows; a bit that nothing clears is set."""
    cdef Py_ssize_t size = (max(rows, c.capacity) + 7) >> 3
    cdef void* larger
    if size <= c.validity_size:
        return 0
    larger = column_grow(c, c.validity, size)
    if larger is NULL:
        return -1
    c.validity = <uint8_t*> larger
    memset(c.validity + c.validity_size, 0xFF, <size_t> (size - c.validity_size))
    c.validity_size = size
    return 0


cdef int column_grow_bytes(ColumnBuffers* c, int64_t row, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity, guess = 0
    cdef void* larger
    if more > MAX_BYTES - c.used:
        if c.overflow_row < 0:
            c.overflow_row = row
            c.overflow_length = more
        return -1
    capacity = c.bytes_capacity
    # Doubling a large buffer would leave half of it unused at the worst moment.
    capacity = capacity * 2 if capacity < (1 << 20) else capacity + capacity // 2
    if BLOCK <= c.length < c.capacity:
        # An estimate from the rows so far.
        guess = <Py_ssize_t> (1.03 * c.used / c.length * c.capacity)
        guess = max(guess, c.used + (c.used >> 3))
    capacity = min(max(guess if guess else capacity, c.used + more, 16 * BLOCK), MAX_BYTES)
    larger = column_grow(c, c.bytes, capacity + SLACK)
    if larger is NULL:
        return -1
    pool_expect(larger, <size_t> (capacity + SLACK), guess > 0)
    c.bytes = <uint8_t*> larger
    c.bytes_capacity = capacity
    return 0


cdef void column_borrow(
    ColumnBuffers* c, const ColumnBuffers* of, Py_ssize_t row, Py_ssize_t rows
) noexcept nogil:
    """Make an empty column without offsets write its rows to those of another, from `row` on."""
    c.values = of.values + row * of.width
    c.capacity = rows
    c.borrows_values = True


# Rows that are not ordinary.


cdef void mark_null(ColumnBuffers* c, int64_t row) noexcept nogil:
    if reserve_validity(c, row + 1):
        return
    c.validity[row >> 3] &= ~(<uint8_t> (1 << (row & 7)))
    c.nulls += 1


cdef void column_mark_invalid(ColumnBuffers* c, int64_t row) noexcept nogil:
    cdef Py_ssize_t capacity = c.invalid_capacity
    cdef void* larger
    if c.invalid_count == capacity:
        capacity = max(64, capacity * 2)
        larger = column_grow(c, c.invalid, capacity * <Py_ssize_t> sizeof(int64_t))
        if larger is NULL:
            return
        c.invalid = <int64_t*> larger
        c.invalid_capacity = capacity
    c.invalid[c.invalid_count] = row
    c.invalid_count += 1


cdef void defer(ColumnBuffers* c, int64_t row, const Slice* value) noexcept nogil:
    cdef Py_ssize_t capacity = c.deferred_capacity
    cdef void* larger
    if c.deferred_count == capacity:
        capacity = max(64, capacity * 2)
        larger = column_grow(c, c.deferred, capacity * <Py_ssize_t> sizeof(Deferred))
        if larger is NULL:
            return
        c.deferred = <Deferred*> larger
        c.deferred_capacity = capacity
    c.deferred[c.deferred_count].row = row
    c.deferred[c.deferred_count].value = value[0]
    c.deferred_count += 1


cdef int column_mark(
    ColumnBuffers* c, Py_ssize_t index, const Slice* value, int status
) noexcept nogil:
    """Mark the block's row `index`, which is not ordinary.

    Return BELOW or ABOVE if that end of the type's range becomes its value, else FINE: the row
    stays zero.
    """
    cdef int64_t row = c.length + index
    if status == MISSING:
        mark_null(c, row)
        return FINE
    if (
        status == DEFERRED
        or c.policy == RAISE
        or (status == OTHER_NEAREST and c.policy == CLAMPED)
    ):
        defer(c, row, value)
        return FINE
    column_mark_invalid(c, row)
    if c.policy == NULLED or status == NO_NEAREST:
        mark_null(c, row)
        return FINE
    return status


cdef void column_rewind(
    ColumnBuffers* c, Py_ssize_t length, Py_ssize_t used, Py_ssize_t nulls
) noexcept nogil:
    """Remove the rows from `length` on."""
    cdef Py_ssize_t row
    if c.nulls != nulls:
        for row in range(length, c.length):
            c.validity[row >> 3] |= <uint8_t> (1 << (row & 7))
    c.length = length
    c.used = used
    c.nulls = nulls


cdef Py_ssize_t column_validity_size(ColumnBuffers* c) noexcept nogil:
    """Return the bytes of the bitmap of a column with nulls, and clear the bits after its rows."""
    if c.length & 7:
        c.validity[c.length >> 3] &= <uint8_t> ((1 << (c.length & 7)) - 1)
    return (c.length + 7) >> 3


# Columns of parts of the rows.


cdef int column_append(ColumnBuffers* c, ColumnBuffers* other) noexcept nogil:
    """Append the rows of another column of the same type; return 0, or -1 if out of memory.

    The columns do not contain views. Borrowed values are where they belong already.
    """
    cdef Py_ssize_t base = c.length
    cdef Py_ssize_t at
    if other.length == 0:
        return 0
    if column_reserve(c, base + other.length):
        return -1
    if other.has_offsets:
        if append_offsets(c, other):
            return -1
    elif not other.borrows_values:
        memcpy(c.values + base * c.width, other.values, <size_t> (other.length * c.width))
    if other.nulls and append_validity(c, other):
        return -1
    c.length = base + other.length
    if c.validity is not NULL and reserve_validity(c, c.length):
        return -1
    c.any_binary |= other.any_binary
    if c.overflow_row < 0 and other.overflow_row >= 0:
        c.overflow_row = base + other.overflow_row
        c.overflow_length = other.overflow_length
    for at in range(other.deferred_count):
        defer(c, base + other.deferred[at].row, &other.deferred[at].value)
    for at in range(other.invalid_count):
        column_mark_invalid(c, base + other.invalid[at])
    return -1 if c.out_of_memory else 0


cdef int append_offsets(ColumnBuffers* c, ColumnBuffers* other) noexcept nogil:
    """Append the offsets of another column, and what they point to."""
    cdef int32_t* offsets = <int32_t*> c.values + c.length
    cdef const int32_t* others = <const int32_t*> other.values
    cdef int32_t end = offsets[0]
    cdef Py_ssize_t at
    for at in range(1, other.length + 1):
        offsets[at] = end + others[at]
    if c.child is not NULL:
        return column_append(c.child, other.child)
    if column_reserve_bytes(c, c.length, other.used):
        return -1
    if other.used:
        memcpy(c.bytes + c.used, other.bytes, <size_t> other.used)
        c.used += other.used
    return 0


cdef int append_validity(ColumnBuffers* c, ColumnBuffers* other) noexcept nogil:
    """Append the null rows of another column."""
    cdef Py_ssize_t row
    if reserve_validity(c, c.length + other.length):
        return -1
    if c.length & 7 == 0:
        memcpy(c.validity + (c.length >> 3), other.validity, <size_t> ((other.length + 7) >> 3))
        c.nulls += other.nulls
        return 0
    for row in range(other.length):
        if not other.validity[row >> 3] >> (row & 7) & 1:
            mark_null(c, c.length + row)
    return 0
