"""float4 and float8, in both forms; a binary NaN keeps its payload."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport (
    BINARY,
    FINE,
    HARD,
    MISSING,
    TEXT,
    Column,
    Kernel,
    Slot,
    column_odd,
    likely,
    unlikely,
)
from pgwire_codec._core.kernels.decimal_float cimport parse_float, special_float
from pgwire_codec._core.wire.primitives cimport load_u32, load_u64

cdef enum:
    MAX_CHARACTERS = 64  # the server writes at most 24


cdef inline Kernel float_kernel(Column* c, str family):
    """Set the column up for float4 or float8."""
    c.width = 8 if family == "float8" else 4
    return run_float8 if family == "float8" else run_float4


cdef inline int text_float(
    const uint8_t* p, int32_t n, bint is_double, uint64_t* bits
) noexcept nogil:
    if unlikely(n > MAX_CHARACTERS):
        return HARD
    if likely(parse_float(p, n, is_double, True, bits) == FINE):
        return FINE
    return special_float(p, n, is_double, bits)


cdef inline void run_float8(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef uint64_t* out = <uint64_t*> c.values + c.length
    cdef Py_ssize_t i
    cdef uint64_t bits
    cdef int odd
    for i in range(n):
        bits = 0
        if slots[i].kind == TEXT:
            odd = text_float(slots[i].p, slots[i].length, True, &bits)
        elif slots[i].kind != BINARY:
            odd = MISSING
        elif likely(slots[i].length == 8):
            odd = FINE
            bits = load_u64(slots[i].p)
        else:
            odd = HARD
        if unlikely(odd):
            bits = 0
            column_odd(c, i, &slots[i], odd)
        out[i] = bits


cdef inline void run_float4(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef uint32_t* out = <uint32_t*> c.values + c.length
    cdef Py_ssize_t i
    cdef uint64_t bits
    cdef int odd
    for i in range(n):
        bits = 0
        if slots[i].kind == TEXT:
            odd = text_float(slots[i].p, slots[i].length, False, &bits)
        elif slots[i].kind != BINARY:
            odd = MISSING
        elif likely(slots[i].length == 4):
            odd = FINE
            bits = load_u32(slots[i].p)
        else:
            odd = HARD
        if unlikely(odd):
            bits = 0
            column_odd(c, i, &slots[i], odd)
        out[i] = <uint32_t> bits
