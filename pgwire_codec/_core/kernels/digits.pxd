"""Digits, decimal and hexadecimal: read eight at a time, as the bytes of a word.

Loads end at the end of the digits, and so begin before the first of them: a Slice promises that 12
bytes lie before a value.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the compiled codec is for little-endian machines"
    #endif
    #define PGWIRE_ZEROS UINT64_C(0x3030303030303030)
    #define PGWIRE_ONES UINT64_C(0x0101010101010101)
    #define PGWIRE_HIGH UINT64_C(0x8080808080808080)
    #define PGWIRE_FROM(byte) (UINT64_MAX << (8 * (byte)))
    /* The last 1 to 8 bytes of a word, by how many of them are digits. */
    static const uint64_t PGWIRE_LAST[16] = {
        0, PGWIRE_FROM(7), PGWIRE_FROM(6), PGWIRE_FROM(5), PGWIRE_FROM(4), PGWIRE_FROM(3),
        PGWIRE_FROM(2), PGWIRE_FROM(1), PGWIRE_FROM(0), 0, 0, 0, 0, 0, 0, 0};
    static const uint64_t PGWIRE_TENS[20] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000,
        100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000,
        10000000000000000, 100000000000000000, 1000000000000000000,
        UINT64_C(10000000000000000000)};
    static const char PGWIRE_HEX[17] = "0123456789abcdef";
    """
    const uint64_t ZEROS "PGWIRE_ZEROS"  # eight times the character 0
    const uint64_t ONES "PGWIRE_ONES"
    const uint64_t HIGH_BITS "PGWIRE_HIGH"
    const uint64_t LAST_BYTES "PGWIRE_LAST"[16]
    const uint64_t TENS "PGWIRE_TENS"[20]  # powers of ten
    const char HEX "PGWIRE_HEX"[17]


cdef inline uint64_t word(const uint8_t* p) noexcept nogil:
    """Load eight bytes, the first of them lowest."""
    cdef uint64_t x
    memcpy(&x, p, 8)
    return x


cdef inline uint64_t strays(uint64_t w) noexcept nogil:
    """Return 0 if all eight bytes are the digits 0 to 9, else some bits."""
    return (w | (w + <uint64_t> 0x0606060606060606)) & <uint64_t> 0xF0F0F0F0F0F0F0F0


cdef inline bint are_digits(uint64_t w) noexcept nogil:
    return strays(w) == 0


cdef inline uint64_t number_of(uint64_t w) noexcept nogil:
    """Return the number whose digits the bytes are, the first lowest."""
    w = (w * (10 << 8 | 1) >> 8) & <uint64_t> 0x00FF00FF00FF00FF
    w = (w * (100 << 16 | 1) >> 16) & <uint64_t> 0x0000FFFF0000FFFF
    return w * (<uint64_t> 10_000 << 32 | 1) >> 32


cdef inline uint64_t last_digits_of(uint64_t characters, int32_t n) noexcept nogil:
    """Return the last n (1 to 8) of eight characters as digits, zeros before them."""
    cdef int unused = (8 - n) * 8
    return ((characters ^ ZEROS) >> unused) << unused


cdef inline bint parse_digits(const uint8_t* p, int32_t n, uint64_t* out) noexcept nogil:
    """Read n (1 to 19) digits at p; return False if one is not a digit."""
    cdef const uint8_t* end = p + n
    cdef uint64_t low, middle, top
    if n <= 8:
        low = last_digits_of(word(end - 8), n)
        out[0] = number_of(low)
        return are_digits(low)
    low = word(end - 8) ^ ZEROS
    if n <= 16:
        middle = last_digits_of(word(end - 16), n - 8)
        out[0] = number_of(middle) * 100_000_000 + number_of(low)
        return are_digits(low) and are_digits(middle)
    middle = word(end - 16) ^ ZEROS
    top = last_digits_of(word(end - 24), n - 16)
    out[0] = (number_of(top) * 100_000_000 + number_of(middle)) * 100_000_000 + number_of(low)
    return are_digits(low) and are_digits(middle) and are_digits(top)


cdef inline bint parse_hex(uint64_t w, uint32_t* out) noexcept nogil:
    """Read eight hexadecimal characters as four bytes; return False if one is not hexadecimal."""
    cdef uint64_t lower = w | (ONES * 0x20)
    cdef uint64_t digit, letter, nibbles
    if w & HIGH_BITS:
        return False
    # Bytes are below 0x80 here, so that no sum carries into the next.
    digit = (w + ONES * 0x50) & ~(w + ONES * 0x46)  # from 0x30 and not from 0x3a
    letter = (lower + ONES * 0x1F) & ~(lower + ONES * 0x19)  # from 0x61 and not from 0x67
    if ((digit | letter) & HIGH_BITS) != HIGH_BITS:
        return False
    nibbles = (w & (ONES * 0x0F)) + ((w >> 6) & ONES) * 9
    nibbles = ((nibbles << 4) | (nibbles >> 8)) & <uint64_t> 0x00FF00FF00FF00FF
    nibbles = (nibbles | (nibbles >> 8)) & <uint64_t> 0x0000FFFF0000FFFF
    out[0] = <uint32_t> (nibbles | (nibbles >> 16))
    return True


cdef inline int32_t parse_hex_bytes(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Read n hexadecimal characters after at least two bytes; return the bytes written, or -1."""
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


cdef inline uint8_t* write_hex(const uint8_t* p, int64_t n, uint8_t* out) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        out[2 * i] = HEX[p[i] >> 4]
        out[2 * i + 1] = HEX[p[i] & 15]
    return out + 2 * n
