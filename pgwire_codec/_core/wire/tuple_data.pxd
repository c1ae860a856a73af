"""Where the tuples of a change, and their columns, begin and end."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from pgwire_codec._core.wire.primitives cimport load_i16, load_u32

cdef extern from *:
    """
    #define pgwire_likely(x) __builtin_expect(!!(x), 1)
    #if defined(__GNUC__)
    #define pgwire_prefetch(p) __builtin_prefetch(p)
    #else
    #define pgwire_prefetch(p) ((void) (p))
    #endif
    """
    bint likely "pgwire_likely" (bint condition) noexcept nogil
    void pgwire_prefetch(const void* p) noexcept nogil

cdef enum:
    MAX_LENGTH = 0x7FFFFFFF  # lengths are signed on the wire


cdef inline const uint8_t* column_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Give the end of the column at p, whatever its kind; NULL where it is not whole.

    The value of a column of kind t or b begins 5 bytes behind p.
    """
    cdef Py_ssize_t room = end - p - 5  # for a value, behind its kind and its length
    cdef uint32_t length
    if likely(room >= 0 and (p[0] == c"t" or p[0] == c"b")):
        length = load_u32(p + 1)
        if likely(length <= room and length <= MAX_LENGTH):
            return p + 5 + length
        return NULL
    if room > -5 and (p[0] == c"n" or p[0] == c"u"):
        return p + 1
    return NULL


cdef inline const uint8_t* tuple_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Give the end of a tuple that begins with its number of columns; NULL if it is not whole."""
    cdef int columns
    if end - p < 2:
        return NULL
    columns = load_i16(p)
    p += 2
    if columns < 0:
        return NULL
    while columns > 0:
        columns -= 1
        p = column_end(p, end)
        if p == NULL:
            return NULL
    return p


cdef enum:
    AHEAD = 12  # rows: their first bytes come from memory while those before are walked
    LINES = 4  # cache lines of each
    LINE = 64

cdef enum:
    OLD = 0
    NEW = 1
    CURRENT = 2  # the new one; where there is only an old one, that


cdef struct Input:
    const uint8_t* data
    int64_t size
    const int64_t* offsets  # of the messages
    int64_t messages
    const int64_t* rows  # which of them
    const int64_t* bodies  # where their tuples begin; negative for none
    Py_ssize_t count
    bint any_old  # set when a row turns out to have an old tuple


cdef inline void prefetch(const Input* source, Py_ssize_t row) noexcept nogil:
    """Ask for the tuples of a row that will be walked soon."""
    cdef int64_t line
    if row + AHEAD < source.count:
        for line in range(LINES):
            # Where it points does not matter: no address is an error to a prefetch.
            pgwire_prefetch(<const void*> (
                <size_t> source.data + <size_t> (source.bodies[row + AHEAD] + LINE * line)
            ))


cdef inline const uint8_t* body_of(
    const Input* source, Py_ssize_t row, const uint8_t** end
) noexcept nogil:
    """Give a row's first marker and its message's end; NULL where they are not in the message."""
    cdef int64_t message = source.rows[row]
    cdef int64_t start, stop
    if not 0 <= message < source.messages:
        return NULL
    start, stop = source.offsets[message], source.offsets[message + 1]
    if not 0 <= start <= source.bodies[row] < stop <= source.size:
        return NULL
    end[0] = source.data + stop
    return source.data + source.bodies[row]


cdef inline int tuple_of(
    Input* source, Py_ssize_t row, int which, const uint8_t** p, const uint8_t** end
) noexcept nogil:
    """Point at the marker of a row's tuple: 1; 0 if there is none such; -1 if it is not whole."""
    cdef const uint8_t* first
    cdef const uint8_t* second
    if source.bodies[row] < 0:
        return 0
    first = body_of(source, row, end)
    if first == NULL:
        return -1
    p[0] = first
    if first[0] == c"N":
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
