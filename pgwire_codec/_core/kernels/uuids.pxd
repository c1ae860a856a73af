"""uuid as 16 bytes, in both forms."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

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
from pgwire_codec._core.kernels.digits cimport parse_hex, word, write_hex


cdef inline bint read_uuid(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Read 8-4-4-4-12 hexadecimal digits as 16 bytes."""
    cdef uint32_t four[4]
    cdef uint64_t second, third
    if n != 36 or p[8] != 0x2D or p[13] != 0x2D or p[18] != 0x2D or p[23] != 0x2D:
        return False
    # The halves of the middle words stand on both sides of a hyphen.
    second = (word(p + 9) & <uint64_t> 0xFFFFFFFF) | (word(p + 10) & <uint64_t> 0xFFFFFFFF00000000)
    third = (word(p + 19) & <uint64_t> 0xFFFFFFFF) | (word(p + 20) & <uint64_t> 0xFFFFFFFF00000000)
    if not (
        parse_hex(word(p), &four[0])
        and parse_hex(second, &four[1])
        and parse_hex(third, &four[2])
        and parse_hex(word(p + 28), &four[3])
    ):
        return False
    memcpy(out, four, 16)
    return True


cdef inline void write_uuid(const uint8_t* p, uint8_t* out) noexcept nogil:
    cdef int32_t at
    for at in range(16):
        if at == 4 or at == 6 or at == 8 or at == 10:
            out[0] = 0x2D
            out += 1
        out = write_hex(p + at, 1, out)


cdef inline Kernel uuid_kernel(Column* c):
    """Set the column up."""
    c.width = 16
    return run_uuid


cdef inline void run_uuid(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef uint8_t* out = c.values + c.length * 16
    cdef Py_ssize_t i
    cdef int odd
    for i in range(n):
        odd = HARD
        if likely(slots[i].kind == TEXT):
            if likely(read_uuid(slots[i].p, slots[i].length, out)):
                odd = FINE
        elif slots[i].kind != BINARY:
            odd = MISSING
        elif likely(slots[i].length == 16):
            odd = FINE
            memcpy(out, slots[i].p, 16)
        if unlikely(odd):
            memset(out, 0, 16)
            column_odd(c, i, &slots[i], odd)
        out += 16
