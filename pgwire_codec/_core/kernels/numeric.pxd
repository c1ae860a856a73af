"""numeric in both forms: to decimal128, decimal256, float64 and text, and from decimal128.

Of text, the usual form of numeric(p,s) is read fast: exactly s digits after the point, and at most
16 in all. Of the binary form, at most four base-10000 digits are. All others are read digit by
digit.

Of the column, `precision` and `scale` are those of the type, `mask` selects those of the last eight
characters that are after the point, and `high` is the largest number that the fast reader returns.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcmp, memset

from pgwire_codec._core.kernels.column cimport (
    BINARY, DEFERRED, FINE, NO_NEAREST, OTHER_NEAREST, ColumnBuffers, Kernel, Slice, likely,
    unlikely,
)
from pgwire_codec._core.kernels.decimal_float cimport parse_float, parse_special_float, u128
from pgwire_codec._core.kernels.digits cimport (
    TENS, are_digits, last_digits_of, number_of, parse_digits, word,
)
from pgwire_codec._core.kernels.numeric_fast cimport fast_binary_decimals, fast_decimals
from pgwire_codec._core.kernels.numeric_render cimport (
    MAX_DISPLAY_SCALE, NEGATIVE, NUMERIC_HEAD, render_numeric,
)
from pgwire_codec._core.kernels.skeleton cimport (
    FourWords, TwoWords, decode_fixed, tries_fast_path,
)
from pgwire_codec._core.wire.primitives cimport load_i16, load_u16

cdef enum:
    LIMBS = 4  # 64-bit words of the widest decimal
    DIGITS_CAPACITY = 160  # of a decimal's digits, 76 at most, with space before them
    TEXT_CAPACITY = 512  # of the text of a binary numeric; a longer one is deferred


cdef inline Kernel numeric_kernel(ColumnBuffers* c, str arrow):
    """Set the column up for Arrow's "d:15,2", "d:76,9,256" or "g"; return its kernel."""
    if arrow == "g":
        c.width = 8
        return decode_double
    precision, scale, *bits = [int(part) for part in arrow[2:].split(",")]
    c.precision = precision
    c.scale = scale
    c.mask = (0xFFFFFFFFFFFFFFFF << (64 - 8 * min(scale, 8))) & 0xFFFFFFFFFFFFFFFF
    c.high = 10 ** precision - 1 if precision <= 16 else INT64_MAX
    c.has_fast_path = 0 < scale < 7 and precision >= 8
    c.width = 32 if bits else 16
    return decode_decimal256 if bits else decode_decimal128


# Read.


cdef inline int read_usual_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, bint* negative, uint64_t* out
) noexcept nogil:
    """Read exactly `scale` (0 to 7) digits after the point and at most 16 in all, or defer."""
    cdef const uint8_t* end = p + n
    cdef uint64_t low, high
    cdef int32_t scale = c.scale, digits
    cdef bint point = scale > 0
    negative[0] = n > 0 and p[0] == 0x2D
    digits = n - negative[0] - point
    if unlikely(scale > 7 or digits <= scale or digits > 16):
        return DEFERRED
    if point:
        if unlikely((end - 1 - scale)[0] != 0x2E):
            return DEFERRED
        # Seven or eight characters up to the end; those before the point moved over it.
        low = (word(end - 8) & c.mask) | (word(end - 9) & ~c.mask)
    else:
        low = word(end - 8)
    if digits <= 8:
        low = last_digits_of(low, digits)
        out[0] = number_of(low)
        return FINE if likely(are_digits(low)) else DEFERRED
    low = last_digits_of(low, 8)
    high = last_digits_of(word(end - 16 - point), digits - 8)
    out[0] = number_of(high) * 100_000_000 + number_of(low)
    return FINE if likely(are_digits(low) and are_digits(high)) else DEFERRED


cdef inline int read_usual_binary(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, bint* negative, uint64_t* out
) noexcept nogil:
    """Read at most four base-10000 digits whose value has at most 18 digits, or defer."""
    cdef int32_t count, weight, shown, power, i
    cdef uint64_t value = 0
    cdef uint16_t group, sign
    if unlikely(n < NUMERIC_HEAD):
        return DEFERRED
    count = load_u16(p)
    weight = load_i16(p + 2)
    sign = load_u16(p + 4)
    shown = load_u16(p + 6)
    if unlikely(
        count > 4
        or count * 2 != n - NUMERIC_HEAD
        or sign & ~NEGATIVE
        or shown > MAX_DISPLAY_SCALE
        or weight < -5
        or 4 * (weight + 1) + c.scale > 18
    ):
        return DEFERRED
    for i in range(count):
        group = load_u16(p + NUMERIC_HEAD + 2 * i)
        if unlikely(group > 9999):
            return DEFERRED
        value = value * 10_000 + group
    negative[0] = sign != 0
    # The column stores `scale` of the decimals that are shown; the others must be zeros, and so
    # must what is not shown.
    shown = min(shown, c.scale)
    power = 4 * (weight - count + 1) + shown
    if power < 0:
        if unlikely(power < -19 or value % TENS[-power]):
            return DEFERRED
        value //= TENS[-power]
    else:
        value *= TENS[power]
    out[0] = value * TENS[c.scale - shown]
    return FINE


