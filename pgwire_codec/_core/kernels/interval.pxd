"""interval, in both forms; text is that of IntervalStyle postgres.

An example is ``1 year 2 mons -3 days +04:05:06.789``.
"""

from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.string cimport memcmp

from pgwire_codec._core.kernels.calendar cimport DAY, parse_clock_unchecked
from pgwire_codec._core.kernels.column cimport DEFERRED, FINE, ColumnBuffers, Slice
from pgwire_codec._core.kernels.skeleton cimport TwoWords, decode_fixed
from pgwire_codec._core.wire.primitives cimport load_i32, load_i64

cdef enum:
    MAX_COUNT_DIGITS = 10
    # Parts whose microseconds add up to less than 64 bits: 100,000 years, as many days, …
    MAX_MONTHS = 1_200_000
    MAX_DAYS = 36_525_000

cdef extern from *:
    """
    #define PGWIRE_MAX_INTERVAL_MICROS INT64_C(2000000000000000000)
    """
    const int64_t MAX_MICROS "PGWIRE_MAX_INTERVAL_MICROS"


cdef inline int unit_length(const uint8_t* p, int32_t n, int unit) noexcept nogil:
    """Return the length of the name of unit 0, 1 or 2 at p, plural or not, or 0."""
    cdef const char* name = b" year" if unit == 0 else b" mon" if unit == 1 else b" day"
    cdef int32_t length = 5 if unit == 0 else 4
    if n < length or memcmp(p, name, length) != 0:
        return 0
    length += n > length and p[length] == 0x73
    return length


cdef inline int parse_interval(
    const uint8_t* p, int32_t n, int32_t* months, int32_t* days, int64_t* micros
) noexcept nogil:
    """Read what the server writes; defer all else, and numbers past their type."""
    cdef int64_t counts[3]
    cdef int64_t count, hours
    cdef int32_t at = 0, digits, length
    cdef int unit = 0
    cdef bint negative
    counts[0] = counts[1] = counts[2] = 0
    micros[0] = 0
    if n < 1:
        return DEFERRED
    while at < n:
        if at:
            if p[at] != 0x20:
                return DEFERRED
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
            return DEFERRED
        if at < n and p[at] == 0x3A:
            # The clock comes last. The last two digits of its hours are read with the minutes.
            if digits < 2 or digits > 9 or n - at < 6:
                return DEFERRED
            hours = count // 100
            if parse_clock_unchecked(p + at - 2, n - at + 2, micros):
                return DEFERRED
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
            return DEFERRED
        counts[unit - 1] = -count if negative else count
        at += length
    counts[0] = counts[0] * 12 + counts[1]
    if not (INT32_MIN <= counts[0] <= INT32_MAX and INT32_MIN <= counts[2] <= INT32_MAX):
        return DEFERRED
    months[0] = <int32_t> counts[0]
    days[0] = <int32_t> counts[2]
    return FINE


cdef inline int put_interval(
    int32_t months, int32_t days, int64_t micros, uint64_t* words
) noexcept nogil:
    """Store Arrow's month_day_nano."""
    # Infinity, too, is more than nanoseconds reach.
    if not -(INT64_MAX // 1000) <= micros <= INT64_MAX // 1000:
        return DEFERRED
    words[0] = <uint64_t> <uint32_t> days << 32 | <uint32_t> months
    words[1] = <uint64_t> (micros * 1000)
    return FINE


cdef inline int read_interval_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef int32_t months = 0, days = 0
    cdef int64_t micros = 0
    if parse_interval(p, n, &months, &days, &micros):
        return DEFERRED
    return put_interval(months, days, micros, words)


cdef inline int read_interval_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if n != 16:
        return DEFERRED
    return put_interval(load_i32(p + 12), load_i32(p + 8), load_i64(p), words)


cdef inline void decode_interval(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef TwoWords* out = <TwoWords*> c.values + c.length
    decode_fixed(c, values, n, out, read_interval_text, read_interval_binary)


cdef inline int put_duration(
    int32_t months, int32_t days, int64_t micros, uint64_t* words
) noexcept nogil:
    """Store microseconds, as PostgreSQL adds the parts up for EXTRACT(EPOCH)."""
    cdef int64_t quarter_days
    if not (
        -MAX_MONTHS <= months <= MAX_MONTHS
        and -MAX_DAYS <= days <= MAX_DAYS
        and -MAX_MICROS <= micros <= MAX_MICROS
    ):
        return DEFERRED
    quarter_days = <int64_t> (months // 12) * 1461 + (months % 12) * 120 + <int64_t> days * 4
    words[0] = <uint64_t> (quarter_days * (DAY // 4) + micros)
    return FINE


cdef inline int read_duration_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef int32_t months = 0, days = 0
    cdef int64_t micros = 0
    if parse_interval(p, n, &months, &days, &micros):
        return DEFERRED
    return put_duration(months, days, micros, words)


cdef inline int read_duration_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if n != 16:
        return DEFERRED
    return put_duration(load_i32(p + 12), load_i32(p + 8), load_i64(p), words)


cdef inline void decode_duration(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_duration_text, read_duration_binary)
