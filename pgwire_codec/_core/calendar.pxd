# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Days of the proleptic Gregorian calendar, and PostgreSQL's epoch and limits in them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

cdef extern from *:
    """
    #define PGWIRE_DAY INT64_C(86400000000)
    /* Of a common and of a leap year: days before each month, and in it; 0 is no month. */
    static const uint16_t PGWIRE_MONTHS[2][16] = {
        {0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 0, 0, 0},
        {0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 0, 0, 0}};
    static const uint8_t PGWIRE_DAYS[2][16] = {
        {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0},
        {0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0}};
    """
    const int64_t DAY "PGWIRE_DAY"  # microseconds
    const uint16_t DAYS_BEFORE "PGWIRE_MONTHS"[2][16]
    const uint8_t DAYS_IN "PGWIRE_DAYS"[2][16]

cdef enum:
    EPOCH_DAYS = 10957  # from 1970-01-01 to 2000-01-01
    YEAR_0_DAYS = 719528  # from 0000-01-01 to 1970-01-01
    # datatype/timestamp.h, moved to 1970
    MIN_DATE = -2440588
    MAX_DATE = 2145042905


cdef inline bint days_of_date(
    int32_t century, int32_t of_century, int32_t month, int32_t day, int32_t* days
) noexcept nogil:
    """Give days since 1970-01-01 in the years 1 to 9999; false if the calendar has no such day."""
    cdef int32_t year = century * 100 + of_century
    cdef bint common = of_century != 0  # no year that only its century says is leap
    cdef bint leap = ((of_century if common else century) & 3) == 0
    cdef int32_t centuries = century + common  # before the year, counting year 0
    if year == 0 or month > 12 or day == 0 or day > DAYS_IN[leap][month]:
        return False
    days[0] = (
        year * 365 + ((year + 3) >> 2) - centuries + ((centuries + 3) >> 2)
        + DAYS_BEFORE[leap][month] + day - 1 - YEAR_0_DAYS
    )
    return True
