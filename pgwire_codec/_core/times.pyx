# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""date, time, timestamp, timestamptz and interval, in both forms.

Text is that of DateStyle ISO and IntervalStyle postgres. Years of four digits, with any zone, are
decoded here; those of more, and BC, are hard.
"""

from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    int32_t,
    int64_t,
    uint8_t,
    uint64_t,
)
from libc.string cimport memcmp

from pgwire_codec._core.block cimport (
    ABOVE,
    BELOW,
    BINARY,
    FINE,
    HARD,
    MISSING,
    TEXT,
    Column,
    Kernel,
    Slot,
    column_odd,
    hurried,
    hurries,
    likely,
    nearest,
    unlikely,
)
from pgwire_codec._core.calendar cimport DAY, EPOCH_DAYS, MAX_DATE, MIN_DATE, fill_years
from pgwire_codec._core.clock_text cimport (
    clock_unchecked,
    date_unchecked,
    iso_date_strays,
    zone_length,
    zone_unchecked,
)
from pgwire_codec._core.interval_text cimport text_interval
from pgwire_codec._core.wire cimport load_i32, load_i64

cdef extern from *:
    """
    #define PGWIRE_MIN_TIMESTAMP INT64_C(-211813488000000000)
    #define PGWIRE_MAX_TIMESTAMP INT64_C(9223371331199999999)
    #define PGWIRE_EPOCH INT64_C(946684800000000)
    """
    const int64_t MIN_TIMESTAMP "PGWIRE_MIN_TIMESTAMP"  # datatype/timestamp.h
    const int64_t MAX_TIMESTAMP "PGWIRE_MAX_TIMESTAMP"
    const int64_t EPOCH "PGWIRE_EPOCH"  # microseconds from 1970 to 2000


fill_years()


cdef packed struct Interval:
    int32_t months
    int32_t days
    int64_t nanoseconds


cdef Kernel time_kernel(Column* c, str family):
    """Set the column up for a family of dates and times."""
    c.width = {"date": 4, "interval": 16}.get(family, 8)
    if family == "date":
        c.hurry = True
        return run_date
    if family == "time":
        return run_time
    if family == "interval":
        return run_interval
    return run_timestamptz if family == "timestamptz" else run_timestamp


cdef int infinity(const uint8_t* p, int32_t n) noexcept nogil:
    if n == 8 and memcmp(p, b"infinity", 8) == 0:
        return ABOVE
    return BELOW if n == 9 and memcmp(p, b"-infinity", 9) == 0 else HARD


cdef inline int binary_date(const uint8_t* p, int32_t n, int32_t* days) noexcept nogil:
    cdef int32_t value
    if unlikely(n != 4):
        return HARD
    value = load_i32(p)
    if unlikely(value < MIN_DATE - EPOCH_DAYS or value > MAX_DATE - EPOCH_DAYS):
        return ABOVE if value == INT32_MAX else BELOW if value == INT32_MIN else HARD
    days[0] = value + EPOCH_DAYS
    return FINE


cdef inline bint hurry_dates(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    """Read text of ten bytes; false if any row is something else."""
    cdef int32_t* out = <int32_t*> c.values + c.length
    cdef uint64_t strange = 0
    cdef const uint8_t* p
    cdef Py_ssize_t i
    for i in range(n):
        # A shorter value is loaded with what lies before it.
        p = slots[i].p + slots[i].length - 10
        strange |= iso_date_strays(p, out + i) | (slots[i].length ^ 10) | slots[i].kind
    return hurried(c, strange)


cdef void run_date(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef int32_t* out = <int32_t*> c.values + c.length
    cdef Py_ssize_t i
    cdef int32_t days
    cdef int odd
    if hurries(c) and hurry_dates(c, slots, n):
        return
    for i in range(n):
        days = 0
        if likely(slots[i].kind == TEXT):
            if likely(slots[i].length == 10):
                odd = date_unchecked(slots[i].p, &days)
            else:
                odd = infinity(slots[i].p, slots[i].length)
        elif slots[i].kind == BINARY:
            odd = binary_date(slots[i].p, slots[i].length, &days)
        else:
            odd = MISSING
        if unlikely(odd):
            odd = column_odd(c, i, &slots[i], odd)
            days = <int32_t> nearest(odd, INT32_MIN, INT32_MAX)
        out[i] = days


cdef void run_time(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    cdef Py_ssize_t i
    cdef int64_t micros
    cdef int odd
    for i in range(n):
        micros = 0
        odd = HARD
        if unlikely(slots[i].kind < 0):
            odd = MISSING
        elif slots[i].kind == TEXT:
            if likely(slots[i].length >= 8):
                odd = clock_unchecked(slots[i].p, slots[i].length, &micros)
        elif likely(slots[i].length == 8):
            odd = FINE
            micros = load_i64(slots[i].p)
        if odd == FINE and unlikely(not 0 <= micros < DAY):
            odd = ABOVE if micros == DAY else HARD
        if unlikely(odd):
            odd = column_odd(c, i, &slots[i], odd)
            micros = nearest(odd, 0, DAY - 1)
        out[i] = micros


cdef inline int text_timestamp(
    const uint8_t* p, int32_t n, bint zoned, int64_t* micros
) noexcept nogil:
    cdef int32_t days = 0, length
    cdef int64_t east = 0
    if zoned:
        length = zone_length(p, n)
        if unlikely(length == 0):
            return infinity(p, n)
        n -= length
        if unlikely(n < 19 or zone_unchecked(p + n, length, &east)):
            return infinity(p, n + length)
    elif unlikely(n < 19):
        return infinity(p, n)
    if unlikely(
        p[10] != 0x20
        or date_unchecked(p, &days)
        or clock_unchecked(p + 11, n - 11, micros)
        or micros[0] >= DAY
    ):
        return HARD
    micros[0] += days * DAY - east
    return FINE


cdef inline int binary_timestamp(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    cdef int64_t value
    if unlikely(n != 8):
        return HARD
    value = load_i64(p)
    if unlikely(value < MIN_TIMESTAMP or value > MAX_TIMESTAMP):
        return ABOVE if value == INT64_MAX else BELOW if value == INT64_MIN else HARD
    if unlikely(value > INT64_MAX - EPOCH):
        return ABOVE
    micros[0] = value + EPOCH
    return FINE


cdef inline void into_timestamps(
    Column* c, const Slot* slots, Py_ssize_t n, bint zoned
) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    cdef Py_ssize_t i
    cdef int64_t micros
    cdef int odd
    for i in range(n):
        micros = 0
        if likely(slots[i].kind == TEXT):
            odd = text_timestamp(slots[i].p, slots[i].length, zoned, &micros)
        elif slots[i].kind == BINARY:
            odd = binary_timestamp(slots[i].p, slots[i].length, &micros)
        else:
            odd = MISSING
        if unlikely(odd):
            odd = column_odd(c, i, &slots[i], odd)
            # int64's minimum is numpy's NaT, and so no time.
            micros = nearest(odd, -INT64_MAX, INT64_MAX)
        out[i] = micros


cdef void run_timestamp(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_timestamps(c, slots, n, False)


cdef void run_timestamptz(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_timestamps(c, slots, n, True)


cdef inline int binary_interval(
    const uint8_t* p, int32_t n, int32_t* months, int32_t* days, int64_t* micros
) noexcept nogil:
    if n != 16:
        return HARD
    micros[0] = load_i64(p)
    days[0] = load_i32(p + 8)
    months[0] = load_i32(p + 12)
    return FINE


cdef void run_interval(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef Interval* out = <Interval*> c.values + c.length
    cdef Py_ssize_t i
    cdef int32_t months, days
    cdef int64_t micros
    cdef int odd
    for i in range(n):
        months = days = micros = 0
        if slots[i].kind == TEXT:
            odd = text_interval(slots[i].p, slots[i].length, &months, &days, &micros)
        elif slots[i].kind == BINARY:
            odd = binary_interval(slots[i].p, slots[i].length, &months, &days, &micros)
        else:
            odd = MISSING
        # Infinity, too, is past what nanoseconds hold.
        if odd == FINE and not -(INT64_MAX // 1000) <= micros <= INT64_MAX // 1000:
            odd = HARD
        if unlikely(odd):
            months = days = micros = 0
            column_odd(c, i, &slots[i], odd)
        out[i].months = months
        out[i].days = days
        out[i].nanoseconds = micros * 1000
