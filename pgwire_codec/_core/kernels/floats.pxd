"""float4 and float8, in both forms; a binary NaN keeps its payload."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.kernels.column cimport (
    DEFERRED, FINE, ColumnBuffers, Kernel, Slice, likely, unlikely,
)
from pgwire_codec._core.kernels.decimal_float cimport parse_float, parse_special_float
from pgwire_codec._core.kernels.digits cimport put_back, put_number, put_padded, put_pair
from pgwire_codec._core.kernels.shortest cimport shortest
from pgwire_codec._core.kernels.skeleton cimport decode_fixed
from pgwire_codec._core.kernels.writer cimport (
    MOST_BYTES, NO_MEMORY, ArrowColumn, Output, finish, load_i32_native, load_i64_native, reserve,
)
from pgwire_codec._core.wire.primitives cimport (
    load_u32, load_u64, store_bytes, store_u32, store_u64,
)
from pgwire_codec._core.wire.tuple_data cimport VALUE_HEAD

cdef enum:
    MAX_CHARACTERS = 64  # the server writes at most 24


cdef inline Kernel float_kernel(ColumnBuffers* c, str family):
    """Set the column up for float4 or float8; return its kernel."""
    c.width = 8 if family == "float8" else 4
    return decode_float8 if family == "float8" else decode_float4


# Read.


cdef inline int read_text(
    const uint8_t* p, int32_t n, bint is_double, uint64_t* bits
) noexcept nogil:
    if unlikely(n > MAX_CHARACTERS):
        return DEFERRED
    if likely(parse_float(p, n, is_double, True, bits) == FINE):
        return FINE
    return parse_special_float(p, n, is_double, bits)


cdef inline int read_float8_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    return read_text(p, n, True, words)


cdef inline int read_float8_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != 8):
        return DEFERRED
    words[0] = load_u64(p)
    return FINE


cdef inline int read_float4_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    return read_text(p, n, False, words)


cdef inline int read_float4_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != 4):
        return DEFERRED
    words[0] = load_u32(p)
    return FINE


# Kernels.


cdef inline void decode_float8(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_float8_text, read_float8_binary)


cdef inline void decode_float4(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef uint32_t* out = <uint32_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_float4_text, read_float4_binary)


# Write.


cdef inline uint64_t widened(const uint8_t* p) noexcept nogil:
    """Return the bits of a float32 as those of a float64."""
    cdef float narrow
    cdef double wide
    cdef uint64_t bits
    memcpy(&narrow, p, 4)
    wide = narrow
    memcpy(&bits, &wide, 8)
    return bits


cdef inline void split_stored(
    const ArrowColumn* v, int64_t row, bint* negative, uint64_t* mantissa, int32_t* exponent
) noexcept nogil:
    """Split a float into its fields; the exponent of infinity (mantissa 0) and NaN becomes -1.

    A float32 that is written as a float8 is widened first.
    """
    cdef uint64_t bits
    if v.single:
        bits = <uint32_t> load_i32_native(v.data + 4 * row)
        negative[0] = <bint> (bits >> 31)
        mantissa[0] = bits & 0x7FFFFF
        exponent[0] = bits >> 23 & 0xFF
        if exponent[0] == 0xFF:
            exponent[0] = -1
        return
    if v.width == 4:
        bits = widened(v.data + 4 * row)
    else:
        bits = <uint64_t> load_i64_native(v.data + 8 * row)
    negative[0] = <bint> (bits >> 63)
    mantissa[0] = bits & 0xFFFFFFFFFFFFFULL
    exponent[0] = bits >> 52 & 0x7FF
    if exponent[0] == 0x7FF:
        exponent[0] = -1


cdef inline int write_float_text(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef uint64_t mantissa, digits, c
    cdef int32_t exponent, q, point, fixed_below
    cdef bint negative
    cdef uint8_t buffer[20]
    cdef uint8_t* p
    cdef uint8_t* start
    cdef uint8_t* end = buffer + 20
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    split_stored(v, row, &negative, &mantissa, &exponent)
    p = out.p + VALUE_HEAD
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
    digits = shortest(c, q, mantissa == 0 and exponent > 1, &point)
    start = put_back(end, digits)
    point += <int32_t> (end - start) - 1  # the decimal exponent of the first digit
    while (end - 1)[0] == b"0":
        end -= 1
    return finish(v, out, put_float(p, start, <int32_t> (end - start), point, fixed_below))


cdef inline uint8_t* put_float(
    uint8_t* p, const uint8_t* digits, int32_t count, int32_t point, int32_t fixed_below
) noexcept nogil:
    """Write digits, the first of which has the decimal exponent `point`."""
    if point < -4 or point >= fixed_below:
        p[0] = digits[0]
        p += 1
        if count > 1:
            p[0] = b"."
            p = store_bytes(p + 1, digits + 1, count - 1)
        p[0] = b"e"
        p[1] = b"-" if point < 0 else b"+"
        point = -point if point < 0 else point
        p += 2
        return put_number(p, point) if point >= 100 else put_pair(p, point)
    if point < 0:
        p[0] = b"0"
        p[1] = b"."
        p = put_padded(p + 2, 0, -point - 1)
        return store_bytes(p, digits, count)
    if count <= point + 1:
        p = store_bytes(p, digits, count)
        return put_padded(p, 0, point + 1 - count)
    p = store_bytes(p, digits, point + 1)
    p[0] = b"."
    return store_bytes(p + 1, digits + point + 1, count - point - 1)


cdef inline int write_float_binary(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    cdef uint64_t bits
    cdef uint8_t* p
    if reserve(out, MOST_BYTES):
        return NO_MEMORY
    p = out.p + VALUE_HEAD
    if v.width == 8:
        return finish(v, out, store_u64(p, <uint64_t> load_i64_native(v.data + 8 * row)))
    bits = <uint32_t> load_i32_native(v.data + 4 * row)
    if v.single:
        return finish(v, out, store_u32(p, <uint32_t> bits))
    if bits & 0x7FFFFFFF > 0x7F800000:
        return DEFERRED  # a NaN, whose payload the reference writes
    return finish(v, out, store_u64(p, widened(v.data + 4 * row)))
