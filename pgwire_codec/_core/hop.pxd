# cython: language_level=3
"""Hop over the columns of a tuple: the one loop that everything fast is made of."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from pgwire_codec._core.wire cimport load_i16, load_u32

cdef extern from *:
    """
    #define pgwire_likely(x) __builtin_expect(!!(x), 1)
    """
    bint likely "pgwire_likely" (bint condition) noexcept nogil

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
