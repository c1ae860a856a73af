"""uuid as 16 bytes, in both forms."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.kernels.column cimport (
    DEFERRED, FINE, ColumnBuffers, Kernel, Slice, likely, unlikely,
)
from pgwire_codec._core.kernels.digits cimport parse_hex, word, write_hex
from pgwire_codec._core.kernels.skeleton cimport TwoWords, decode_fixed


cdef inline Kernel uuid_kernel(ColumnBuffers* c):
    """Set the column up; return its kernel."""
    c.width = 16
    return decode_uuid


# Read.


cdef inline bint parse_uuid(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Read 8-4-4-4-12 hexadecimal digits as 16 bytes; return False if they are not that."""
    cdef uint32_t four[4]
    cdef uint64_t second, third
    if n != 36 or p[8] != 0x2D or p[13] != 0x2D or p[18] != 0x2D or p[23] != 0x2D:
        return False
    # The halves of the middle words are on both sides of a hyphen.
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


cdef inline int read_uuid_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    return FINE if likely(parse_uuid(p, n, <uint8_t*> words)) else DEFERRED


cdef inline int read_uuid_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    if unlikely(n != 16):
        return DEFERRED
    memcpy(words, p, 16)
    return FINE


cdef inline void decode_uuid(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef TwoWords* out = <TwoWords*> c.values + c.length
    decode_fixed(c, values, n, out, read_uuid_text, read_uuid_binary)


# Render.


cdef inline void render_uuid(const uint8_t* p, uint8_t* out) noexcept nogil:
    """Write the 36 characters of 16 bytes."""
    cdef int32_t at
    for at in range(16):
        if at == 4 or at == 6 or at == 8 or at == 10:
            out[0] = 0x2D
            out += 1
        out = write_hex(p + at, 1, out)
