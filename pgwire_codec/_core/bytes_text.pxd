# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The text forms of bytea and uuid, and what is written for their binary forms."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.digits cimport ZEROS, parse_hex, word

cdef extern from *:
    """
    static const char PGWIRE_HEX[17] = "0123456789abcdef";
    """
    const char HEX "PGWIRE_HEX"[17]


cdef inline int32_t read_hex(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Read n hexadecimal characters, at least two bytes before them; bytes written, or -1."""
    cdef int32_t size = n >> 1, at
    cdef uint32_t four
    cdef int unused
    if n & 1:
        return -1
    if n < 8:
        if n == 0:
            return 0
        unused = (8 - n) * 8
        if not parse_hex((((word(p + n - 8) ^ ZEROS) >> unused) << unused) ^ ZEROS, &four):
            return -1
        four >>= unused >> 1
        memcpy(out, &four, 4)
        return size
    for at in range(0, n - 8, 8):
        if not parse_hex(word(p + at), &four):
            return -1
        memcpy(out + (at >> 1), &four, 4)
    if not parse_hex(word(p + n - 8), &four):
        return -1
    memcpy(out + size - 4, &four, 4)
    return size


cdef inline int32_t read_escaped(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    r"""Read ``\000\377\\``; bytes written, or -1."""
    cdef int32_t at = 0, size = 0
    while at < n:
        if p[at] < 0x20 or p[at] > 0x7E:
            return -1
        if p[at] != 0x5C:
            out[size] = p[at]
            at += 1
        elif n - at >= 2 and p[at + 1] == 0x5C:
            out[size] = 0x5C
            at += 2
        elif (
            n - at >= 4
            and p[at + 1] - <uint32_t> 0x30 <= 3
            and p[at + 2] - <uint32_t> 0x30 <= 7
            and p[at + 3] - <uint32_t> 0x30 <= 7
        ):
            out[size] = (
                (p[at + 1] - 0x30) << 6 | (p[at + 2] - 0x30) << 3 | (p[at + 3] - 0x30)
            )
            at += 4
        else:
            return -1
        size += 1
    return size


cdef inline int32_t read_bytea(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    r"""Read ``\x00ff`` or the escape form; bytes written (n at most, and slack), or -1."""
    if n >= 2 and p[0] == 0x5C and p[1] == 0x78:
        return read_hex(p + 2, n - 2, out)
    return read_escaped(p, n, out)


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


cdef inline uint8_t* write_hex(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    cdef int32_t i
    for i in range(n):
        out[2 * i] = HEX[p[i] >> 4]
        out[2 * i + 1] = HEX[p[i] & 15]
    return out + 2 * n


cdef inline void write_uuid(const uint8_t* p, uint8_t* out) noexcept nogil:
    cdef int32_t at
    for at in range(16):
        if at == 4 or at == 6 or at == 8 or at == 10:
            out[0] = 0x2D
            out += 1
        out = write_hex(p + at, 1, out)
