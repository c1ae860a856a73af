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

from pgwire_codec._core.kernels.column cimport (
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
from pgwire_codec._core.kernels.calendar cimport DAY, EPOCH_DAYS, MAX_DATE, MIN_DATE, date_strays
from pgwire_codec._core.kernels.digits cimport (
    ZEROS,
    are_digits,
    last_digits_of,
    number_of,
    strays,
    word,
)
from pgwire_codec._core.wire.primitives cimport load_i32, load_i64

cdef extern from *:
    """
    #define PGWIRE_MIN_TIMESTAMP INT64_C(-211813488000000000)
    #define PGWIRE_MAX_TIMESTAMP INT64_C(9223371331199999999)
    #define PGWIRE_EPOCH INT64_C(946684800000000)
    static const int32_t PGWIRE_MICROS[7] = {0, 100000, 10000, 1000, 100, 10, 1};
    """
    const int32_t MICROS "PGWIRE_MICROS"[7]  # of the last of so many decimals of a second
    const int64_t MIN_TIMESTAMP "PGWIRE_MIN_TIMESTAMP"  # datatype/timestamp.h
    const int64_t MAX_TIMESTAMP "PGWIRE_MAX_TIMESTAMP"
    const int64_t EPOCH "PGWIRE_EPOCH"  # microseconds from 1970 to 2000


cdef enum:
    MAX_COUNT_DIGITS = 10


cdef packed struct Interval:
    int32_t months
    int32_t days
    int64_t nanoseconds


cdef inline uint64_t pairs_of(uint64_t w) noexcept nogil:
    """Give the four two-digit numbers of eight digits, in 16 bits each, the first lowest."""
    return (w * 10 + (w >> 8)) & <uint64_t> 0x00FF00FF00FF00FF


cdef inline uint64_t iso_date_strays(const uint8_t* p, int32_t* days) noexcept nogil:
    """Read ten bytes that may be ``2024-02-29``; not 0 if they are no date."""
    cdef uint64_t year_first = word(p), day_last = word(p + 2), w, pairs
    w = (
        (year_first & <uint64_t> 0x00000000FFFFFFFF)
        | ((day_last << 8) & <uint64_t> 0x0000FFFF00000000)
        | (day_last & <uint64_t> 0xFFFF000000000000)
    ) ^ ZEROS
    pairs = pairs_of(w)
    return (
        ((year_first & <uint64_t> 0xFF0000FF00000000) ^ <uint64_t> 0x2D00002D00000000)
        | strays(w)
        | date_strays(
            pairs & 0xFF, (pairs >> 16) & 0xFF, (pairs >> 32) & 0xFF, (pairs >> 48) & 0xFF, days
        )
    )


cdef inline int date_unchecked(const uint8_t* p, int32_t* days) noexcept nogil:
    """Read ``2024-02-29``; the caller has checked that ten bytes are there."""
    return HARD if iso_date_strays(p, days) else FINE


cdef inline int clock_unchecked(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    """Read ``12:34:56`` and up to six decimals, n bytes of which the caller has checked eight.

    The hours are not limited.
    """
    cdef uint64_t w = word(p)
    cdef int32_t decimals = n - 9
    cdef uint64_t fraction
    if w & <uint64_t> 0x0000FF0000FF0000 != <uint64_t> 0x00003A00003A0000:
        return HARD
    # Zeros in place of the colons; the pairs are hours, tens of minutes, and so on.
    w = (w ^ ZEROS) & <uint64_t> 0xFFFF00FFFF00FFFF
    if not are_digits(w):
        return HARD
    w = w * 10 + (w >> 8)
    if ((w >> 24) & 0xFF) > 59 or ((w >> 48) & 0xFF) > 59:
        return HARD
    micros[0] = (
        ((w & 0xFF) * 60 + ((w >> 24) & 0xFF)) * 60 + ((w >> 48) & 0xFF)
    ) * <uint64_t> 1_000_000
    if n != 8:
        if decimals < 1 or decimals > 6 or p[8] != 0x2E:
            return HARD
        fraction = last_digits_of(word(p + n - 8), decimals)
        if not are_digits(fraction):
            return HARD
        micros[0] += number_of(fraction) * MICROS[decimals]
    return FINE


cdef inline int two_digits(const uint8_t* p, int32_t* out) noexcept nogil:
    out[0] = (p[0] - 0x30) * 10 + (p[1] - 0x30)
    if p[0] - <unsigned int> 0x30 > 9 or p[1] - <unsigned int> 0x30 > 9:
        return HARD
    return FINE


cdef inline int32_t zone_length(const uint8_t* p, int32_t n) noexcept nogil:
    """Give the length of the offset that n bytes end with: 3, 6 or 9; 0 for none."""
    cdef int32_t length
    for length in range(3, 10, 3):
        if length < n and (p[n - length] == 0x2B or p[n - length] == 0x2D):
            return length
    return 0


cdef inline int zone_unchecked(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    """Read ``+05``, ``+05:30`` or ``+05:30:20``, n (3, 6 or 9) bytes from zone_length."""
    cdef int32_t hours = 0, minutes = 0, seconds = 0
    if two_digits(p + 1, &hours):
        return HARD
    if n > 3 and (p[3] != 0x3A or two_digits(p + 4, &minutes)):
        return HARD
    if n > 6 and (p[6] != 0x3A or two_digits(p + 7, &seconds)):
        return HARD
    if minutes > 59 or seconds > 59:
        return HARD
    micros[0] = ((hours * 60 + minutes) * 60 + seconds) * <int64_t> 1_000_000
    if p[0] == 0x2D:
        micros[0] = -micros[0]
    return FINE


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


cdef inline Kernel time_kernel(Column* c, str family):
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


cdef inline int infinity(const uint8_t* p, int32_t n) noexcept nogil:
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


cdef inline void run_date(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
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


cdef inline void run_time(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
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


cdef inline void run_timestamp(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_timestamps(c, slots, n, False)


cdef inline void run_timestamptz(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
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


cdef inline void run_interval(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
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
