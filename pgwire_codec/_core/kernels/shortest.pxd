"""The shortest decimal digits that read back as a float: Schubfach.

After Raffaele Giulietti, "The Schubfach way to render doubles" (2020), with the one change that
PostgreSQL's Ryu has too: the exact middle between two floats belongs to neither.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from *:
    """
    typedef unsigned __int128 pgwire_u128;
    typedef struct { uint64_t high, low; } pgwire_power;
    static pgwire_power PGWIRE_POWERS[617];
    """
    ctypedef unsigned long long u128 "pgwire_u128"
    # 10**k scaled to 128 bits, the highest of them set, rounded up.
    ctypedef struct Power "pgwire_power":
        uint64_t high
        uint64_t low
    Power POWERS "PGWIRE_POWERS"[617]  # from MIN_POWER to MAX_POWER

cdef enum:
    # Powers of ten that float8 needs.
    MIN_POWER = -292
    MAX_POWER = 324


cdef inline void fill_powers():
    """Compute the powers; a module that writes floats does it once."""
    for k in range(MIN_POWER, MAX_POWER + 1):
        shift = ((k * 1741647) >> 19) - 127
        over, under = 10 ** max(k, 0) << max(-shift, 0), 10 ** max(-k, 0) << max(shift, 0)
        scaled = -(-over // under)
        POWERS[k - MIN_POWER].high = scaled >> 64
        POWERS[k - MIN_POWER].low = scaled & 0xFFFFFFFFFFFFFFFF


cdef inline int32_t floor_log2_pow10(int32_t e) noexcept nogil:
    return (e * 1741647) >> 19


cdef inline uint64_t round_to_odd(const Power* g, uint64_t c) noexcept nogil:
    cdef u128 x = <u128> g.low * c
    cdef u128 y = <u128> g.high * c + <uint64_t> (x >> 64)
    cdef uint64_t low = <uint64_t> y
    return <uint64_t> (y >> 64) | (low > 1)


cdef inline uint64_t shortest(
    uint64_t c, int32_t q, bint closer, int32_t* exponent
) noexcept nogil:
    """Return the digits of c * 2**q, where c is not 0, and the power of ten that multiplies them.

    `closer` states that c is a power of two, below which floats are twice as close.
    """
    cdef int32_t k = (q * 1262611 - (524031 if closer else 0)) >> 22
    cdef int32_t h = q + floor_log2_pow10(-k) + 1
    cdef const Power* g = &POWERS[-k - MIN_POWER]
    # The bounds themselves are not inside.
    cdef uint64_t lower = round_to_odd(g, (4 * c - 2 + closer) << h) + 1
    cdef uint64_t value = round_to_odd(g, (4 * c) << h)
    cdef uint64_t upper = round_to_odd(g, (4 * c + 2) << h) - 1
    cdef uint64_t s = value // 4, tens
    cdef bint down, up
    if s >= 10:
        tens = s // 10
        down = lower <= 40 * tens
        up = 40 * tens + 40 <= upper
        if down != up:
            exponent[0] = k + 1
            return tens + up
    down = lower <= 4 * s
    up = 4 * s + 4 <= upper
    exponent[0] = k
    if down != up:
        return s + up
    # Both or neither: the nearer one, or the even one if both are equally near.
    up = value > 4 * s + 2 or (value == 4 * s + 2 and s & 1 == 1)
    return s + up
