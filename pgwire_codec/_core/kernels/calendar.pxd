"""Days of the proleptic Gregorian calendar, and PostgreSQL's epoch and limits in them."""

from libc.stdint cimport int32_t, int64_t, uint32_t

cdef extern from *:
    """
    #define PGWIRE_DAY INT64_C(86400000000)
    #define PGWIRE_YEAR_ROOM (256 * 100 + 256)
    static int32_t PGWIRE_YEARS[PGWIRE_YEAR_ROOM];
    /* Of a common and of a leap year: days before each month, times 256, and days in it. */
    #define PGWIRE_OF(before, days) ((before) << 8 | (days))
    static const uint32_t PGWIRE_MONTHS[2][16] = {
        {0, PGWIRE_OF(0, 31), PGWIRE_OF(31, 28), PGWIRE_OF(59, 31), PGWIRE_OF(90, 30),
         PGWIRE_OF(120, 31), PGWIRE_OF(151, 30), PGWIRE_OF(181, 31), PGWIRE_OF(212, 31),
         PGWIRE_OF(243, 30), PGWIRE_OF(273, 31), PGWIRE_OF(304, 30), PGWIRE_OF(334, 31)},
        {0, PGWIRE_OF(0, 31), PGWIRE_OF(31, 29), PGWIRE_OF(60, 31), PGWIRE_OF(91, 30),
         PGWIRE_OF(121, 31), PGWIRE_OF(152, 30), PGWIRE_OF(182, 31), PGWIRE_OF(213, 31),
         PGWIRE_OF(244, 30), PGWIRE_OF(274, 31), PGWIRE_OF(305, 30), PGWIRE_OF(335, 31)}};
    """
    const int64_t DAY "PGWIRE_DAY"  # microseconds
    int32_t YEARS "PGWIRE_YEARS"[]
    const uint32_t MONTHS "PGWIRE_MONTHS"[2][16]

cdef enum:
    EPOCH_DAYS = 10957  # from 1970-01-01 to 2000-01-01
    YEAR_0_DAYS = 719528  # from 0000-01-01 to 1970-01-01
    # datatype/timestamp.h, moved to 1970
    MIN_DATE = -2440588
    MAX_DATE = 2145042905
    # Bits of a year below the days before it.
    LEAP = 1
    NO_YEAR = 2
    YEAR_SHIFT = 2


cdef inline void fill_years() noexcept nogil:
    """Tabulate the years; a module that reads dates does it once."""
    cdef int32_t year, leap, days = -YEAR_0_DAYS
    for year in range(10_000):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        YEARS[year] = days * (1 << YEAR_SHIFT) + leap
        days += 365 + leap
    YEARS[0] |= NO_YEAR


cdef inline uint32_t date_strays(
    uint32_t century, uint32_t of_century, uint32_t month, uint32_t day, int32_t* days
) noexcept nogil:
    """Give days since 1970-01-01 in the years 1 to 9999; not 0 if the calendar has no such day.

    All four numbers are below 256; that the year has no more than four digits is not asked.
    """
    cdef int32_t year = YEARS[century * 100 + of_century]
    cdef uint32_t row = MONTHS[year & LEAP][month & 15]
    days[0] = (year >> YEAR_SHIFT) + <int32_t> ((row >> 8) + day) - 1
    return (year & NO_YEAR) | (month & ~<uint32_t> 15) | (day - 1 >= (row & 0xFF))
