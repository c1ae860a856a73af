"""Tuples of changes, and where they and their fields begin and end."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from pgwire_codec._core.protocol cimport (
    KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED, MARKER_NEW,
)
from pgwire_codec._core.wire.primitives cimport load_i16, load_u32

cdef extern from *:
    """
    #define pgwire_likely(x) __builtin_expect(!!(x), 1)
    #if defined(__GNUC__)
    #define pgwire_prefetch(p) __builtin_prefetch(p)
    #define pgwire_prefetch_far(p) __builtin_prefetch(p, 0, 2)
    #else
    #define pgwire_prefetch(p) ((void) (p))
    #define pgwire_prefetch_far(p) ((void) (p))
    #endif
    """
    bint likely "pgwire_likely" (bint condition) noexcept nogil
    void pgwire_prefetch(const void* p) noexcept nogil
    void pgwire_prefetch_far(const void* p) noexcept nogil

cdef enum:
    VALUE_HEAD = 5  # bytes of a field before its value: its kind and its length
    MAX_LENGTH = 0x7FFFFFFF  # of a value: lengths are signed on the wire
    VALUELESS = -1
    TRUNCATED = -2

cdef enum:
    ROWS_AHEAD = 12  # rows between the one that is decoded and the one that is prefetched
    CACHE_LINES = 4  # of each row
    CACHE_LINE = 64  # bytes

cdef enum:
    OLD = 0
    NEW = 1
    CURRENT = 2  # the new one; without it, the old one


cdef struct TupleSource:
    const uint8_t* data
    int64_t size
    const int64_t* offsets  # of the messages
    int64_t messages
    const int64_t* rows  # indexes of messages
    const int64_t* bodies  # offsets of their tuples; negative for none
    Py_ssize_t count
    bint any_old  # set when a row has an old tuple


cdef inline bint has_value(const uint8_t* p) noexcept nogil:
    """Return whether the field at p has a value, and so a length."""
    return p[0] == KIND_TEXT or p[0] == KIND_BINARY


cdef inline bint is_valueless(const uint8_t* p) noexcept nogil:
    """Return whether the field at p is only its kind."""
    return p[0] == KIND_NULL or p[0] == KIND_UNCHANGED


cdef inline Py_ssize_t value_length(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the length of the value of the field at p, VALUELESS, or TRUNCATED.

    A field of an unknown kind is truncated, too.
    """
    cdef Py_ssize_t left = end - p - VALUE_HEAD
    cdef uint32_t length
    if likely(left >= 0 and has_value(p)):
        length = load_u32(p + 1)
        # Not load_i32: the next field waits for the length, and so would for its extended sign.
        if likely(length <= left and length <= MAX_LENGTH):
            return <Py_ssize_t> length
        return TRUNCATED
    if left > -VALUE_HEAD and is_valueless(p):
        return VALUELESS
    return TRUNCATED


cdef inline const uint8_t* field_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the end of the field at p, or NULL if it is truncated or of an unknown kind."""
    cdef Py_ssize_t length = value_length(p, end)
    if likely(length >= 0):
        return p + VALUE_HEAD + length
    return p + 1 if length == VALUELESS else NULL


cdef inline const uint8_t* tuple_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the end of the tuple whose number of fields is at p, or NULL if it is not whole."""
    cdef int fields
    if end - p < 2:
        return NULL
    fields = load_i16(p)
    if fields < 0:
        return NULL
    return fields_end(p + 2, end, fields)


cdef inline const uint8_t* fields_end(
    const uint8_t* p, const uint8_t* end, int fields
) noexcept nogil:
    """Return the end of so many fields, or NULL if they are not whole."""
    while fields > 0:
        fields -= 1
        p = field_end(p, end)
        if p == NULL:
            return NULL
    return p


cdef inline void prefetch(const TupleSource* source, Py_ssize_t row) noexcept nogil:
    """Load the tuples of a row that will be read soon into the cache."""
    cdef int64_t line
    if row + ROWS_AHEAD < source.count:
        for line in range(CACHE_LINES):
            # Any address will do: none is an error to a prefetch.
            pgwire_prefetch(<const void*> (
                <size_t> source.data
                + <size_t> (source.bodies[row + ROWS_AHEAD] + CACHE_LINE * line)
            ))


cdef inline void prefetch_rows(
    const TupleSource* source, Py_ssize_t row, Py_ssize_t end
) noexcept nogil:
    """Load the tuples of rows before `end` into the cache of the core."""
    cdef int64_t line
    while row < end:
        # Every other line: the core loads lines in pairs.
        for line in range(0, CACHE_LINES, 2):
            pgwire_prefetch_far(<const void*> (
                <size_t> source.data + <size_t> (source.bodies[row] + CACHE_LINE * line)
            ))
        row += 1


cdef inline const uint8_t* find_body(
    const TupleSource* source, Py_ssize_t row, const uint8_t** end
) noexcept nogil:
    """Return a row's first marker, and its message's end; NULL if they are not in the message."""
    cdef int64_t message = source.rows[row]
    cdef int64_t start, stop
    if not 0 <= message < source.messages:
        return NULL
    start, stop = source.offsets[message], source.offsets[message + 1]
    if not 0 <= start <= source.bodies[row] < stop <= source.size:
        return NULL
    end[0] = source.data + stop
    return source.data + source.bodies[row]


cdef inline int find_tuple(
    TupleSource* source, Py_ssize_t row, int which, const uint8_t** p, const uint8_t** end
) noexcept nogil:
    """Find the marker of a row's tuple; return 1, or 0 without such a tuple, or -1 if truncated."""
    cdef const uint8_t* first
    cdef const uint8_t* second
    if source.bodies[row] < 0:
        return 0
    first = find_body(source, row, end)
    if first == NULL:
        return -1
    p[0] = first
    if first[0] == MARKER_NEW:
        return which != OLD
    source.any_old = True
    if which == OLD:
        return 1
    second = tuple_end(first + 1, end[0])
    if second == NULL:
        return -1
    if second < end[0]:
        p[0] = second
        return 1
    return which == CURRENT
