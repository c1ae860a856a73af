"""Text forms as the server writes them: one function a kind of value.

Each makes room, writes one row's value behind kind and length, and says WRITTEN; or HARD, and has
then moved nothing. Whether the row is null was asked before.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.encode.cells cimport (
    DAY, HARD, HEAD, MOST, NO_MEMORY, Out, Values, finish, load_i32_native, load_i64_native, room,
)
from pgwire_codec._core.encode.encode_read cimport (
    INT32_LIMIT, read_bytes, read_decimal, read_float, read_integer, read_micros,
)
from pgwire_codec._core.kernels.shortest cimport shortest, u128
from pgwire_codec._core.kernels.digits cimport (
    HEX, put_back, put_number, put_padded, put_pair, put_wide,
)
from pgwire_codec._core.wire.primitives cimport store_bytes

cdef enum:
    # Years 1 to 9999, in days from 1970: others are the reference's.
    FIRST_DAY = -719162
    LAST_DAY = 2932896


cdef inline int text_bool(const Values* v, int64_t row, Out* out) noexcept nogil:
    if room(out, MOST):
        return NO_MEMORY
    out.p[HEAD] = b"t" if v.data[row >> 3] >> (row & 7) & 1 else b"f"
    return finish(v, out, out.p + HEAD + 1)


cdef inline int text_integer(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef uint64_t magnitude
    cdef bint negative
    cdef uint8_t* p
    if room(out, MOST):
        return NO_MEMORY
    if read_integer(v, row, &magnitude, &negative):
        return HARD
    p = out.p + HEAD
    if negative:
        p[0] = b"-"
        p += 1
    return finish(v, out, put_number(p, magnitude))


cdef inline int text_decimal(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef uint8_t digits[40]
    cdef uint8_t* p
    cdef uint8_t* start
    cdef uint8_t* end
    cdef u128 magnitude
    cdef bint negative
    cdef int whole
    if room(out, MOST + v.scale):
        return NO_MEMORY
    if read_decimal(v, row, &magnitude, &negative):
        return HARD
    if magnitude >> 64 == 0:
        end = digits + 40
        start = put_back(end, <uint64_t> magnitude)
    else:
        start = digits
        end = put_wide(digits, magnitude)
    p = out.p + HEAD
    if negative:
        p[0] = b"-"
        p += 1
    whole = <int> (end - start) - v.scale
    if whole > 0:
        p = store_bytes(p, start, whole)
        start += whole
    else:
        p[0] = b"0"
        p += 1
    if v.scale:
        p[0] = b"."
        p += 1
        while whole < 0:
            p[0] = b"0"
            p += 1
            whole += 1
        p = store_bytes(p, start, end - start)
    return finish(v, out, p)


cdef inline uint8_t* put_date(uint8_t* p, int32_t days) noexcept nogil:
    """Write a day of the years 1 to 9999, by the arithmetic of reference.families.calendar."""
    cdef uint32_t of_all = <uint32_t> (days + 719468)
    cdef uint32_t era = of_all // 146097, of_era = of_all % 146097
    cdef uint32_t year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef uint32_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef uint32_t month = (5 * of_year + 2) // 153
    cdef uint32_t day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
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
        while p[-1] == b"0":
            p -= 1
    return p


cdef inline int text_date(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef int32_t days
    if room(out, MOST):
        return NO_MEMORY
    days = load_i32_native(v.data + 4 * row)
    if days < FIRST_DAY or days > LAST_DAY:
        return HARD
    return finish(v, out, put_date(out.p + HEAD, days))


cdef inline int text_time(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef int64_t micros
    if room(out, MOST):
        return NO_MEMORY
    if read_micros(v, row, &micros) or micros < 0 or micros > DAY:
        return HARD
    return finish(v, out, put_clock(out.p + HEAD, micros))


cdef inline int text_timestamp(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef int64_t micros, days
    cdef uint8_t* p
    if room(out, MOST):
        return NO_MEMORY
    if read_micros(v, row, &micros):
        return HARD
    days = micros // DAY
    micros -= days * DAY
    if micros < 0:  # division truncates
        micros += DAY
        days -= 1
    if days < FIRST_DAY or days > LAST_DAY:
        return HARD
    p = put_date(out.p + HEAD, <int32_t> days)
    p[0] = b" "
    p = put_clock(p + 1, micros)
    if v.with_zone:
        p = store_bytes(p, <const char*> b"+00", 3)
    return finish(v, out, p)


cdef inline uint8_t* put_hex(uint8_t* p, const uint8_t* data, int64_t length) noexcept nogil:
    cdef int64_t i
    for i in range(length):
        p[2 * i] = HEX[data[i] >> 4]
        p[2 * i + 1] = HEX[data[i] & 15]
    return p + 2 * length


cdef inline int text_bytea(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef const uint8_t* data
    cdef int64_t length
    if read_bytes(v, row, &data, &length) or length > INT32_LIMIT // 2 - 1:
        return HARD
    if room(out, HEAD + 2 + 2 * length):
        return NO_MEMORY
    out.p[HEAD] = b"\\"
    out.p[HEAD + 1] = b"x"
    return finish(v, out, put_hex(out.p + HEAD + 2, data, length))


cdef inline int text_uuid(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef const uint8_t* data = v.data + 16 * row
    cdef uint8_t* p
    cdef int part
    if room(out, MOST):
        return NO_MEMORY
    p = put_hex(out.p + HEAD, data, 4)
    data += 4
    for part in range(3):
        p[0] = b"-"
        p = put_hex(p + 1, data + 2 * part, 2)
    p[0] = b"-"
    return finish(v, out, put_hex(p + 1, data + 6, 6))


cdef inline int text_float(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef uint64_t mantissa, digits, c
    cdef int32_t exponent, q, point, count, fixed_below
    cdef bint negative
    cdef uint8_t buffer[20]
    cdef uint8_t* p
    cdef uint8_t* start
    cdef uint8_t* end = buffer + 20
    if room(out, MOST):
        return NO_MEMORY
    read_float(v, row, &negative, &mantissa, &exponent)
    p = out.p + HEAD
    if exponent < 0 and mantissa:
        return finish(v, out, store_bytes(p, <const char*> b"NaN", 3))
    if negative:
        p[0] = b"-"
        p += 1
    if exponent < 0:
        return finish(v, out, store_bytes(p, <const char*> b"Infinity", 8))
    if exponent == 0 and mantissa == 0:
        p[0] = b"0"
        return finish(v, out, p + 1)
    if v.single:
        c = mantissa | (1 << 23 if exponent else 0)
        q = (exponent if exponent else 1) - 150
        fixed_below = 6
    else:
        c = mantissa | (<uint64_t> 1 << 52 if exponent else 0)
        q = (exponent if exponent else 1) - 1075
        fixed_below = 15
    digits = shortest(v.powers, c, q, mantissa == 0 and exponent > 1, &point)
    start = put_back(end, digits)
    point += <int32_t> (end - start) - 1  # the decimal exponent of the first digit
    while end[-1] == b"0":
        end -= 1
    count = <int32_t> (end - start)
    if point < -4 or point >= fixed_below:
        p[0] = start[0]
        p += 1
        if count > 1:
            p[0] = b"."
            p = store_bytes(p + 1, start + 1, count - 1)
        p[0] = b"e"
        p[1] = b"-" if point < 0 else b"+"
        point = -point if point < 0 else point
        p += 2
        p = put_number(p, point) if point >= 100 else put_pair(p, point)
    elif point < 0:
        p[0] = b"0"
        p[1] = b"."
        p = put_padded(p + 2, 0, -point - 1)
        p = store_bytes(p, start, count)
    elif count <= point + 1:
        p = store_bytes(p, start, count)
        p = put_padded(p, 0, point + 1 - count)
    else:
        p = store_bytes(p, start, point + 1)
        p[0] = b"."
        p = store_bytes(p + 1, start + point + 1, count - point - 1)
    return finish(v, out, p)
