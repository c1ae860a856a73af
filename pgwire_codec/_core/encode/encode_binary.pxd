"""Binary forms as the types' send functions write them; see encode_text for what a writer does."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.encode.cells cimport (
    DAY, HARD, HEAD, MOST, NO_MEMORY, Out, Values, finish, load_i32_native, load_i64_native, room,
)
from pgwire_codec._core.encode.encode_read cimport (
    INT32_LIMIT, read_bytes, read_decimal, read_integer, read_micros,
)
from pgwire_codec._core.kernels.shortest cimport u128
from pgwire_codec._core.wire.primitives cimport store_bytes, store_u16, store_u32, store_u64

cdef extern from *:
    """
    /* Of reference.families.calendar: days and microseconds from 1970; PostgreSQL's are from 2000. */
    #define PGWIRE_EPOCH_DAYS 10957
    #define PGWIRE_MIN_DATE -2440588
    #define PGWIRE_MAX_DATE 2145042905
    #define PGWIRE_EPOCH 946684800000000LL
    #define PGWIRE_MIN_TIMESTAMP -210866803200000000LL
    """
    const int32_t EPOCH_DAYS "PGWIRE_EPOCH_DAYS"
    const int32_t MIN_DATE "PGWIRE_MIN_DATE"
    const int32_t MAX_DATE "PGWIRE_MAX_DATE"
    const int64_t EPOCH "PGWIRE_EPOCH"
    const int64_t MIN_TIMESTAMP "PGWIRE_MIN_TIMESTAMP"


cdef inline int send_bool(const Values* v, int64_t row, Out* out) noexcept nogil:
    if room(out, MOST):
        return NO_MEMORY
    out.p[HEAD] = v.data[row >> 3] >> (row & 7) & 1
    return finish(v, out, out.p + HEAD + 1)


cdef inline int send_integer(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef uint64_t value
    cdef bint negative
    cdef uint8_t* p
    if room(out, MOST):
        return NO_MEMORY
    if read_integer(v, row, &value, &negative):
        return HARD
    value = -value if negative else value
    p = out.p + HEAD
    if v.out_width == 4:
        p = store_u32(p, <uint32_t> value)
    elif v.out_width == 8:
        p = store_u64(p, value)
    else:
        p = store_u16(p, <uint16_t> value)
    return finish(v, out, p)


cdef inline int send_float(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef uint32_t short_bits
    cdef float narrow
    cdef double wide
    cdef uint64_t bits
    cdef uint8_t* p
    if room(out, MOST):
        return NO_MEMORY
    p = out.p + HEAD
    if v.width == 8:
        return finish(v, out, store_u64(p, <uint64_t> load_i64_native(v.data + 8 * row)))
    short_bits = <uint32_t> load_i32_native(v.data + 4 * row)
    if v.single:
        return finish(v, out, store_u32(p, short_bits))
    memcpy(&narrow, &short_bits, 4)
    if narrow != narrow:
        return HARD  # what becomes of a NaN's payload, the reference says
    wide = narrow
    memcpy(&bits, &wide, 8)
    return finish(v, out, store_u64(p, bits))


cdef inline int send_decimal(const Values* v, int64_t row, Out* out) noexcept nogil:
    """Write sign, weight, scale and groups of four digits, counted from the point."""
    cdef uint16_t groups[12]  # the last first
    cdef u128 rest, most = ~(<u128> 0) // 1000
    cdef uint64_t small
    cdef bint negative
    cdef int count = 0, first = 0, behind = (v.scale + 3) // 4, pad = 4 * behind - v.scale
    cdef uint8_t* p
    if room(out, MOST):
        return NO_MEMORY
    if read_decimal(v, row, &rest, &negative) or rest > most:
        return HARD  # padding would not fit
    while pad:
        rest *= 10
        pad -= 1
    while rest >> 64:
        groups[count] = <uint16_t> (rest % 10000)
        rest //= 10000
        count += 1
    small = <uint64_t> rest
    while small:
        groups[count] = <uint16_t> (small % 10000)
        small //= 10000
        count += 1
    while first < count and groups[first] == 0:
        first += 1
    p = store_u16(out.p + HEAD, <uint16_t> (count - first))
    p = store_u16(p, <uint16_t> (count - behind - 1 if count else 0))
    p = store_u16(p, 0x4000 if negative else 0)
    p = store_u16(p, <uint16_t> v.scale)
    while count > first:
        count -= 1
        p = store_u16(p, groups[count])
    return finish(v, out, p)


cdef inline int send_date(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef int32_t days
    if room(out, MOST):
        return NO_MEMORY
    days = load_i32_native(v.data + 4 * row)
    if days < MIN_DATE or days > MAX_DATE:
        return HARD
    return finish(v, out, store_u32(out.p + HEAD, <uint32_t> (days - EPOCH_DAYS)))


cdef inline int send_time(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef int64_t micros
    if room(out, MOST):
        return NO_MEMORY
    if read_micros(v, row, &micros) or micros < 0 or micros > DAY:
        return HARD
    return finish(v, out, store_u64(out.p + HEAD, <uint64_t> micros))


cdef inline int send_timestamp(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef int64_t micros
    if room(out, MOST):
        return NO_MEMORY
    # The last timestamp that there is lies behind what 64 bits reach from 1970.
    if read_micros(v, row, &micros) or micros < MIN_TIMESTAMP:
        return HARD
    return finish(v, out, store_u64(out.p + HEAD, <uint64_t> (micros - EPOCH)))


cdef inline int send_bytes(const Values* v, int64_t row, Out* out) noexcept nogil:
    cdef const uint8_t* data
    cdef int64_t length
    if read_bytes(v, row, &data, &length) or length > INT32_LIMIT:
        return HARD
    if room(out, HEAD + length):
        return NO_MEMORY
    return finish(v, out, store_bytes(out.p + HEAD, data, length))


cdef inline int send_versioned(const Values* v, int64_t row, Out* out) noexcept nogil:
    """Write the text of a jsonb or jsonpath behind version 1."""
    cdef const uint8_t* data
    cdef int64_t length
    if read_bytes(v, row, &data, &length) or length > INT32_LIMIT - 1:
        return HARD
    if room(out, HEAD + 1 + length):
        return NO_MEMORY
    out.p[HEAD] = 1
    return finish(v, out, store_bytes(out.p + HEAD + 1, data, length))
