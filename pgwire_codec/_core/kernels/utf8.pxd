"""UTF-8: checked, and copied while bytes that are not ASCII are looked for.

ASCII is checked by words, the rest by an automaton that takes a byte without a branch. A state is a
shift. The 64-bit word of a byte contains, at the shift of each state, the six bits of the next
state, so that a step is one load, which depends on no earlier step, and one shift.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pgwire_codec._core.kernels.digits cimport HIGH_BITS, word


cdef extern from *:
    """
    static uint64_t PGWIRE_STEPS[256];
    """
    uint64_t STEPS "PGWIRE_STEPS"[256]

cdef enum:
    STEP = 32  # bytes after which a run of ASCII is looked for again
    GOOD = 0
    BAD = 6
    ONE_MORE = 12
    TWO_MORE = 18
    THREE_MORE = 24
    AFTER_E0 = 30
    AFTER_ED = 36
    AFTER_F0 = 42
    AFTER_F4 = 48
    STATE_BITS = 63


cdef inline void put_word(uint8_t* out, uint64_t w) noexcept nogil:
    memcpy(out, &w, 8)


cdef inline uint64_t copy_value(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Copy n bytes, and return their high bits.

    A short value is loaded with bytes that lie before it, and up to SLACK bytes after it are
    overwritten in `out`.
    """
    cdef uint64_t a, b, c, d, seen
    cdef int32_t at
    if n <= 8:
        if n == 0:
            return 0
        a = word(p + n - 8) >> ((8 - n) * 8)
        put_word(out, a)
        return a & HIGH_BITS
    if n <= 16:
        a = word(p)
        b = word(p + n - 8)
        put_word(out, a)
        put_word(out + n - 8, b)
        return (a | b) & HIGH_BITS
    seen = 0
    at = 0
    while at < n - 32:
        a = word(p + at)
        b = word(p + at + 8)
        c = word(p + at + 16)
        d = word(p + at + 24)
        put_word(out + at, a)
        put_word(out + at + 8, b)
        put_word(out + at + 16, c)
        put_word(out + at + 24, d)
        seen |= a | b | c | d
        at += 32
    # 1 to 32 bytes are left, or, of a shorter value, 17 to 32.
    at = n - 32 if n >= 32 else 0
    a = word(p + at)
    b = word(p + at + 8)
    c = word(p + n - 16)
    d = word(p + n - 8)
    put_word(out + at, a)
    put_word(out + at + 8, b)
    put_word(out + n - 16, c)
    put_word(out + n - 8, d)
    return (seen | a | b | c | d) & HIGH_BITS


cdef inline bint is_ascii(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    cdef uint64_t seen = 0
    cdef Py_ssize_t at = 0
    if n < 8:
        while at < n:
            seen |= p[at]
            at += 1
        return seen & HIGH_BITS == 0
    while at < n - 8:
        seen |= word(p + at)
        at += 8
    return (seen | word(p + n - 8)) & HIGH_BITS == 0


cdef inline int successor(int state, int byte):
    """Return the state after a byte: Unicode, table 3-7, well-formed byte sequences."""
    cdef int low = 0x80, high = 0xBF
    if state == GOOD:
        if byte < 0x80:
            return GOOD
        if byte < 0xC2 or byte > 0xF4:
            return BAD
        if byte < 0xE0:
            return ONE_MORE
        if byte < 0xF0:
            return {0xE0: AFTER_E0, 0xED: AFTER_ED}.get(byte, TWO_MORE)
        return {0xF0: AFTER_F0, 0xF4: AFTER_F4}.get(byte, THREE_MORE)
    if state == BAD:
        return BAD
    if state == AFTER_E0:  # shorter forms
        low = 0xA0
    elif state == AFTER_ED:  # surrogates
        high = 0x9F
    elif state == AFTER_F0:
        low = 0x90
    elif state == AFTER_F4:  # past U+10FFFF
        high = 0x8F
    if not low <= byte <= high:
        return BAD
    if state == ONE_MORE:
        return GOOD
    return ONE_MORE if state in (TWO_MORE, AFTER_E0, AFTER_ED) else TWO_MORE


cdef inline void fill_steps():
    cdef int byte, state
    for byte in range(256):
        STEPS[byte] = 0
        for state in range(GOOD, AFTER_F4 + 1, 6):
            STEPS[byte] |= <uint64_t> successor(state, byte) << state


cdef inline bint is_utf8(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """Return whether Python's strict decoder accepts the bytes."""
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef uint64_t state = GOOD
    while p != end:
        if state & STATE_BITS == GOOD:
            while end - p >= 16 and not (word(p) | word(p + 8)) & HIGH_BITS:
                p += 16
        stop = p + min(end - p, <Py_ssize_t> STEP)
        while p != stop:
            state = STEPS[p[0]] >> (state & STATE_BITS)
            p += 1
    return state & STATE_BITS == GOOD
