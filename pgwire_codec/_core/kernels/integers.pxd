"""bool, int2, int4, int8, the OID family, xid8 and pg_lsn, in both forms.

A kernel is one loop a stored width; what the family allows stands in the column's `low`, `high`
and `wire_width`.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport (
    ABOVE,
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
    unlikely,
)
from pgwire_codec._core.kernels.digits cimport (
    LAST_BYTES,
    ZEROS,
    number_of,
    parse_digits,
    parse_hex,
    strays,
    word,
)
from pgwire_codec._core.wire.primitives cimport (
    PGWIRE_SWAP32,
    load_i16,
    load_i32,
    load_i64,
    load_u32,
    load_u64,
)

ctypedef fused Stored:
    int16_t
    int32_t
    int64_t
    uint32_t


cdef inline Kernel integer_kernel(Column* c, str family, str arrow):
    """Set the column up for a family of whole numbers, or a boolean."""
    if family == "bool":
        c.width = 1
        return run_bool
    c.width = {"s": 2, "i": 4, "I": 4}.get(arrow, 8)
    if family in ("uint8", "pg_lsn"):
        c.high = -1 if arrow == "L" else INT64_MAX
        return run_uint8 if family == "uint8" else run_lsn
    bits = {"int2": 15, "int4": 31, "int8": 63, "uint4": 32}[family]
    c.high = (1 << bits) - 1
    c.low = 0 if family == "uint4" else -1 - c.high
    c.wire_width = (bits + 1) // 8
    c.hurry = True
    if arrow == "s":
        return run_int2
    if arrow == "i":
        return run_int4
    return run_uint4 if arrow == "I" else run_int8


cdef inline int text_integer(
    const uint8_t* p, int32_t n, int64_t low, int64_t high, int64_t* out
) noexcept nogil:
    cdef uint64_t magnitude, limit
    cdef bint negative
    if unlikely(n < 1):
        return HARD
    negative = p[0] == 0x2D  # -
    if unlikely(negative):
        p += 1
        n -= 1
    if unlikely(n < 1 or n > 19 or not parse_digits(p, n, &magnitude)):
        return HARD
    limit = 0 - <uint64_t> low if negative else <uint64_t> high
    if unlikely(magnitude > limit):
        return HARD
    out[0] = <int64_t> (0 - magnitude if negative else magnitude)
    return FINE


cdef inline int binary_integer(const uint8_t* p, int32_t n, Column* c, int64_t* out) noexcept nogil:
    if unlikely(n != c.wire_width):
        return HARD
    if n == 4:
        out[0] = <int64_t> load_u32(p) if c.low == 0 else load_i32(p)
    elif n == 8:
        out[0] = load_i64(p)
    else:
        out[0] = load_i16(p)
    return FINE


cdef inline bint hurry_integers(
    Column* c, const Slot* slots, Py_ssize_t n, Stored* out
) noexcept nogil:
    """Read text of one to eight digits; false if any row is something else."""
    cdef uint64_t strange = 0, w, value
    cdef uint64_t high = <uint64_t> c.high
    cdef int32_t length
    cdef Py_ssize_t i
    for i in range(n):
        length = slots[i].length
        w = (word(slots[i].p + length - 8) ^ ZEROS) & LAST_BYTES[length & 15]
        value = number_of(w)
        strange |= strays(w) | <uint32_t> slots[i].kind
        strange |= <uint64_t> (<uint32_t> (length - 1) > 7) | (value > high)
        out[i] = <Stored> value
    return hurried(c, strange)


cdef inline void into_integers(
    Column* c, const Slot* slots, Py_ssize_t n, Stored* out
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t value
    cdef int64_t low = c.low, high = c.high
    cdef int odd
    if hurries(c) and hurry_integers(c, slots, n, out):
        return
    for i in range(n):
        value = 0
        if likely(slots[i].kind == TEXT):
            odd = text_integer(slots[i].p, slots[i].length, low, high, &value)
        elif slots[i].kind == BINARY:
            odd = binary_integer(slots[i].p, slots[i].length, c, &value)
        else:
            odd = MISSING
        if unlikely(odd):
            value = 0
            column_odd(c, i, &slots[i], odd)
        out[i] = <Stored> value


cdef inline void run_int2(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_integers(c, slots, n, <int16_t*> c.values + c.length)


cdef inline void run_int4(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_integers(c, slots, n, <int32_t*> c.values + c.length)


cdef inline void run_uint4(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_integers(c, slots, n, <uint32_t*> c.values + c.length)


cdef inline void run_int8(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_integers(c, slots, n, <int64_t*> c.values + c.length)


# Unsigned 64-bit numbers: `high` is the largest that the column holds.


cdef inline int text_uint8(const uint8_t* p, int32_t n, uint64_t* out) noexcept nogil:
    # A number of 20 digits may be too large; it is rare enough to be asked for.
    if unlikely(n < 1 or n > 19 or not parse_digits(p, n, out)):
        return HARD
    return FINE


cdef inline int hex_half(const uint8_t* p, int32_t n, uint32_t* out) noexcept nogil:
    cdef uint64_t zeros
    if n < 1 or n > 8:
        return HARD
    zeros = ((word(p + n - 8) ^ ZEROS) & LAST_BYTES[n]) ^ ZEROS
    if not parse_hex(zeros, out):
        return HARD
    out[0] = PGWIRE_SWAP32(out[0])
    return FINE


cdef inline int text_lsn(const uint8_t* p, int32_t n, uint64_t* out) noexcept nogil:
    cdef int32_t slash = 0
    cdef uint32_t upper = 0, lower = 0
    while slash < n and slash < 9 and p[slash] != 0x2F:
        slash += 1
    if slash >= n or hex_half(p, slash, &upper) or hex_half(p + slash + 1, n - slash - 1, &lower):
        return HARD
    out[0] = <uint64_t> upper << 32 | lower
    return FINE


cdef inline void into_unsigned(
    Column* c, const Slot* slots, Py_ssize_t n, bint is_lsn
) noexcept nogil:
    cdef uint64_t* out = <uint64_t*> c.values + c.length
    cdef uint64_t high = <uint64_t> c.high
    cdef Py_ssize_t i
    cdef uint64_t value
    cdef int odd
    for i in range(n):
        value = 0
        if likely(slots[i].kind == TEXT):
            if is_lsn:
                odd = text_lsn(slots[i].p, slots[i].length, &value)
            else:
                odd = text_uint8(slots[i].p, slots[i].length, &value)
        elif slots[i].kind != BINARY:
            odd = MISSING
        elif unlikely(slots[i].length != 8):
            odd = HARD
        else:
            odd = FINE
            value = load_u64(slots[i].p)
        if odd == FINE and unlikely(value > high):
            odd = ABOVE
        if unlikely(odd):
            value = high if column_odd(c, i, &slots[i], odd) == ABOVE else 0
        out[i] = value


cdef inline void run_uint8(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_unsigned(c, slots, n, False)


cdef inline void run_lsn(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_unsigned(c, slots, n, True)


cdef inline void run_bool(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    """Give a byte a row; they become a bitmap at the end."""
    cdef uint8_t* out = c.values + c.length
    cdef Py_ssize_t i
    cdef uint8_t byte
    cdef int odd
    for i in range(n):
        odd = HARD
        out[i] = 0
        if unlikely(slots[i].kind < 0):
            odd = MISSING
        elif likely(slots[i].length == 1):
            byte = slots[i].p[0]
            if slots[i].kind == TEXT:
                if likely(byte == 0x74 or byte == 0x66):  # t, f
                    odd = FINE
                    out[i] = byte == 0x74
            elif likely(byte <= 1):
                odd = FINE
                out[i] = byte
        if unlikely(odd):
            column_odd(c, i, &slots[i], odd)
