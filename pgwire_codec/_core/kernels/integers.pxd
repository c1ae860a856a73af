"""bool, int2, int4, int8, the OID family, xid8 and pg_lsn, in both forms.

Of the column, `low` and `high` are the range of the type, and `wire_width` the size of its binary
form.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport (
    ABOVE, AS_BINARY, BINARY, DEFERRED, FINE, ColumnBuffers, Kernel, Slice, length_and_form,
    unlikely,
)
from pgwire_codec._core.kernels.digits cimport (
    LAST_BYTES, ZEROS, number_of, parse_digits, parse_hex, strays, word,
)
from pgwire_codec._core.kernels.skeleton cimport decode_fixed, fast_path_fits, tries_fast_path
from pgwire_codec._core.wire.primitives cimport (
    PGWIRE_SWAP32, load_i16, load_i32, load_i64, load_u32, load_u64,
)

ctypedef fused Integer:
    int16_t
    int32_t
    int64_t
    uint32_t


cdef inline Kernel integer_kernel(ColumnBuffers* c, str family, str arrow):
    """Set the column up for a family of whole numbers, or for booleans; return its kernel."""
    if family == "bool":
        c.width = 1
        return decode_bool
    c.width = {"s": 2, "i": 4, "I": 4}.get(arrow, 8)
    if family in ("uint8", "pg_lsn"):
        c.high = -1 if arrow == "L" else INT64_MAX
        return decode_uint8 if family == "uint8" else decode_lsn
    bits = {"int2": 15, "int4": 31, "int8": 63, "uint4": 32}[family]
    c.high = (1 << bits) - 1
    c.low = 0 if family == "uint4" else -1 - c.high
    c.wire_width = (bits + 1) // 8
    c.has_fast_path = True
    if arrow == "s":
        return decode_int2
    if arrow == "i":
        return decode_int4
    return decode_uint4 if arrow == "I" else decode_int8


# Read.


cdef inline int read_integer_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef uint64_t magnitude, limit
    cdef bint negative
    if unlikely(n < 1):
        return DEFERRED
    negative = p[0] == 0x2D  # -
    if unlikely(negative):
        p += 1
        n -= 1
    if unlikely(n < 1 or n > 19 or not parse_digits(p, n, &magnitude)):
        return DEFERRED
    limit = 0 - <uint64_t> c.low if negative else <uint64_t> c.high
    if unlikely(magnitude > limit):
        return DEFERRED
    words[0] = 0 - magnitude if negative else magnitude
    return FINE


cdef inline int read_integer_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != c.wire_width):
        return DEFERRED
    if n == 4:
        words[0] = load_u32(p) if c.low == 0 else <uint64_t> load_i32(p)
    elif n == 8:
        words[0] = load_u64(p)
    else:
        words[0] = <uint64_t> load_i16(p)
    return FINE


cdef inline int read_uint8_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    # A number of 20 digits, which may be too large, is rare enough for the fallback.
    if unlikely(n < 1 or n > 19 or not parse_digits(p, n, words)):
        return DEFERRED
    return ABOVE if unlikely(words[0] > <uint64_t> c.high) else FINE


cdef inline int read_uint8_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != 8):
        return DEFERRED
    words[0] = load_u64(p)
    return ABOVE if unlikely(words[0] > <uint64_t> c.high) else FINE


cdef inline int read_hex_half(const uint8_t* p, int32_t n, uint32_t* out) noexcept nogil:
    cdef uint64_t zeros
    if n < 1 or n > 8:
        return DEFERRED
    zeros = ((word(p + n - 8) ^ ZEROS) & LAST_BYTES[n]) ^ ZEROS
    if not parse_hex(zeros, out):
        return DEFERRED
    out[0] = PGWIRE_SWAP32(out[0])
    return FINE


cdef inline int read_lsn_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef int32_t slash = 0
    cdef uint32_t upper = 0, lower = 0
    while slash < n and slash < 9 and p[slash] != 0x2F:
        slash += 1
    if (
        slash >= n
        or read_hex_half(p, slash, &upper)
        or read_hex_half(p + slash + 1, n - slash - 1, &lower)
    ):
        return DEFERRED
    words[0] = <uint64_t> upper << 32 | lower
    return ABOVE if unlikely(words[0] > <uint64_t> c.high) else FINE


cdef inline int read_bool_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    if unlikely(n != 1 or (p[0] != 0x74 and p[0] != 0x66)):  # t, f
        return DEFERRED
    words[0] = p[0] == 0x74
    return FINE


cdef inline int read_bool_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != 1 or p[0] > 1):
        return DEFERRED
    words[0] = p[0]
    return FINE


# Kernels.


cdef inline bint fast_integers(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, bint signs, Integer* out
) noexcept nogil:
    """Read text of one to eight digits, with `signs` also after a minus sign.

    Return False if any row is something else.
    """
    cdef uint64_t stray = 0, w, value, digits, negative = 0
    cdef const uint8_t* p
    cdef Py_ssize_t i
    for i in range(n):
        p = values[i].p
        digits = length_and_form(&values[i])
        w = word(p + values[i].length - 8) ^ ZEROS
        if signs:
            # Nothing can be loaded at the end of the data, but nothing is there.
            negative = (p - (p == c.end))[0] == 0x2D
            digits -= negative
        w &= LAST_BYTES[digits & 15]
        value = number_of(w)
        stray |= strays(w) | ((digits - 1) & ~<uint64_t> 7)
        if Integer is int16_t:
            stray |= value > <uint64_t> c.high + negative
        out[i] = <Integer> ((value ^ (0 - negative)) + negative)
    return stray == 0


cdef inline bint fast_binary_integers(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, Integer* out
) noexcept nogil:
    """Read binary forms of the type's size; return False if any row is something else."""
    cdef uint64_t stray = 0
    cdef const uint8_t* p
    cdef Py_ssize_t i
    for i in range(n):
        p = values[i].p + values[i].length - sizeof(Integer)
        stray |= length_and_form(&values[i]) ^ (AS_BINARY | sizeof(Integer))
        if Integer is int16_t:
            out[i] = load_i16(p)
        elif Integer is int64_t:
            out[i] = load_i64(p)
        else:
            out[i] = <Integer> load_u32(p)
    return stray == 0


cdef inline bint fast_path(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, Integer* out
) noexcept nogil:
    if values[0].form == BINARY:
        return fast_binary_integers(c, values, n, out)
    if not c.has_signs and fast_integers(c, values, n, False, out):
        return True
    # A column of both signs has them in most blocks.
    c.has_signs = c.low < 0 and fast_integers(c, values, n, True, out)
    return c.has_signs


cdef inline void decode_integers(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, Integer* out
) noexcept nogil:
    if tries_fast_path(c) and fast_path_fits(c, not fast_path(c, values, n, out)):
        return
    decode_fixed(c, values, n, out, read_integer_text, read_integer_binary)


cdef inline void decode_int2(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    decode_integers(c, values, n, <int16_t*> c.values + c.length)


cdef inline void decode_int4(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    decode_integers(c, values, n, <int32_t*> c.values + c.length)


cdef inline void decode_uint4(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    decode_integers(c, values, n, <uint32_t*> c.values + c.length)


cdef inline void decode_int8(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    decode_integers(c, values, n, <int64_t*> c.values + c.length)


cdef inline void decode_uint8(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_uint8_text, read_uint8_binary)


cdef inline void decode_lsn(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_lsn_text, read_uint8_binary)


cdef inline void decode_bool(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    """Decode into a byte for each row; they become a bitmap at the end."""
    decode_fixed(c, values, n, c.values + c.length, read_bool_text, read_bool_binary)
