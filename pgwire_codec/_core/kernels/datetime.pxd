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
    parse_date_unchecked, parse_zone_unchecked, split_days, zone_length,
)
from pgwire_codec._core.kernels.column cimport (
    ABOVE, AS_BINARY, BELOW, BINARY, DEFERRED, FINE, ColumnBuffers, Kernel, Slice, length_and_form,
    likely, unlikely,
)
from pgwire_codec._core.kernels.digits cimport put_padded, put_pair
from pgwire_codec._core.kernels.interval cimport decode_duration, decode_interval
from pgwire_codec._core.kernels.skeleton cimport decode_fixed, fast_path_fits, tries_fast_path
from pgwire_codec._core.kernels.writer cimport (
    MOST_BYTES, NO_MEMORY, WRITTEN, ArrowColumn, Output, finish, load_i32_native, load_i64_native,
    reserve,
)
from pgwire_codec._core.protocol cimport EPOCH, EPOCH_DAYS
from pgwire_codec._core.wire.primitives cimport (
    load_i32, load_i64, load_u64, store_bytes, store_u32, store_u64,
)
from pgwire_codec._core.wire.tuple_data cimport VALUE_HEAD

cdef extern from *:
    """
    #define PGWIRE_MAX_TIMESTAMP INT64_C(9223371331199999999)
    """
    const int64_t MAX_TIMESTAMP "PGWIRE_MAX_TIMESTAMP"  # microseconds since 2000

cdef enum:
    # Years 1 to 9999, in days since 1970; the fallback writes others.
    FIRST_DAY = -719162
    LAST_DAY = 2932896


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


# Write.


cdef inline int stored_micros(const ArrowColumn* v, int64_t row, int64_t* micros) noexcept nogil:
    cdef int64_t value
    if v.width == 8:
        value = load_i64_native(v.data + 8 * row)
    else:
        value = load_i32_native(v.data + 4 * row)
    if value % v.divide:
        return DEFERRED
    if value > INT64_MAX // v.multiply or value < -(INT64_MAX // v.multiply):
        return DEFERRED
    micros[0] = value * v.multiply // v.divide
    return WRITTEN


cdef inline uint8_t* put_date(uint8_t* p, int32_t days) noexcept nogil:
    """Write a day of the years 1 to 9999."""
    cdef uint32_t year, month, day
    split_days(days, &year, &month, &day)
    p = put_pair(put_pair(p, year // 100), year % 100)
    p[0] = b"-"
    p = put_pair(p + 1, month)
    p[0] = b"-"
    return put_pair(p + 1, day)


cdef inline uint8_t* put_clock(uint8_t* p, int64_t micros) noexcept nogil:
    """Write a time of a day, with as many digits as its fraction takes."""
    cdef uint32_t seconds = <uint32_t> (micros // 1000000)
    cdef uint32_t fraction = <uint32_t> (micros % 1000000)
    p = put_pair(p, seconds // 3600)
    p[0] = b":"
    p = put_pair(p + 1, seconds // 60 % 60)
    p[0] = b":"
    p = put_pair(p + 1, seconds % 60)
    if fraction:
        p[0] = b"."
        p = put_padded(p + 1, fraction, 6)
        while (p - 1)[0] == b"0":
            p -= 1
    return p


cdef inline int write_date_text(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef int32_t days
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    days = load_i32_native(v.data + 4 * row)
    if days < FIRST_DAY or days > LAST_DAY:
        return DEFERRED
    return finish(v, out, put_date(out.p + VALUE_HEAD, days))


cdef inline int write_time_text(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef int64_t micros
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    if stored_micros(v, row, &micros) or micros < 0 or micros > DAY:
        return DEFERRED
    return finish(v, out, put_clock(out.p + VALUE_HEAD, micros))


cdef inline int write_timestamp_text(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef int64_t micros, days
    cdef uint8_t* p
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    if stored_micros(v, row, &micros):
        return DEFERRED
    days = micros // DAY
    micros -= days * DAY
    if micros < 0:  # division truncates
        micros += DAY
        days -= 1
    if days < FIRST_DAY or days > LAST_DAY:
        return DEFERRED
    p = put_date(out.p + VALUE_HEAD, <int32_t> days)
    p[0] = b" "
    p = put_clock(p + 1, micros)
    if v.with_zone:
        p = store_bytes(p, <const char*> b"+00", 3)
    return finish(v, out, p)


cdef inline int write_date_binary(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef int32_t days
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    days = load_i32_native(v.data + 4 * row)
    if days < MIN_DATE or days > MAX_DATE:
        return DEFERRED
    return finish(v, out, store_u32(out.p + VALUE_HEAD, <uint32_t> (days - EPOCH_DAYS)))


cdef inline int write_time_binary(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef int64_t micros
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    if stored_micros(v, row, &micros) or micros < 0 or micros > DAY:
        return DEFERRED
    return finish(v, out, store_u64(out.p + VALUE_HEAD, <uint64_t> micros))


cdef inline int write_timestamp_binary(
    const ArrowColumn* v, int64_t row, Output* out
) noexcept nogil:
    cdef int64_t micros
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    # The last timestamp of PostgreSQL is later than 64 bits reach from 1970.
    if stored_micros(v, row, &micros) or micros < MIN_TIMESTAMP:
        return DEFERRED
    return finish(v, out, store_u64(out.p + VALUE_HEAD, <uint64_t> (micros - EPOCH)))
