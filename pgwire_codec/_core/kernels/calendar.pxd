"""Days of the proleptic Gregorian calendar, and PostgreSQL's limits since 1970."""

from libc.stdint cimport int32_t, int64_t, uint32_t

cdef extern from *:
    """
    #define PGWIRE_DAY INT64_C(86400000000)
    #define PGWIRE_MIN_TIMESTAMP INT64_C(-210866803200000000)
    #define PGWIRE_YEARS_CAPACITY (256 * 100 + 256)
    static int32_t PGWIRE_YEARS[PGWIRE_YEARS_CAPACITY];
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
    const int64_t DAY "PGWIRE_DAY"  # in microseconds
    const int64_t MIN_TIMESTAMP "PGWIRE_MIN_TIMESTAMP"  # microseconds since 1970
    int32_t YEARS "PGWIRE_YEARS"[]
    const uint32_t MONTHS "PGWIRE_MONTHS"[2][16]

cdef enum:
    YEAR_0_DAYS = 719528  # from 0000-01-01 to 1970-01-01
    # datatype/timestamp.h, since 1970
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
    """Compute days since 1970-01-01 in the years 1 to 9999; return 0 if there is such a day.

    All four numbers are below 256. It is not checked that the year has four digits at most.
    """
    cdef int32_t year = YEARS[century * 100 + of_century]
    cdef uint32_t row = MONTHS[year & LEAP][month & 15]
    days[0] = (year >> YEAR_SHIFT) + <int32_t> ((row >> 8) + day) - 1
    return (year & NO_YEAR) | (month & ~<uint32_t> 15) | (day - 1 >= (row & 0xFF))


cdef inline void split_days(
    int32_t days, uint32_t* year, uint32_t* month, uint32_t* day
) noexcept nogil:
    """Compute the date of a day of the years 1 to 9999, by the arithmetic of the reference."""
    cdef uint32_t of_all = <uint32_t> (days + 719468)
    cdef uint32_t era = of_all // 146097, of_era = of_all % 146097
    cdef uint32_t of_400 = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef uint32_t of_year = of_era - (365 * of_400 + of_400 // 4 - of_400 // 100)
    cdef uint32_t shifted = (5 * of_year + 2) // 153
    day[0] = of_year - (153 * shifted + 2) // 5 + 1
    month[0] = shifted + 3 if shifted < 10 else shifted - 9
    year[0] = of_400 + era * 400 + (month[0] <= 2)
