"""float4 and float8, in both forms; a binary NaN keeps its payload."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport (
    DEFERRED, FINE, ColumnBuffers, Kernel, Slice, likely, unlikely,
)
from pgwire_codec._core.kernels.decimal_float cimport parse_float, parse_special_float
from pgwire_codec._core.kernels.skeleton cimport decode_fixed
from pgwire_codec._core.wire.primitives cimport load_u32, load_u64

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
