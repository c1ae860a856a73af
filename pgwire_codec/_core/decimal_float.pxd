# cython: language_level=3
"""Decimal text to the nearest binary float."""

from libc.stdint cimport int32_t, uint8_t, uint64_t

cdef int parse_float(
    const uint8_t* p, int32_t n, bint is_double, bint exponent_allowed, uint64_t* bits
) noexcept nogil
cdef int special_float(
    const uint8_t* p, int32_t n, bint is_double, uint64_t* bits
) noexcept nogil
