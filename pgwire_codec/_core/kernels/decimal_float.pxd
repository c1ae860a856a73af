"""Decimal text to the nearest binary float, rounded once.

The algorithm of Eisel and Lemire (D. Lemire, "Number Parsing at a Gigabyte per Second", 2021): the
digits as an integer, times a 128-bit approximation of the power of five. If that does not decide,
and outside the normal range, the result is DEFERRED.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from pgwire_codec._core.kernels.column cimport DEFERRED, FINE
from pgwire_codec._core.kernels.digits cimport ZEROS, are_digits, number_of, word

cdef extern from *:
    """
    typedef unsigned __int128 pgwire_u128;
    static uint64_t PGWIRE_FIVES[651][2];
    """
    ctypedef unsigned long long u128 "pgwire_u128"
    uint64_t POWERS "PGWIRE_FIVES"[651][2]
    int __builtin_clzll(unsigned long long x) noexcept nogil

cdef enum:
    MIN_POWER = -342
    MAX_POWER = 308
    MAX_DIGITS = 19  # that a 64-bit integer holds
    MAX_EXPONENT = 100_000  # where counting stops: beyond every float


cdef inline void fill_powers():
    """Compute the leading 128 bits of each power of five, those of a negative one rounded up."""
    for power in range(MIN_POWER, MAX_POWER + 1):
        five = 5 ** abs(power)
        if power < 0:
            length = five.bit_length()
            bits = length + 127 if power >= -27 else 2 * length + 128
            five = (1 << bits) // five + 1
        excess = five.bit_length() - 128
        five = five >> excess if excess > 0 else five << -excess
        POWERS[power - MIN_POWER][0] = five >> 64
        POWERS[power - MIN_POWER][1] = five & 0xFFFFFFFFFFFFFFFF


cdef inline int nearest_float(
    uint64_t w, int64_t power, bint is_double, uint64_t* bits
) noexcept nogil:
    """Compute the bits of w * 10**power, where w is not zero."""
    cdef int mantissa_bits = 52 if is_double else 23
    cdef int64_t bias = 1023 if is_double else 127
    cdef uint64_t low, high, mantissa
    cdef u128 product
    cdef int64_t exponent
    cdef int zeros, upper, shift
    if power < MIN_POWER or power > MAX_POWER:
        return DEFERRED
    zeros = __builtin_clzll(w)
    w <<= zeros
    product = <u128> w * POWERS[power - MIN_POWER][0]
    high = <uint64_t> (product >> 64)
    low = <uint64_t> product
    if not ~high & (<uint64_t> 0xFFFFFFFFFFFFFFFF >> (mantissa_bits + 3)):
        product = <u128> w * POWERS[power - MIN_POWER][1]
        low += <uint64_t> (product >> 64)
        if low < <uint64_t> (product >> 64):
            high += 1
    if not ~low and (power < -27 or power > 55):
        return DEFERRED
    upper = high >> 63
    shift = upper + 64 - mantissa_bits - 3
    mantissa = high >> shift
    exponent = ((217706 * power) >> 16) + 63 + upper - zeros + bias
    if exponent <= 0:
        return DEFERRED
    # Half way between two floats: exactly so only within these powers.
    if (
        low <= 1
        and power >= (-4 if is_double else -17)
        and power <= (23 if is_double else 10)
        and (mantissa & 3) == 1
        and mantissa << shift == high
    ):
        mantissa &= ~<uint64_t> 1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >> (mantissa_bits + 1):
        mantissa >>= 1
        exponent += 1
    if exponent >= 2 * bias + 1:
        return DEFERRED
    mantissa &= (<uint64_t> 1 << mantissa_bits) - 1
    bits[0] = mantissa | <uint64_t> exponent << mantissa_bits
    return FINE


cdef inline int parse_float(
    const uint8_t* p, int32_t n, bint is_double, bint exponent_allowed, uint64_t* bits
) noexcept nogil:
    """Read digits, a fraction and an exponent; defer all else, NaN and the infinities too."""
    cdef const uint8_t* end = p + n
    cdef const uint8_t* start
    cdef uint64_t digits = 0, chunk, next_up
    cdef int64_t power = 0, exponent = 0
    cdef int significant = 0
    cdef bint dropped = False, negative = False, minus
    cdef uint64_t sign = 0
    if n < 1:
        return DEFERRED
    negative = p[0] == 0x2D
    p += negative
    start = p
    while p < end and p[0] - <unsigned int> 0x30 <= 9:
        if significant < MAX_DIGITS:
            digits = digits * 10 + (p[0] - 0x30)
            significant += digits != 0
        else:
            dropped = True
            power += 1
        p += 1
    if p == start:
        return DEFERRED
    if p < end and p[0] == 0x2E:
        p += 1
        start = p
        # Zeros that lead count as digits here: then more is dropped than need be, but not too much.
        while significant <= MAX_DIGITS - 8 and end - p >= 8:
            chunk = word(p) ^ ZEROS
            if not are_digits(chunk):
                break
            digits = digits * 100_000_000 + number_of(chunk)
            significant += 8
            power -= 8
            p += 8
        while p < end and p[0] - <unsigned int> 0x30 <= 9:
            if significant < MAX_DIGITS:
                digits = digits * 10 + (p[0] - 0x30)
                significant += digits != 0
                power -= 1
            else:
                dropped = True
            p += 1
        if p == start:
            return DEFERRED
    if p < end:
        if not exponent_allowed or (p[0] | 0x20) != 0x65:
            return DEFERRED
        p += 1
        minus = p < end and p[0] == 0x2D
        p += p < end and (p[0] == 0x2D or p[0] == 0x2B)
        start = p
        while p < end and p[0] - <unsigned int> 0x30 <= 9:
            if exponent < MAX_EXPONENT:
                exponent = exponent * 10 + (p[0] - 0x30)
            p += 1
        if p == start or p != end:
            return DEFERRED
        power += -exponent if minus else exponent
    sign = <uint64_t> negative << (63 if is_double else 31)
    if digits == 0:
        bits[0] = sign
        return FINE
    if nearest_float(digits, power, is_double, bits):
        return DEFERRED
    # The value lies between these digits and the next number.
    if dropped and (
        nearest_float(digits + 1, power, is_double, &next_up) or next_up != bits[0]
    ):
        return DEFERRED
    bits[0] |= sign
    return FINE


cdef inline int parse_special_float(
    const uint8_t* p, int32_t n, bint is_double, uint64_t* bits
) noexcept nogil:
    """Read NaN and the infinities."""
    cdef bint negative = n == 9 and p[0] == 0x2D
    if n == 3 and memcmp(p, b"NaN", 3) == 0:
        bits[0] = <uint64_t> 0x7FF8000000000000 if is_double else 0x7FC00000
        return FINE
    if n == 8 + negative and memcmp(p + negative, b"Infinity", 8) == 0:
        bits[0] = <uint64_t> 0x7FF0000000000000 if is_double else 0x7F800000
        bits[0] |= <uint64_t> negative << (63 if is_double else 31)
        return FINE
    return DEFERRED