cdef inline void multiply_add(uint64_t* limbs, uint64_t factor, uint64_t addend) noexcept nogil:
    cdef u128 product
    cdef int i
    for i in range(LIMBS):
        product = <u128> limbs[i] * factor + addend
        limbs[i] = <uint64_t> product
        addend = <uint64_t> (product >> 64)


cdef inline int read_any_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* limbs
) noexcept nogil:
    """Read any text of a numeric into limbs, two's complement, the lowest first."""
    cdef uint8_t memory[DIGITS_CAPACITY]
    cdef uint8_t* digits = memory + 16
    cdef bint negative = n > 0 and p[0] == 0x2D, inexact = False
    cdef int32_t whole = 0, fraction = 0, first = 0, count, chunk, i
    cdef uint64_t part, carry
    p += negative
    n -= negative
    while whole < n and p[whole] - <unsigned int> 0x30 <= 9:
        whole += 1
    if whole == 0:
        if n == 8 and memcmp(p, b"Infinity", 8) == 0:
            return OTHER_NEAREST
        return NO_NEAREST if n == 3 and not negative and memcmp(p, b"NaN", 3) == 0 else DEFERRED
    if whole < n:
        fraction = n - whole - 1
        if p[whole] != 0x2E or fraction == 0:
            return DEFERRED
        for i in range(whole + 1, n):
            if not p[i] - <unsigned int> 0x30 <= 9:
                return DEFERRED
            inexact = inexact or (i > whole + c.scale and p[i] != 0x30)
    while first < whole and p[first] == 0x30:
        first += 1
    count = whole - first + c.scale
    if inexact or (whole > first and count > c.precision):
        return OTHER_NEAREST
    memset(memory, 0x30, DIGITS_CAPACITY)
    for i in range(first, whole):
        digits[i - first] = p[i]
    for i in range(min(fraction, c.scale)):
        digits[whole - first + i] = p[whole + 1 + i]
    memset(limbs, 0, LIMBS * sizeof(uint64_t))
    i = 0
    while i < count:
        chunk = (count - i - 1) % 16 + 1
        parse_digits(digits + i, chunk, &part)
        multiply_add(limbs, TENS[chunk], part)
        i += chunk
    if negative:
        carry = 1
        for i in range(LIMBS):
            limbs[i] = ~limbs[i] + carry
            carry = carry and limbs[i] == 0
    return FINE


cdef inline int read_any(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, bint is_binary, uint64_t* limbs
) noexcept nogil:
    cdef uint8_t text[TEXT_CAPACITY]
    if is_binary:
        n = render_numeric(p, n, text, TEXT_CAPACITY)
        if n < 0:
            return DEFERRED
        p = text
    return read_any_text(c, p, n, limbs)


cdef inline int read_unusual(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, bint is_binary, uint64_t* words
) noexcept nogil:
    """Read into memory of its own: the words of usual values then stay in registers."""
    cdef uint64_t limbs[LIMBS]
    cdef int status = read_any(c, p, n, is_binary, limbs)
    cdef int i
    if status == FINE:
        for i in range(LIMBS):
            words[i] = limbs[i]
    return status


cdef inline void put_decimal(uint64_t value, bint negative, uint64_t* words) noexcept nogil:
    cdef uint64_t fill = 0 - <uint64_t> negative
    words[0] = (value ^ fill) + negative
    # The negative of zero is zero.
    words[1] = words[2] = words[3] = fill if value else 0


cdef inline int read_decimal_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    cdef bint negative = False
    cdef uint64_t value = 0
    cdef int status = read_usual_text(c, p, n, &negative, &value)
    if unlikely(status or value > <uint64_t> c.high):
        return read_unusual(c, p, n, False, words)
    put_decimal(value, negative, words)
    return FINE


cdef inline int read_decimal_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    cdef bint negative = False
    cdef uint64_t value = 0
    cdef int status = read_usual_binary(c, p, n, &negative, &value)
    if unlikely(status or value > <uint64_t> c.high):
        return read_unusual(c, p, n, True, words)
    put_decimal(value, negative, words)
    return FINE


cdef inline int read_double_text(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil:
    if likely(parse_float(p, n, True, False, words) == FINE):
        return FINE
    return parse_special_float(p, n, True, words)


cdef inline int read_double_binary(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil:
    cdef uint8_t text[TEXT_CAPACITY]
    n = render_numeric(p, n, text, TEXT_CAPACITY)
    return DEFERRED if n < 0 else read_double_text(c, text, n, words)


# Kernels.


cdef inline void decode_decimal128(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef TwoWords* out = <TwoWords*> c.values + c.length
    if tries_fast_path(c):
        if values[0].form == BINARY:
            if c.scale <= 4 and fast_binary_decimals(c, values, n, out):
                return
        elif fast_decimals(c, values, n, out):
            return
    decode_fixed(c, values, n, out, read_decimal_text, read_decimal_binary)


cdef inline void decode_decimal256(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef FourWords* out = <FourWords*> c.values + c.length
    decode_fixed(c, values, n, out, read_decimal_text, read_decimal_binary)


cdef inline void decode_double(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int64_t* out = <int64_t*> c.values + c.length
    decode_fixed(c, values, n, out, read_double_text, read_double_binary)
