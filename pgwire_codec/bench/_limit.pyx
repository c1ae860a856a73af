"""The limit: skip over every column of every insert, without reading values or checking lengths.

A decoder cannot be faster: the start of a column is known only from the length of the one before.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef extern from *:
    uint16_t __builtin_bswap16(uint16_t) noexcept nogil
    uint32_t __builtin_bswap32(uint32_t) noexcept nogil


def skip_columns(const uint8_t[::1] data, const int64_t[::1] offsets):
    """Return the number of bytes skipped; the messages must be whole changes."""
    cdef Py_ssize_t index
    cdef int64_t total = 0
    with nogil:
        for index in range(offsets.shape[0] - 1):
            total += skip_unchecked(&data[offsets[index]])
    return total


cdef inline int64_t skip_unchecked(const uint8_t* start) noexcept nogil:
    """Skip one change, which the caller knows to be whole."""
    cdef const uint8_t* p = tuple_unchecked(start + 5)
    if start[0] == c"U" and start[5] != c"N":
        p = tuple_unchecked(p)
    return p - start


cdef inline const uint8_t* tuple_unchecked(const uint8_t* p) noexcept nogil:
    """Skip one tuple from its marker on, which the caller knows to be whole."""
    cdef uint16_t columns
    cdef uint32_t length
    cdef Py_ssize_t _
    memcpy(&columns, p + 1, 2)
    p += 3
    for _ in range(__builtin_bswap16(columns)):
        if p[0] == c"t" or p[0] == c"b":
            memcpy(&length, p + 1, 4)
            p += 5 + __builtin_bswap32(length)
        else:
            p += 1
    return p
