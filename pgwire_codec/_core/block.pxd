# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Blocks of values in, one column's buffers out: what every kernel shares.

A kernel appends a block of rows to a Column. It decodes the ordinary values; any other row it only
tells from them and hands to `column_odd`, with the cause. What is malformed, and what is spelled in
a way not worth a kernel's code, becomes a *hard* row: its slot is kept, and the reference decoder
has the last word on it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from *:
    bint likely(bint condition) noexcept nogil
    bint unlikely(bint condition) noexcept nogil


cdef struct Slot:
    # Where one value of one row lies.
    const uint8_t* p  # at least 12 readable bytes lie before it; none are promised behind the value
    int32_t length
    int32_t kind  # TEXT, BINARY, or negative: no value


cdef enum:
    TEXT = 0
    BINARY = 1
    BLOCK = 256  # rows that a caller hands over at once

cdef enum:
    MAX_BYTES = 0x7FFFFFFF  # what Arrow's 32-bit offsets address
    SLACK = 64  # bytes behind `used` that a copy may spill into


cdef enum Odd:
    # Why a row has no ordinary value.
    FINE = 0
    MISSING  # no value was sent
    HARD  # the reference decides
    BELOW  # a good value below the type's range
    ABOVE  # a good value above it
    NOWHERE  # a good value that the type lacks, without a nearest one
    OUTSIDE  # a good value that the type lacks, whose nearest one the reference knows


cdef enum Policy:
    RAISE = 0
    NULLED = 1
    CLAMPED = 2


cdef struct Hard:
    int64_t row
    Slot slot


ctypedef void (*Kernel)(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil


cdef struct Column:
    Kernel kernel
    const uint8_t* start  # of the buffer that the slots lie in
    const uint8_t* end  # behind it
    Policy policy
    bint failed  # out of memory
    bint all_values  # whether every slot of the block at hand has a value

    Py_ssize_t length  # rows that are done
    Py_ssize_t capacity  # rows that there is room for
    Py_ssize_t width  # bytes a row in `values`
    uint8_t* values  # fixed-width values, or views, or the offsets (int32) of bytes or elements
    bint has_offsets
    bint is_lent  # whether `values` are part of another column's
    uint8_t* validity  # bitmap; NULL while no row is null
    Py_ssize_t validity_size
    Py_ssize_t nulls

    uint8_t* bytes  # of strings and binaries
    Py_ssize_t used
    Py_ssize_t room  # for bytes, without the slack
    int64_t overflow_row  # the first whose bytes no offset reaches; -1 for none
    int64_t overflow_length  # of that row

    Hard* hard
    Py_ssize_t hard_count
    Py_ssize_t hard_room
    int64_t* invalid  # rows made null or clamped, ascending
    Py_ssize_t invalid_count
    Py_ssize_t invalid_room

    # What a kernel is told of the type; each says which it reads.
    int64_t low
    int64_t high
    int wire_width
    int precision
    int scale
    uint64_t mask
    int text_form
    int binary_form
    bint any_binary
    bint hurry  # whether to try the loop for what most columns are, without a branch a value
    int patience  # blocks until it is tried again
    uint8_t delimiter
    uint32_t element_oid  # that a binary array must tell
    bint any_element  # … unless it may tell any
    Column* child
    uint8_t* scratch
    Py_ssize_t scratch_size


cdef void column_init(Column* c) noexcept nogil
cdef void column_clear(Column* c) noexcept nogil
cdef int column_run(
    Column* c, const Slot* slots, Py_ssize_t n, bint all_values
) noexcept nogil
cdef int column_reserve(Column* c, Py_ssize_t rows) noexcept nogil
cdef int column_grow_bytes(Column* c, int64_t row, Py_ssize_t more) noexcept nogil
cdef int column_odd(Column* c, Py_ssize_t index, const Slot* slot, int odd) noexcept nogil
cdef void column_note_invalid(Column* c, int64_t row) noexcept nogil
cdef void column_lend(Column* c, Column* to, Py_ssize_t row, Py_ssize_t rows) noexcept nogil
cdef int column_append(Column* c, Column* other) noexcept nogil
cdef void column_rewind(
    Column* c, Py_ssize_t length, Py_ssize_t used, Py_ssize_t nulls
) noexcept nogil


cdef inline int column_room(Column* c, int64_t row, Py_ssize_t more) noexcept nogil:
    """Make room for a row's bytes and the slack; nonzero if there is none."""
    if likely(more <= c.room - c.used):
        return 0
    return column_grow_bytes(c, row, more)


cdef inline bint hurries(Column* c) noexcept nogil:
    """Say whether to try a block in a hurry."""
    if not c.all_values:  # then there are slots that point nowhere
        return False
    if c.patience:
        c.patience -= 1
        return False
    return c.hurry


cdef inline bint hurried(Column* c, uint64_t strange) noexcept nogil:
    """Say whether the block is done: nothing was strange. If not, wait before the next try."""
    if strange:
        c.patience = 16
    return strange == 0


cdef inline int64_t nearest(int odd, int64_t low, int64_t high) noexcept nogil:
    """Give the value that column_odd's answer stands for."""
    if odd == BELOW:
        return low
    return high if odd == ABOVE else 0
