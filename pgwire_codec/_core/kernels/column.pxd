"""Blocks of values in, one column's buffers out: what every kernel shares.

A kernel appends a block of rows to a Column. It decodes the ordinary values; any other row it only
tells from them and hands to `column_odd`, with the cause. What is malformed, and what is spelled in
a way not worth a kernel's code, becomes a *hard* row: its slot is kept, and the reference decoder
has the last word on it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pgwire_codec._core.kernels.memory cimport pool_expect, pool_free, pool_realloc


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


cdef inline void column_init(Column* c) noexcept nogil:
    memset(c, 0, sizeof(Column))
    c.overflow_row = -1


cdef inline void column_clear(Column* c) noexcept nogil:
    """Free all that the column, and its child, still own."""
    if not c.is_lent:
        pool_free(c.values)
    pool_free(c.validity)
    pool_free(c.bytes)
    pool_free(c.hard)
    pool_free(c.invalid)
    pool_free(c.scratch)
    if c.child is not NULL:
        column_clear(c.child)
        pool_free(c.child)
    column_init(c)


cdef inline int column_run(
    Column* c, const Slot* slots, Py_ssize_t n, bint all_values
) noexcept nogil:
    """Append n rows. `all_values`: no slot is without a value. 0, or -1 out of memory."""
    if n > c.capacity - c.length and column_reserve(c, c.length + n):
        return -1
    if not all_values or c.validity is not NULL:
        # From the first null on the bitmap reaches as far as the rows.
        if cover_validity(c, c.length + n):
            return -1
    c.all_values = all_values
    c.kernel(c, slots, n)
    c.length += n
    return -1 if c.failed else 0


cdef inline int column_reserve(Column* c, Py_ssize_t rows) noexcept nogil:
    """Make room for that many rows in all, and the offset behind the last of them."""
    cdef void* grown
    if rows <= c.capacity:
        return 0
    rows = max(rows, c.capacity + c.capacity // 2)
    grown = pool_realloc(c.values, <size_t> ((rows + 1) * c.width))
    if grown is NULL:
        c.failed = True
        return -1
    # The first time `rows` is what will come; later it is a guess.
    pool_expect(grown, <size_t> ((rows + 1) * c.width), c.capacity == 0)
    c.values = <uint8_t*> grown
    if c.capacity == 0:
        memset(c.values, 0, <size_t> c.width)  # the first offset
    c.capacity = rows
    return 0


cdef inline int cover_validity(Column* c, Py_ssize_t rows) noexcept nogil:
    """Let the bitmap reach over that many rows; a bit that nothing clears is set."""
    cdef Py_ssize_t size = (max(rows, c.capacity) + 7) >> 3
    cdef void* grown
    if size <= c.validity_size:
        return 0
    grown = pool_realloc(c.validity, <size_t> size)
    if grown is NULL:
        c.failed = True
        return -1
    c.validity = <uint8_t*> grown
    memset(c.validity + c.validity_size, 0xFF, <size_t> (size - c.validity_size))
    c.validity_size = size
    return 0


cdef inline int column_grow_bytes(Column* c, int64_t row, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t room, guess = 0
    cdef void* grown
    if more > MAX_BYTES - c.used:
        if c.overflow_row < 0:
            c.overflow_row = row
            c.overflow_length = more
        return -1
    # Doubling a large buffer would leave half of it unused at the worst moment.
    room = c.room * 2 if c.room < (1 << 20) else c.room + c.room // 2
    if BLOCK <= c.length < c.capacity:
        # What the rows so far took says what the others will.
        guess = <Py_ssize_t> (1.03 * c.used / c.length * c.capacity)
        guess = max(guess, c.used + (c.used >> 3))
    room = min(max(guess if guess else room, c.used + more, 16 * BLOCK), MAX_BYTES)
    grown = pool_realloc(c.bytes, <size_t> (room + SLACK))
    if grown is NULL:
        c.failed = True
        return -1
    pool_expect(grown, <size_t> (room + SLACK), guess > 0)
    c.bytes = <uint8_t*> grown
    c.room = room
    return 0


cdef inline void mark_null(Column* c, int64_t row) noexcept nogil:
    if cover_validity(c, row + 1):
        return
    c.validity[row >> 3] &= ~(<uint8_t> (1 << (row & 7)))
    c.nulls += 1


cdef inline void column_note_invalid(Column* c, int64_t row) noexcept nogil:
    cdef Py_ssize_t room
    cdef void* grown
    if c.invalid_count == c.invalid_room:
        room = max(64, c.invalid_room * 2)
        grown = pool_realloc(c.invalid, <size_t> room * sizeof(int64_t))
        if grown is NULL:
            c.failed = True
            return
        c.invalid = <int64_t*> grown
        c.invalid_room = room
    c.invalid[c.invalid_count] = row
    c.invalid_count += 1


cdef inline void note_hard(Column* c, int64_t row, const Slot* slot) noexcept nogil:
    cdef Py_ssize_t room
    cdef void* grown
    if c.hard_count == c.hard_room:
        room = max(64, c.hard_room * 2)
        grown = pool_realloc(c.hard, <size_t> room * sizeof(Hard))
        if grown is NULL:
            c.failed = True
            return
        c.hard = <Hard*> grown
        c.hard_room = room
    c.hard[c.hard_count].row = row
    c.hard[c.hard_count].slot = slot[0]
    c.hard_count += 1


cdef inline int column_odd(Column* c, Py_ssize_t index, const Slot* slot, int odd) noexcept nogil:
    """Take note of the block's row `index`, which is not ordinary.

    BELOW or ABOVE if that end of the type's range becomes its value; else FINE: the row stays zero.
    """
    cdef int64_t row = c.length + index
    if odd == MISSING:
        mark_null(c, row)
        return FINE
    if odd == HARD or c.policy == RAISE or (odd == OUTSIDE and c.policy == CLAMPED):
        note_hard(c, row, slot)
        return FINE
    column_note_invalid(c, row)
    if c.policy == NULLED or odd == NOWHERE:
        mark_null(c, row)
        return FINE
    return odd


cdef inline void column_rewind(
    Column* c, Py_ssize_t length, Py_ssize_t used, Py_ssize_t nulls
) noexcept nogil:
    """Take back the rows from `length` on."""
    cdef Py_ssize_t row
    if c.nulls != nulls:
        for row in range(length, c.length):
            c.validity[row >> 3] |= <uint8_t> (1 << (row & 7))
    c.length = length
    c.used = used
    c.nulls = nulls


cdef inline void column_lend(Column* c, Column* to, Py_ssize_t row, Py_ssize_t rows) noexcept nogil:
    """Let an empty column, without offsets, write its rows where those of `c` from `row` on are."""
    to.values = c.values + row * c.width
    to.capacity = rows
    to.is_lent = True


cdef inline int column_append(Column* c, Column* other) noexcept nogil:
    """Put the rows of another column of the same type behind those of `c`. 0, or -1 out of memory.

    They are no views. Values that were lent are where they belong already.
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
    elif not other.is_lent:
        memcpy(c.values + base * c.width, other.values, <size_t> (other.length * c.width))
    if other.nulls and append_validity(c, other):
        return -1
    c.length = base + other.length
    if c.validity is not NULL and cover_validity(c, c.length):
        return -1
    c.any_binary |= other.any_binary
    if c.overflow_row < 0 and other.overflow_row >= 0:
        c.overflow_row = base + other.overflow_row
        c.overflow_length = other.overflow_length
    for at in range(other.hard_count):
        note_hard(c, base + other.hard[at].row, &other.hard[at].slot)
    for at in range(other.invalid_count):
        column_note_invalid(c, base + other.invalid[at])
    return -1 if c.failed else 0


cdef inline int append_offsets(Column* c, Column* other) noexcept nogil:
    """Append what the offsets of another column point to, and the offsets."""
    cdef int32_t* offsets = <int32_t*> c.values + c.length
    cdef const int32_t* others = <const int32_t*> other.values
    cdef int32_t end = offsets[0]
    cdef Py_ssize_t at
    for at in range(1, other.length + 1):
        offsets[at] = end + others[at]
    if c.child is not NULL:
        return column_append(c.child, other.child)
    if other.used > c.room - c.used and column_grow_bytes(c, c.length, other.used):
        return -1
    if other.used:
        memcpy(c.bytes + c.used, other.bytes, <size_t> other.used)
        c.used += other.used
    return 0


cdef inline int append_validity(Column* c, Column* other) noexcept nogil:
    """Append another column's null rows."""
    cdef Py_ssize_t row
    if cover_validity(c, c.length + other.length):
        return -1
    if c.length & 7 == 0:
        memcpy(c.validity + (c.length >> 3), other.validity, <size_t> ((other.length + 7) >> 3))
        c.nulls += other.nulls
        return 0
    for row in range(other.length):
        if not other.validity[row >> 3] >> (row & 7) & 1:
            mark_null(c, c.length + row)
    return 0


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
