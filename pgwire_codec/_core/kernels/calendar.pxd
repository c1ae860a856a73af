"""PostgreSQL's calendar and clock: days, limits, and the parts of ISO dates and times as text.

Days are those of the proleptic Gregorian calendar, since 1970. The texts are ``2024-02-29``,
``12:34:56.789`` and ``+05:30``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport DEFERRED, FINE
from pgwire_codec._core.kernels.digits cimport (
    ZEROS, are_digits, last_digits_of, number_of, word,
)

cdef extern from *:
    """
    #define PGWIRE_DAY INT64_C(86400000000)
    #define PGWIRE_MIN_TIMESTAMP INT64_C(-210866803200000000)
    static const int32_t PGWIRE_MICROS[7] = {0, 100000, 10000, 1000, 100, 10, 1};
    /* By four binary-coded digits, whatever they are: a year; a month and a day. */
    #define PGWIRE_DAYS_SHIFT 13
    static int32_t PGWIRE_YEARS[1 << 16];
    static uint16_t PGWIRE_DAYS[2 << PGWIRE_DAYS_SHIFT];
    """
    const int64_t DAY "PGWIRE_DAY"  # in microseconds
    const int64_t MIN_TIMESTAMP "PGWIRE_MIN_TIMESTAMP"  # microseconds since 1970
    int32_t YEARS "PGWIRE_YEARS"[1 << 16]
    uint16_t DAYS "PGWIRE_DAYS"[2 << 13]  # of the year, from 0 on; of leap years in the second half
    const int32_t MICROS "PGWIRE_MICROS"[7]  # of the last of so many decimals of a second

cdef enum:
    YEAR_0_DAYS = 719528  # from 0000-01-01 to 1970-01-01
    # datatype/timestamp.h, since 1970
    MIN_DATE = -2440588
    MAX_DATE = 2145042905
    # Bits of a year below the days before it.
    LEAP = 1
    NO_YEAR = 2
    YEAR_SHIFT = 2
    DAYS_SHIFT = 13  # bits of a month and a day
    NO_DAY = 1 << 15


cdef inline int32_t coded(int32_t number) noexcept nogil:
    """Return a number below 10,000 as binary-coded digits."""
    return (
        number // 1000 << 12 | number // 100 % 10 << 8 | number // 10 % 10 << 4 | number % 10
    )


cdef inline void fill_years() noexcept nogil:
    """Tabulate years and days; a module that reads dates does it once."""
    cdef int32_t year, leap, month, day, length, of_year, days = -YEAR_0_DAYS
    for year in range(10_000):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        YEARS[coded(year)] = days * (1 << YEAR_SHIFT) + leap
        days += 365 + leap
    YEARS[0] |= NO_YEAR
    for leap in range(2):
        for day in range(1 << DAYS_SHIFT):
            DAYS[leap << DAYS_SHIFT | day] = NO_DAY
        of_year = 0
        for month in range(1, 13):
            length = 28 + leap if month == 2 else 30 if month in (4, 6, 9, 11) else 31
            for day in range(1, length + 1):
                DAYS[leap << DAYS_SHIFT | coded(100 * month + day)] = of_year
                of_year += 1


cdef inline uint32_t date_strays(uint32_t year, uint32_t day, int32_t* days) noexcept nogil:
    """Compute days since 1970-01-01; return 0 if there is such a day.

    The year, and the month and the day, are four digits each, binary-coded. It is not checked that
    they are digits.
    """
    cdef int32_t first = YEARS[year]
    cdef uint32_t of_year = DAYS[(first & LEAP) << DAYS_SHIFT | (day & ((1 << DAYS_SHIFT) - 1))]
    days[0] = (first >> YEAR_SHIFT) + <int32_t> of_year
    return (first & NO_YEAR) | ((day | of_year) & (<uint32_t> -1 << DAYS_SHIFT))


cdef inline uint64_t iso_date_strays(const uint8_t* p, int32_t* days) noexcept nogil:
    """Read ten bytes; return 0 if they are a date such as ``2024-02-29``."""
    # Digits, and 0 in place of the hyphens.
    cdef uint64_t w = word(p) ^ <uint64_t> 0x2D30302D30303030, pairs = (w << 4) | (w >> 8)
    cdef uint32_t last = (p[8] | <uint32_t> p[9] << 8) ^ 0x3030
    cdef uint32_t year = (pairs & 0xFF) << 8 | (pairs >> 16 & 0xFF)
    cdef uint32_t day = (pairs >> 40 & 0xFF) << 8 | (((last << 4) | (last >> 8)) & 0xFF)
    return (
        # As strays() does; any byte other than a hyphen reaches the high bit.
        ((w | (w + <uint64_t> 0x7F06067F06060606)) & <uint64_t> 0x80F0F080F0F0F0F0)
        | ((last | (last + 0x0606)) & 0xF0F0)
        | date_strays(year, day, days)
    )


cdef inline int parse_date_unchecked(const uint8_t* p, int32_t* days) noexcept nogil:
    """Read ``2024-02-29``; the caller has checked that there are ten bytes."""
    return DEFERRED if iso_date_strays(p, days) else FINE


cdef inline int parse_clock_unchecked(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    """Read ``12:34:56`` and up to six decimals, n bytes of which the caller has checked eight.

    The hours are not limited.
    """
    cdef uint64_t w = word(p)
    cdef int32_t decimals = n - 9
    cdef uint64_t fraction
    if w & <uint64_t> 0x0000FF0000FF0000 != <uint64_t> 0x00003A00003A0000:
        return DEFERRED
    # Zeros in place of the colons; the pairs are hours, tens of minutes, and so on.
    w = (w ^ ZEROS) & <uint64_t> 0xFFFF00FFFF00FFFF
    if not are_digits(w):
        return DEFERRED
    w = w * 10 + (w >> 8)
    if ((w >> 24) & 0xFF) > 59 or ((w >> 48) & 0xFF) > 59:
        return DEFERRED
    micros[0] = (
        ((w & 0xFF) * 60 + ((w >> 24) & 0xFF)) * 60 + ((w >> 48) & 0xFF)
    ) * <uint64_t> 1_000_000
    if n != 8:
        if decimals < 1 or decimals > 6 or p[8] != 0x2E:
            return DEFERRED
        fraction = last_digits_of(word(p + n - 8), decimals)
        if not are_digits(fraction):
            return DEFERRED
        micros[0] += number_of(fraction) * MICROS[decimals]
    return FINE


cdef inline int two_digits(const uint8_t* p, int32_t* out) noexcept nogil:
    out[0] = (p[0] - 0x30) * 10 + (p[1] - 0x30)
    if p[0] - <unsigned int> 0x30 > 9 or p[1] - <unsigned int> 0x30 > 9:
        return DEFERRED
    return FINE


cdef inline int32_t zone_length(const uint8_t* p, int32_t n) noexcept nogil:
    """Return the length of the offset at the end of n bytes: 3, 6 or 9, or 0 for none."""
    cdef int32_t length
    for length in range(3, 10, 3):
        if length < n and (p[n - length] == 0x2B or p[n - length] == 0x2D):
            return length
    return 0


cdef inline int parse_zone_unchecked(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    """Read ``+05``, ``+05:30`` or ``+05:30:20``, n (3, 6 or 9) bytes from zone_length."""
    cdef int32_t hours = 0, minutes = 0, seconds = 0
    if two_digits(p + 1, &hours):
        return DEFERRED
    if n > 3 and (p[3] != 0x3A or two_digits(p + 4, &minutes)):
        return DEFERRED
    if n > 6 and (p[6] != 0x3A or two_digits(p + 7, &seconds)):
        return DEFERRED
    if minutes > 59 or seconds > 59:
        return DEFERRED
    micros[0] = ((hours * 60 + minutes) * 60 + seconds) * <int64_t> 1_000_000
    if p[0] == 0x2D:
        micros[0] = -micros[0]
    return FINE
