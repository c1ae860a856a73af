# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""UTF-8: telling it, and copying it while looking for what is not ASCII."""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.digits cimport HIGH_BITS, word


cdef bint is_utf8(const uint8_t* p, Py_ssize_t n) noexcept nogil


cdef inline void put_word(uint8_t* out, uint64_t w) noexcept nogil:
    memcpy(out, &w, 8)


cdef inline uint64_t copy_value(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Copy n bytes, and give their high bits.

    A short value is loaded with bytes that lie before it, and up to SLACK bytes behind it are
    overwritten in `out`.
    """
    cdef uint64_t a, b, c, d, seen
    cdef int32_t at
    if n <= 8:
        if n == 0:
            return 0
        a = word(p + n - 8) >> ((8 - n) * 8)
        put_word(out, a)
        return a & HIGH_BITS
    if n <= 16:
        a = word(p)
        b = word(p + n - 8)
        put_word(out, a)
        put_word(out + n - 8, b)
        return (a | b) & HIGH_BITS
    seen = 0
    at = 0
    while at < n - 32:
        a = word(p + at)
        b = word(p + at + 8)
        c = word(p + at + 16)
        d = word(p + at + 24)
        put_word(out + at, a)
        put_word(out + at + 8, b)
        put_word(out + at + 16, c)
        put_word(out + at + 24, d)
        seen |= a | b | c | d
        at += 32
    # 1 to 32 bytes are left, or, of a shorter value, 17 to 32.
    at = n - 32 if n >= 32 else 0
    a = word(p + at)
    b = word(p + at + 8)
    c = word(p + n - 16)
    d = word(p + n - 8)
    put_word(out + at, a)
    put_word(out + at + 8, b)
    put_word(out + n - 16, c)
    put_word(out + n - 8, d)
    return (seen | a | b | c | d) & HIGH_BITS
