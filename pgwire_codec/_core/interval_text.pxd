# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""An interval's text under IntervalStyle postgres: ``1 year 2 mons -3 days +04:05:06.789``."""

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from pgwire_codec._core.block cimport FINE, HARD
from pgwire_codec._core.clock_text cimport clock_unchecked

cdef enum:
    MAX_COUNT_DIGITS = 10


cdef inline int unit_length(const uint8_t* p, int32_t n, int unit) noexcept nogil:
    """Give the length of the name of unit 0, 1, 2 (a plural or not) that p starts with, or 0."""
    cdef const char* name = b" year" if unit == 0 else b" mon" if unit == 1 else b" day"
    cdef int32_t length = 5 if unit == 0 else 4
    if n < length or memcmp(p, name, length) != 0:
        return 0
    length += n > length and p[length] == 0x73
    return length


cdef inline int text_interval(
    const uint8_t* p, int32_t n, int32_t* months, int32_t* days, int64_t* micros
) noexcept nogil:
    """Read what the server writes; HARD for all else, and for numbers past their type."""
    cdef int64_t counts[3]
    cdef int64_t count, hours
    cdef int32_t at = 0, digits, length
    cdef int unit = 0
    cdef bint negative
    counts[0] = counts[1] = counts[2] = 0
    micros[0] = 0
    if n < 1:
        return HARD
    while at < n:
        if at:
            if p[at] != 0x20:
                return HARD
            at += 1
        negative = at < n and p[at] == 0x2D
        at += at < n and (p[at] == 0x2D or p[at] == 0x2B)
        digits = 0
        count = 0
        while at < n and digits < MAX_COUNT_DIGITS and p[at] - <unsigned int> 0x30 <= 9:
            count = count * 10 + (p[at] - 0x30)
            digits += 1
            at += 1
        if digits == 0:
            return HARD
        if at < n and p[at] == 0x3A:
            # The clock, which ends it. Its last two digits of hours are read with the minutes.
            if digits < 2 or digits > 9 or n - at < 6:
                return HARD
            hours = count // 100
            if clock_unchecked(p + at - 2, n - at + 2, micros):
                return HARD
            micros[0] += hours * 100 * <int64_t> 3_600_000_000
            if negative:
                micros[0] = -micros[0]
            at = n
            unit = 3
            break
        length = 0
        while unit < 3 and length == 0:
            length = unit_length(p + at, n - at, unit)
            unit += 1
        if length == 0 or (unit == 1 and digits > 9) or (unit == 2 and digits > 2):
            return HARD
        counts[unit - 1] = -count if negative else count
        at += length
    counts[0] = counts[0] * 12 + counts[1]
    if not (INT32_MIN <= counts[0] <= INT32_MAX and INT32_MIN <= counts[2] <= INT32_MAX):
        return HARD
    months[0] = <int32_t> counts[0]
    days[0] = <int32_t> counts[2]
    return FINE
