"""ColumnBuffers: the growing buffers of one column, and the rows of it that are not ordinary.

A kernel appends a block of rows to them. It decodes ordinary values itself. It reports any other
row to `column_mark`, which makes it null or invalid, or *defers* it: the slice of its value is
kept, and the fallback, which is the reference decoder, decodes it or raises. Malformed values are
deferred, and so are spellings that are not worth the code of a kernel.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define PGWIRE_AS_BINARY (UINT64_C(1) << 32)
    """
    const uint64_t AS_BINARY "PGWIRE_AS_BINARY"
    bint likely(bint condition) noexcept nogil
    bint unlikely(bint condition) noexcept nogil


cdef struct Slice:
    # Place of the value of one row.
    const uint8_t* p  # at least 12 readable bytes lie before it; none are promised after the value
    int32_t length
    int32_t form


cdef inline void fill_slice(
    Slice* value, const uint8_t* p, uint32_t length, uint32_t form
) noexcept nogil:
    """Write a slice whose length is not negative, with one store for length and form."""
    cdef uint64_t both = length | <uint64_t> form << 32
    value.p = p
    memcpy(<uint8_t*> value + sizeof(value.p), &both, sizeof(both))


cdef inline uint64_t length_and_form(const Slice* value) noexcept nogil:
    """Return the length of a value in text form; `AS_BINARY` more for one in binary form."""
    cdef uint64_t both
    memcpy(&both, <const uint8_t*> value + sizeof(value.p), sizeof(both))
    return both


cdef enum:
    # Forms of a value.
    NO_VALUE = -1
    TEXT = 0
    BINARY = 1

cdef enum:
    BLOCK = 256  # rows that a caller passes at once, at most
    MAX_BYTES = 0x7FFFFFFF  # that Arrow's 32-bit offsets address
    SLACK = 64  # bytes after `used` that a copy may spill into


cdef enum Status:
    # Why a row has no ordinary value.
    FINE = 0
    MISSING  # no value was sent
    DEFERRED  # left to the fallback
    BELOW  # a good value below the type's range
    ABOVE  # a good value above it
    NO_NEAREST  # a good value that the type lacks, without a nearest one: NaN
    OTHER_NEAREST  # a good value that the type lacks, whose nearest one the fallback finds


cdef enum Policy:
    RAISE = 0
    NULLED = 1
    CLAMPED = 2


cdef struct Deferred:
    int64_t row
    Slice value


ctypedef void (*Kernel)(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil


cdef struct ColumnBuffers:
    Kernel kernel
    const uint8_t* start  # of the buffer that the values lie in
    const uint8_t* end
    Policy policy
    bint out_of_memory
    bint all_values  # whether every row of the current block has a value

    Py_ssize_t length  # rows that are done
    Py_ssize_t capacity  # in rows
    Py_ssize_t width  # bytes of a row in `values`
    uint8_t* values  # fixed-width values, or views, or the offsets (int32) of bytes or elements
    bint has_offsets
    bint borrows_values  # whether `values` are part of another column's
    uint8_t* validity  # bitmap; NULL while no row is null
    Py_ssize_t validity_size
    Py_ssize_t nulls

    uint8_t* bytes  # of strings and binaries
    Py_ssize_t used
    Py_ssize_t bytes_capacity  # without the slack
    int64_t overflow_row  # the first whose bytes no offset reaches; -1 for none
    int64_t overflow_length  # of that row

    Deferred* deferred
    Py_ssize_t deferred_count
    Py_ssize_t deferred_capacity
    int64_t* invalid  # rows made null or clamped, ascending
    Py_ssize_t invalid_count
    Py_ssize_t invalid_capacity

    # Parameters of the type, for its kernel; each kernel documents those that it reads.
    int64_t low
    int64_t high
    int wire_width
    int precision
    int scale
    uint64_t mask
    int text_rendering
    int binary_rendering
    bint any_binary
    bint has_fast_path  # a loop without a branch for each value, for what most columns contain
    bint has_signs  # whether the fast path of integers expects a minus sign
    int backoff  # blocks until the fast path is tried again
    uint8_t delimiter
    uint32_t element_oid  # that a binary array must declare
    bint any_element  # whether it may declare any other
    ColumnBuffers* child
    uint8_t* scratch
    Py_ssize_t scratch_size


cdef void column_init(ColumnBuffers* c) noexcept nogil
cdef void column_clear(ColumnBuffers* c) noexcept nogil
cdef int column_run(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, bint all_values
) noexcept nogil
cdef void* column_grow(ColumnBuffers* c, void* p, Py_ssize_t size) noexcept nogil
cdef int column_reserve(ColumnBuffers* c, Py_ssize_t rows) noexcept nogil
cdef int column_grow_bytes(ColumnBuffers* c, int64_t row, Py_ssize_t more) noexcept nogil
cdef void column_borrow(
    ColumnBuffers* c, const ColumnBuffers* of, Py_ssize_t row, Py_ssize_t rows
) noexcept nogil
cdef void column_mark_invalid(ColumnBuffers* c, int64_t row) noexcept nogil
cdef int column_mark(
    ColumnBuffers* c, Py_ssize_t index, const Slice* value, int status
) noexcept nogil
cdef void column_rewind(
    ColumnBuffers* c, Py_ssize_t length, Py_ssize_t used, Py_ssize_t nulls
) noexcept nogil
cdef int column_append(ColumnBuffers* c, ColumnBuffers* other) noexcept nogil
cdef Py_ssize_t column_validity_size(ColumnBuffers* c) noexcept nogil


cdef inline int column_reserve_bytes(ColumnBuffers* c, int64_t row, Py_ssize_t more) noexcept nogil:
    """Reserve memory for a row's bytes and the slack; return nonzero if that is impossible."""
    if likely(more <= c.bytes_capacity - c.used):
        return 0
    return column_grow_bytes(c, row, more)
