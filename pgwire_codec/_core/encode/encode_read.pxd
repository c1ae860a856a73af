"""One row of an Arrow array as a plain value; WRITTEN, or HARD where it is not an ordinary one."""

from libc.stdint cimport (
    INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy

from pgwire_codec._core.encode.cells cimport (
    HARD, WRITTEN, Values, load_i32_native, load_i64_native,
)
from pgwire_codec._core.kernels.shortest cimport u128

cdef enum:
    INT32_LIMIT = 2147483647


cdef inline int read_integer(
    const Values* v, int64_t row, uint64_t* magnitude, bint* negative
) noexcept nogil:
    cdef const uint8_t* p = v.data + v.width * row
    cdef int64_t value
    cdef int16_t two
    if v.width == 8:
        value = load_i64_native(p)
    elif v.width == 4:
        value = load_i32_native(p)
        if not v.is_signed:
            value = <uint32_t> value
    elif v.width == 2:
        memcpy(&two, p, 2)
        value = two if v.is_signed else <int64_t> <uint16_t> two
    else:
        value = <int8_t> p[0] if v.is_signed else <int64_t> p[0]
    negative[0] = v.is_signed and value < 0
    magnitude[0] = -<uint64_t> value if negative[0] else <uint64_t> value
    return HARD if magnitude[0] > (v.least if negative[0] else v.most) else WRITTEN


cdef inline int read_decimal(
    const Values* v, int64_t row, u128* magnitude, bint* negative
) noexcept nogil:
    cdef u128 value
    memcpy(&value, v.data + 16 * row, 16)
    negative[0] = <bint> (value >> 127)
    magnitude[0] = -value if negative[0] else value
    return HARD if v.limit and magnitude[0] >= v.limit else WRITTEN


cdef inline int read_micros(const Values* v, int64_t row, int64_t* micros) noexcept nogil:
    cdef int64_t value
    if v.width == 8:
        value = load_i64_native(v.data + 8 * row)
    else:
        value = load_i32_native(v.data + 4 * row)
    if value % v.divide:
        return HARD
    if value > INT64_MAX // v.multiply or value < -(INT64_MAX // v.multiply):
        return HARD
    micros[0] = value * v.multiply // v.divide
    return WRITTEN


cdef inline void read_float(
    const Values* v, int64_t row, bint* negative, uint64_t* mantissa, int32_t* exponent
) noexcept nogil:
    """Take a float apart; exponent -1 for infinity (mantissa 0) and NaN.

    A float32 that is written as a float8 is made one first.
    """
    cdef uint64_t bits
    cdef uint32_t short_bits
    cdef float narrow
    cdef double wide
    if v.single:
        memcpy(&short_bits, v.data + 4 * row, 4)
        negative[0] = <bint> (short_bits >> 31)
        mantissa[0] = short_bits & 0x7FFFFF
        exponent[0] = short_bits >> 23 & 0xFF
        if exponent[0] == 0xFF:
            exponent[0] = -1
        return
    if v.width == 4:
        memcpy(&narrow, v.data + 4 * row, 4)
        wide = narrow
        memcpy(&bits, &wide, 8)
    else:
        bits = <uint64_t> load_i64_native(v.data + 8 * row)
    negative[0] = <bint> (bits >> 63)
    mantissa[0] = bits & 0xFFFFFFFFFFFFFULL
    exponent[0] = bits >> 52 & 0x7FF
    if exponent[0] == 0x7FF:
        exponent[0] = -1


cdef inline int read_bytes(
    const Values* v, int64_t row, const uint8_t** data, int64_t* length
) noexcept nogil:
    """Give where a string lies: by offsets of 4 or 8 bytes, by a view of 16, or all of one size."""
    cdef int64_t low, high
    cdef const uint8_t* view
    cdef int32_t index
    if v.width == 4:
        low = load_i32_native(v.data + 4 * row)
        high = load_i32_native(v.data + 4 * row + 4)
    elif v.width == 8:
        low = load_i64_native(v.data + 8 * row)
        high = load_i64_native(v.data + 8 * row + 8)
    elif v.width == 16:
        view = v.data + 16 * row
        length[0] = load_i32_native(view)
        if length[0] < 0:
            return HARD
        if length[0] <= 12:
            data[0] = view + 4
            return WRITTEN
        index = load_i32_native(view + 8)
        low = load_i32_native(view + 12)
        if index < 0 or index >= v.n_pieces or low < 0:
            return HARD
        if length[0] > v.pieces[index].length - low:
            return HARD
        data[0] = v.pieces[index].data + low
        return WRITTEN
    else:
        low = v.out_width * row
        high = low + v.out_width
    if low < 0 or high < low or high > v.bytes_length:
        return HARD
    data[0] = v.bytes + low
    length[0] = high - low
    return WRITTEN
