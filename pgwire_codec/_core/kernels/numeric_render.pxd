"""Text of numeric: checked, and written for the binary form as the server writes it."""

from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.string cimport memcmp, memcpy

from pgwire_codec._core.wire.primitives cimport load_i16, load_u16

cdef enum:
    # numeric_send: digit count, weight, sign and display scale, before the base-10000 digits
    NUMERIC_HEAD = 8
    NEGATIVE = 0x4000
    NOT_A_NUMBER = 0xC000
    POSITIVE_INFINITY = 0xD000
    NEGATIVE_INFINITY = 0xF000
    MAX_DISPLAY_SCALE = 0x3FFF


cdef inline bint is_numeric(const uint8_t* p, int32_t n) noexcept nogil:
    """Return whether the text is plain decimal notation, NaN or Infinity."""
    cdef int32_t i = 0, start
    cdef bint negative = n > 0 and p[0] == 0x2D
    i = negative
    start = i
    while i < n and p[i] - <unsigned int> 0x30 <= 9:
        i += 1
    if i == start:
        if n == 8 + negative:
            return memcmp(p + negative, b"Infinity", 8) == 0
        return n == 3 and memcmp(p, b"NaN", 3) == 0
    if i < n and p[i] == 0x2E:
        i += 1
        start = i
        while i < n and p[i] - <unsigned int> 0x30 <= 9:
            i += 1
        if i == start:
            return False
    return i == n


cdef inline bint is_binary_numeric(const uint8_t* p, int32_t n) noexcept nogil:
    """Return whether the binary form is whole; NaN and the infinities are, too."""
    cdef int32_t i
    cdef uint16_t sign
    if n < NUMERIC_HEAD or load_u16(p) * 2 != n - NUMERIC_HEAD:
        return False
    sign = load_u16(p + 4)
    if sign != 0 and sign != NEGATIVE and sign != NOT_A_NUMBER:
        if sign != POSITIVE_INFINITY and sign != NEGATIVE_INFINITY:
            return False
    if load_u16(p + 6) > MAX_DISPLAY_SCALE:
        return False
    for i in range(NUMERIC_HEAD, n, 2):
        if load_u16(p + i) > 9999:
            return False
    return True


cdef inline uint8_t numeric_digit_unchecked(
    const uint8_t* groups, int32_t count, int32_t at
) noexcept nogil:
    """Return the character of one decimal digit; is_binary_numeric has checked the groups."""
    cdef uint16_t group
    if at < 0 or at >= count * 4:
        return 0x30
    group = load_u16(groups + (at >> 2) * 2)
    if at & 3 == 0:
        group //= 1000
    elif at & 3 == 1:
        group //= 100
    elif at & 3 == 2:
        group //= 10
    return 0x30 + group % 10


cdef inline int32_t render_numeric(
    const uint8_t* p, int32_t n, uint8_t* out, int32_t capacity
) noexcept nogil:
    """Write the text, and return its length: -1 for an invalid form, or too little capacity.

    `capacity` is at least 16.
    """
    cdef int32_t count, point, scale, at, length = 0
    cdef bint nonzero = False
    cdef uint8_t digit
    cdef uint16_t sign
    if not is_binary_numeric(p, n):
        return -1
    count = load_u16(p)
    point = (load_i16(p + 2) + 1) * 4
    sign = load_u16(p + 4)
    scale = load_u16(p + 6)
    if sign & ~NEGATIVE:
        if sign == NOT_A_NUMBER:
            memcpy(out, b"NaN", 3)
            return 3
        memcpy(out, b"-Infinity" if sign == NEGATIVE_INFINITY else b"Infinity", 9)
        return 9 if sign == NEGATIVE_INFINITY else 8
    if (point if point > 0 else 1) + scale + 2 > capacity:
        return -1
    out[0] = 0x2D
    for at in range(point):
        digit = numeric_digit_unchecked(p + NUMERIC_HEAD, count, at)
        if nonzero or digit != 0x30:
            nonzero = True
            length += 1
            out[length] = digit
    if length == 0:
        length = 1
        out[1] = 0x30
    if scale:
        length += 1
        out[length] = 0x2E
        for at in range(point, point + scale):
            digit = numeric_digit_unchecked(p + NUMERIC_HEAD, count, at)
            nonzero = nonzero or digit != 0x30
            length += 1
            out[length] = digit
    if sign == NEGATIVE and nonzero:
        return length + 1
    for at in range(length):  # no sign: close up
        out[at] = out[at + 1]
    return length
