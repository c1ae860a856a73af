"""What the writers of values write to, and what they read from."""

from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.kernels.shortest cimport Power, u128
from pgwire_codec._core.wire.primitives cimport store_u32

cdef enum:
    # What a writer says.
    WRITTEN = 0
    HARD = 1        # not an ordinary value: the reference's to write, or to refuse
    NO_MEMORY = 2

cdef enum:
    HEAD = 5        # bytes before a value's own: its kind and its length
    MOST = 64       # bytes that a value takes with them, if its size does not depend on it


cdef extern from *:
    """
    #define PGWIRE_DAY 86400000000LL
    """
    const int64_t DAY "PGWIRE_DAY"  # in microseconds


cdef struct Out:
    uint8_t* start
    uint8_t* p
    uint8_t* end


cdef struct Piece:
    const uint8_t* data
    int64_t length


ctypedef int (*Writer)(const Values*, int64_t, Out*) noexcept nogil


cdef struct Values:
    # One column of one part. A row's index counts from the arrays' first element.
    Writer write              # NULL: the column is NULL throughout
    uint8_t kind              # t or b
    const uint8_t* valid      # bitmap, or NULL
    const uint8_t* unchanged  # a byte a row of the part, or NULL
    int64_t start             # index of the part's first row
    const uint8_t* data       # values, or offsets or views of strings
    int64_t bytes_length
    const uint8_t* bytes      # that offsets point into
    Piece* pieces       # that views point into
    int n_pieces
    int width                 # bytes of a value or offset in `data`
    bint is_signed
    uint64_t most             # of an integer, as it is written
    uint64_t least            # how far below zero it goes
    int out_width             # bytes of its binary form
    int64_t multiply          # to microseconds
    int64_t divide
    int scale                 # of a decimal
    u128 limit                # what its digits stay below; 0 for no limit
    bint with_zone            # a timestamp that says +00
    const Power* powers       # for floats
    bint single               # a float4


cdef inline int room(Out* out, int64_t wanted) noexcept nogil:
    """Make sure that as many bytes can be written; 0, or NO_MEMORY."""
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


cdef inline int finish(const Values* v, Out* out, uint8_t* end) noexcept nogil:
    """Put kind and length before the value, which was written behind them up to `end`."""
    out.p[0] = v.kind
    store_u32(out.p + 1, <unsigned int> (end - out.p - HEAD))
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
