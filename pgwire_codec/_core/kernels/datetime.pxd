"""date, time, timestamp and timestamptz, in both forms; interval is in a file of its own.

Text is that of DateStyle ISO. Years of four digits are decoded here, with any offset from UTC;
longer ones, and BC, are deferred.
"""

from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.string cimport memcmp

from pgwire_codec._core.kernels.calendar cimport (
    DAY, MAX_DATE, MIN_DATE, MIN_TIMESTAMP, iso_date_strays, parse_clock_unchecked,
    parse_date_unchecked, parse_zone_unchecked, zone_length,
)
from pgwire_codec._core.kernels.column cimport (
    ABOVE, AS_BINARY, BELOW, BINARY, DEFERRED, FINE, ColumnBuffers, Kernel, Slice, length_and_form,
    likely, unlikely,
)
from pgwire_codec._core.kernels.interval cimport decode_duration, decode_interval
from pgwire_codec._core.kernels.skeleton cimport decode_fixed, fast_path_fits, tries_fast_path
from pgwire_codec._core.protocol cimport EPOCH, EPOCH_DAYS
from pgwire_codec._core.wire.primitives cimport load_i32, load_i64, load_u64

cdef extern from *:
    """
    #define PGWIRE_MAX_TIMESTAMP INT64_C(9223371331199999999)
    """
    const int64_t MAX_TIMESTAMP "PGWIRE_MAX_TIMESTAMP"  # microseconds since 2000


cdef inline Kernel datetime_kernel(ColumnBuffers* c, str family, str arrow):
    """Set the column up for a family of dates and times; return its kernel.

    `low` and `high` are what a value below or above the type's range becomes.
    """
    c.width = 8
    if family == "date":
        c.width = 4
        c.low, c.high = INT32_MIN, INT32_MAX
        c.has_fast_path = True
        return decode_date
    if family == "time":
        c.low, c.high = 0, DAY - 1
        return decode_time
    if family == "interval":
        if arrow == "tDu":
            return decode_duration
        c.width = 16
        return decode_interval
    # int64's minimum is numpy's NaT.
    c.low, c.high = -INT64_MAX, INT64_MAX
    return decode_timestamptz if family == "timestamptz" else decode_timestamp


# Read.


cdef inline int parse_infinity(const uint8_t* p, int32_t n) noexcept nogil:
    if n == 8 and memcmp(p, b"infinity", 8) == 0:
        return ABOVE
    return BELOW if n == 9 and memcmp(p, b"-infinity", 9) == 0 else DEFERRED


cdef inline int read_date_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef int32_t days = 0
    cdef int status
    if unlikely(n != 10):
        return parse_infinity(p, n)
    status = parse_date_unchecked(p, &days)
    words[0] = <uint64_t> days
    return status


cdef inline int read_date_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    cdef int32_t value
    if unlikely(n != 4):
        return DEFERRED
    value = load_i32(p)
    if unlikely(value < MIN_DATE - EPOCH_DAYS or value > MAX_DATE - EPOCH_DAYS):
        return ABOVE if value == INT32_MAX else BELOW if value == INT32_MIN else DEFERRED
    words[0] = <uint64_t> (value + EPOCH_DAYS)
    return FINE


cdef inline int check_time(int64_t micros) noexcept nogil:
    if likely(0 <= micros < DAY):
        return FINE
    return ABOVE if micros == DAY else DEFERRED


cdef inline int read_time_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef int64_t micros = 0
    if unlikely(n < 8 or parse_clock_unchecked(p, n, &micros)):
        return DEFERRED
    words[0] = <uint64_t> micros
    return check_time(micros)


cdef inline int read_time_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != 8):
        return DEFERRED
    words[0] = load_u64(p)
    return check_time(<int64_t> words[0])


cdef inline int parse_timestamp(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    cdef int32_t days = 0
    if unlikely(
        p[10] != 0x20
        or parse_date_unchecked(p, &days)
        or parse_clock_unchecked(p + 11, n - 11, micros)
        or micros[0] >= DAY
    ):
        return DEFERRED
    micros[0] += days * DAY
    return FINE


cdef inline int read_timestamp_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    if unlikely(n < 19):
        return parse_infinity(p, n)
    return parse_timestamp(p, n, <int64_t*> words)


cdef inline int read_timestamptz_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef int64_t east = 0, micros = 0
    cdef int32_t length = zone_length(p, n)
    if unlikely(
        length == 0 or n - length < 19 or parse_zone_unchecked(p + n - length, length, &east)
    ):
        return parse_infinity(p, n)
    if unlikely(parse_timestamp(p, n - length, &micros)):
        return DEFERRED
    words[0] = <uint64_t> (micros - east)
    return FINE


cdef inline int read_timestamp_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    cdef int64_t value
    if unlikely(n != 8):
        return DEFERRED
    value = load_i64(p)
    if unlikely(value < MIN_TIMESTAMP - EPOCH or value > MAX_TIMESTAMP):
        return ABOVE if value == INT64_MAX else BELOW if value == INT64_MIN else DEFERRED
    if unlikely(value > INT64_MAX - EPOCH):
        return ABOVE
    words[0] = <uint64_t> (value + EPOCH)
    return FINE


# Kernels.


cdef inline bint fast_dates(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, int32_t* out
) noexcept nogil:
    """Read text of ten bytes; return False if any row is something else."""
    cdef uint64_t stray = 0
    cdef const uint8_t* p
    cdef Py_ssize_t i
    for i in range(n):
        # A shorter value is loaded with the bytes before it.
        p = values[i].p + values[i].length - 10
        stray |= iso_date_strays(p, out + i) | (length_and_form(&values[i]) ^ 10)
    return fast_path_fits(c, stray)


cdef inline bint fast_binary_dates(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, int32_t* out
) noexcept nogil:
    """Read dates of four bytes; return False if any row is something else."""
    cdef uint64_t stray = 0
    cdef uint32_t least = MIN_DATE - EPOCH_DAYS, span = MAX_DATE - MIN_DATE
    cdef int32_t value
    cdef Py_ssize_t i
    for i in range(n):
        value = load_i32(values[i].p + values[i].length - 4)
        stray |= length_and_form(&values[i]) ^ (AS_BINARY | 4)
        stray |= <uint32_t> value - least > span
        out[i] = <int32_t> (<uint32_t> value + EPOCH_DAYS)
    return fast_path_fits(c, stray)


cdef inline void decode_date(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int32_t* out = <int32_t*> c.values + c.length
    if tries_fast_path(c):
        if values[0].form == BINARY:
            if fast_binary_dates(c, values, n, out):
                return
        elif fast_dates(c, values, n, out):
            return
    decode_fixed(c, values, n, out, read_date_text, read_date_binary)


cdef inline void decode_time(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_time_text, read_time_binary)


cdef inline void decode_timestamp(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_timestamp_text, read_timestamp_binary)


cdef inline void decode_timestamptz(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_timestamptz_text, read_timestamp_binary)
