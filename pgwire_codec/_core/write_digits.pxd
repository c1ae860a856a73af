# cython: language_level=3, cdivision=True
"""Decimal digits of integers, two at a time."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

from pgwire_codec._core.shortest cimport u128

cdef extern from *:
    """
    static const char PGWIRE_PAIRS[201] =
        "00010203040506070809101112131415161718192021222324"
        "25262728293031323334353637383940414243444546474849"
        "50515253545556575859606162636465666768697071727374"
        "75767778798081828384858687888990919293949596979899";
    """
    const char* PGWIRE_PAIRS


cdef inline uint8_t* put_pair(uint8_t* p, unsigned int x) noexcept nogil:
    """Write a number below 100 with two digits."""
    memcpy(p, &PGWIRE_PAIRS[2 * x], 2)
    return p + 2


cdef inline uint8_t* put_back(uint8_t* end, uint64_t x) noexcept nogil:
    """Write a number so that it ends before `end`; give where it starts."""
    while x >= 100:
        end -= 2
        memcpy(end, &PGWIRE_PAIRS[2 * (x % 100)], 2)
        x //= 100
    if x >= 10:
        end -= 2
        memcpy(end, &PGWIRE_PAIRS[2 * x], 2)
    else:
        end -= 1
        end[0] = <uint8_t> (<char> b"0" + x)
    return end


cdef inline uint8_t* put_number(uint8_t* p, uint64_t x) noexcept nogil:
    cdef uint8_t digits[20]
    cdef uint8_t* start = put_back(digits + 20, x)
    memcpy(p, start, digits + 20 - start)
    return p + (digits + 20 - start)


cdef inline uint8_t* put_padded(uint8_t* p, uint64_t x, int width) noexcept nogil:
    """Write a number with zeros before it, as many digits as the width, which it fits."""
    cdef uint8_t* end = p + width
    memset(p, b"0", width)
    if x:
        put_back(end, x)
    return end


cdef inline uint8_t* put_wide(uint8_t* p, u128 x) noexcept nogil:
    """Write a number of up to 39 digits."""
    cdef uint64_t part = 10000000000000000000ULL
    if x >> 64 == 0:
        return put_number(p, <uint64_t> x)
    p = put_wide(p, x // part)
    return put_padded(p, <uint64_t> (x % part), 19)
